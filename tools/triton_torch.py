"""What Triton's tests ask of a torch with a GPU, answered by torch on the CPU."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CudaInHostMemory(TorchFunctionMode):
    """Let tensors of the device `cuda` be in host memory, where the emulated GPU takes them from."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch with `cpu` instead of `cuda`."""
        return func(*map(_replace, args), **{name: _replace(value) for name, value in (kwargs or {}).items()})


def _replace(value: Any) -> Any:
    is_cuda = value.partition(":")[0] == "cuda" if isinstance(value, str) else False
    is_cuda |= isinstance(value, torch.device) and value.type == "cuda"
    return "cpu" if is_cuda else value


def replace_cuda(gpu: str) -> None:
    """Answer the questions about a GPU that Triton's tests ask, as torch for ROCm does."""
    version = (int(gpu.removeprefix("gfx")[:-2]), int(gpu[-2], 16))  # gfx90a is 9.0, with stepping a
    torch.cuda.get_device_capability = lambda *_: version
    torch.cuda.device = lambda *_: contextlib.nullcontext()  # type: ignore[assignment,misc]
    torch.version.hip = "7.0"  # only asked whether there is one
