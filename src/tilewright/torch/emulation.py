"""Emulated devices for tensors in host memory, only where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from tilewright.arch import arch_names
from tilewright.base.errors import DeviceError, choose
from tilewright.runtime.device import EMULATED, Device, list_emulated_names

_emulated: ContextVar[Device | None] = ContextVar("tilewright_torch_emulated", default=None)


@contextmanager
def emulate(gpu: str) -> Iterator[Device]:
    """Compute operators on tensors in host memory with an emulated GPU inside the `with` block."""
    choose("GPU", gpu, arch_names())
    name = f"{EMULATED}:{gpu}"
    choose("emulated device", name, list_emulated_names())
    token = _emulated.set(Device(name))
    try:
        yield Device(name)
    finally:
        _emulated.reset(token)


def find_device(tensor: torch.Tensor, operator: str) -> Device | None:
    """The device for an operator on a tensor: None for a GPU's tensor, which tells it itself."""
    if tensor.is_cuda:
        return None
    if tensor.device.type != "cpu":
        raise DeviceError(f"{operator} got a tensor on {tensor.device}; supported are cuda (ROCm) and cpu")
    found = _emulated.get()
    if found is None:
        raise DeviceError(
            f"{operator} got tensors in host memory. Move them to a GPU with .to('cuda'), or compute them on an "
            f"emulated device inside `with tilewright.torch.emulate('gfx942'):`. Emulated are "
            f"{', '.join(name.partition(':')[2] for name in list_emulated_names())}"
        )
    return found
