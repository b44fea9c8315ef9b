"""Gradients of operators that CK Tile has no gradient kernels for: torch computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def differentiate_with_torch(
    compute: Callable[..., torch.Tensor], tensors: Sequence[torch.Tensor | None], gradient: torch.Tensor
) -> list[torch.Tensor | None]:
    """The gradients with respect to the tensors that are not None of torch's own function, computed in fp32.

    If gradients of gradients are wanted (`create_graph`), they are parts of the graph.
    """
    recorded = torch.is_grad_enabled()
    wide = [None if each is None else _copy_to_fp32(each, recorded and each.requires_grad) for each in tensors]
    with torch.enable_grad():
        result = compute(*wide)
    wanted = [each for each in wide if each is not None]
    found = iter(torch.autograd.grad(result, wanted, gradient.float(), create_graph=recorded))
    return [None if each is None else next(found).to(each.dtype) for each in tensors]


def _copy_to_fp32(tensor: torch.Tensor, recorded: bool) -> torch.Tensor:
    """A tensor of its own, also if another argument is the same tensor: each has its own gradient."""
    return tensor.to(torch.float32, copy=True) if recorded else tensor.detach().float().requires_grad_()
