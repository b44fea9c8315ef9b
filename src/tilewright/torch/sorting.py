"""The operator `tilewright::sort_by_expert`."""

from __future__ import annotations

import torch

from tilewright.base.errors import TensorError
from tilewright.ops.moe_sorting import functions
from tilewright.torch.emulation import find_device


def sort_by_expert(
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    experts: int,
    unit: int,
    expert_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort pairs of tokens and experts by expert: entries, their weights, the expert of each block, and two totals.

    The arguments and results are those of `tilewright.sort_by_expert`. There is no gradient.
    """
    ids, weights, owners, totals = torch.ops.tilewright.sort_by_expert(
        topk_ids, topk_weights, expert_mask, experts, unit
    )
    return ids, weights, owners, totals


@torch.library.custom_op("tilewright::sort_by_expert", mutates_args=())
def _sort(
    topk_ids: torch.Tensor, topk_weights: torch.Tensor, expert_mask: torch.Tensor | None, experts: int, unit: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    device = find_device(topk_ids, "tilewright::sort_by_expert")
    return functions.sort_by_expert(topk_ids, topk_weights, experts, unit, expert_mask=expert_mask, device=device)


@_sort.register_fake
def _(
    topk_ids: torch.Tensor, topk_weights: torch.Tensor, expert_mask: torch.Tensor | None, experts: int, unit: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    if topk_ids.dim() != 2 or topk_ids.shape != topk_weights.shape:
        raise TensorError(
            f"sort_by_expert needs ids and weights of (tokens, k), got {tuple(topk_ids.shape)} and "
            f"{tuple(topk_weights.shape)}"
        )
    del expert_mask
    entries = topk_ids.shape[0] * topk_ids.shape[1] + experts * unit - topk_ids.shape[1]
    blocks = (entries + unit - 1) // unit
    return (
        topk_ids.new_empty((entries,)),
        topk_weights.new_empty((entries,)),
        topk_ids.new_empty((blocks,)),
        topk_ids.new_empty((2,)),
    )
