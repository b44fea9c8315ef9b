"""Capture a kernel's launch in a graph of torch, replay it, and compare the result with a direct launch.

Imports torch and NumPy: import this module only in a process that has torch's HIP library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilewright.acceptance.device_runs import Subject
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.ops.problem_text import format_problem

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


def capture_and_replay(device: Device, subject: Subject, seed: int) -> dict[str, Any]:
    """Launch a kernel directly, then from a graph, both on torch's memory and stream; compare all bytes."""
    inputs = ReferenceCache().get_expected(subject.kernel.op, subject.problem, seed, device.arch).inputs
    tensors, call = subject.prepare_tensors(inputs, device), subject.bind(device)
    torch.cuda.set_device(device.index)
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def upload() -> list[Any]:
        return [torch.from_numpy(each.memory.copy()).to(f"cuda:{device.index}") for each in tensors]

    def launch(memory: list[Any]) -> None:
        call([each.data_ptr() for each in memory], stream.cuda_stream)

    direct, replayed = upload(), upload()
    torch.cuda.synchronize()
    launch(direct)  # also allocates the workspace, which a capture cannot do
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launch(replayed)
    torch.cuda.synchronize()
    idle = all(
        np.array_equal(each.cpu().numpy(), tensor.memory) for each, tensor in zip(replayed, tensors, strict=True)
    )
    graph.replay()
    torch.cuda.synchronize()
    same = all(torch.equal(one, other) for one, other in zip(direct, replayed, strict=True))
    return {
        "problem": format_problem(subject.problem, subject.kernel.config),
        "torch": torch.__version__,
        "idle_while_captured": idle,
        "same_as_direct": same,
    }
