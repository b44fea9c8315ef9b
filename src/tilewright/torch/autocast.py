"""Autocast: floating-point inputs of an operator in the type that the user selected."""

from __future__ import annotations

import torch


def cast_inputs(*tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """The tensors in autocast's type of their device. Call it only where autocast is enabled."""
    first = next(tensor for tensor in tensors if tensor is not None)
    dtype = torch.get_autocast_dtype(first.device.type)
    return tuple(
        tensor.to(dtype) if tensor is not None and tensor.is_floating_point() else tensor for tensor in tensors
    )
