"""`fused_moe`: the experts of a mixture-of-experts layer, with the arguments of aiter's function of this name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.base.errors import InvalidValueError, TensorError, choose
from tilewright.torch.grouped_matmul import grouped_mm
from tilewright.torch.sorting import sort_by_expert

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
}
_TOKEN_BITS = 24  # of an entry of `sort_by_expert`; the place among a token's experts is above
# Arguments of aiter's function with the values that they may have here: those of layers without quantisation.
_FIXED: dict[str, tuple[Any, ...]] = {
    "quant_type": (None, "no"),
    "doweight_stage1": (False,),
    "hidden_pad": (0,),
    "intermediate_pad": (0,),
    **dict.fromkeys(("w1_scale", "w2_scale", "a1_scale", "a2_scale", "num_local_tokens", "bias1", "bias2"), (None,)),
}


def fused_moe(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    expert_mask: torch.Tensor | None = None,
    activation: object = "silu",
    quant_type: object = None,
    doweight_stage1: bool = False,
    w1_scale: torch.Tensor | None = None,
    w2_scale: torch.Tensor | None = None,
    a1_scale: torch.Tensor | None = None,
    a2_scale: torch.Tensor | None = None,
    block_size_M: int | None = None,  # noqa: N803  (aiter's name)
    num_local_tokens: torch.Tensor | None = None,
    moe_sorting_dispatch_policy: int = 0,
    dtype: torch.dtype | None = None,
    hidden_pad: int = 0,
    intermediate_pad: int = 0,
    bias1: torch.Tensor | None = None,
    bias2: torch.Tensor | None = None,
) -> torch.Tensor:
    """The weighted sum of each token's experts, `w2 · (activation(gate) · up)` with gate and up = `w1 · token`.

    `hidden_states` (tokens, hidden) is fp16 or bf16. `w1` (experts, 2 · inner, hidden) has the rows of gate, then those
    of up; `w2` is (experts, hidden, inner); neither is reordered. `topk_ids` (tokens, k) of int32 has k different
    experts of each token, and `topk_weight` their weights. `activation` is "silu" or "gelu", or aiter's value of that
    name. With `expert_mask` (all experts) of int32, `w1` and `w2` have only the experts whose mask is 1: the others
    contribute nothing. `dtype` is the type of the result; by default that of `hidden_states`.

    Tokens are sorted and multiplied by CK Tile's kernels; torch gathers rows, computes the activation, and adds up the
    weighted results in fp32, in the order of a token's experts, so that results do not change from run to run. The host
    does not wait for the device. `hidden_states`, `w1`, `w2` and `topk_weight` have gradients.

    `block_size_M` and `moe_sorting_dispatch_policy` choose among aiter's kernels, and are ignored. The other arguments
    are those of quantised layers and of padded weights, which are not supported: only their defaults are accepted.
    """
    del block_size_M, moe_sorting_dispatch_policy
    given = {
        **{"quant_type": _read_name(quant_type), "doweight_stage1": doweight_stage1, "hidden_pad": hidden_pad},
        **{"w1_scale": w1_scale, "w2_scale": w2_scale, "a1_scale": a1_scale, "a2_scale": a2_scale},
        **{"intermediate_pad": intermediate_pad, "num_local_tokens": num_local_tokens, "bias1": bias1, "bias2": bias2},
    }
    for name, known in _FIXED.items():
        if not any(given[name] is each or (isinstance(each, str | int) and given[name] == each) for each in known):
            raise InvalidValueError(f"fused_moe does not support {name}: leave it out")
    chosen = _ACTIVATIONS[choose("activation", str(_read_name(activation)), _ACTIVATIONS)]
    _check(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask)
    experts = w1.shape[0] if expert_mask is None else expert_mask.shape[0]
    tokens, k = topk_ids.shape
    result = dtype or hidden_states.dtype
    if 0 in (tokens, k):
        return hidden_states.new_zeros(hidden_states.shape, dtype=result)
    pairs = tokens * k
    weights = topk_weight.float()
    # Blocks of one entry: the rows of experts follow each other without gaps, as grouped products have them.
    entries, _, owners, totals = sort_by_expert(topk_ids, weights.detach(), experts, 1, expert_mask)
    entries, owners = entries[:pairs], owners[:pairs]
    place = (entries & ((1 << _TOKEN_BITS) - 1)) * k + (entries >> _TOKEN_BITS)
    if expert_mask is not None:  # entries behind the last one are not written: they belong to no expert
        is_entry = torch.arange(pairs, device=entries.device) < totals[0]
        place = torch.where(is_entry, place, pairs)
        owners = torch.where(is_entry, owners, w1.shape[0])
    ends = torch.searchsorted(owners, torch.arange(w1.shape[0], device=owners.device, dtype=owners.dtype), right=True)
    offs = ends.to(torch.int32)
    rows = hidden_states[torch.clamp(place // k, max=tokens - 1)]
    gate, up = grouped_mm(rows, w1.transpose(-2, -1), offs).float().chunk(2, dim=-1)
    inner = (chosen(gate) * up).to(hidden_states.dtype)
    down = grouped_mm(inner, w2.transpose(-2, -1), offs).float()
    # One row more, for those that belong to no expert.
    placed = down.new_zeros((pairs + 1, down.shape[-1])).index_copy(0, place.long(), down)
    return (placed[:pairs].reshape(tokens, k, -1) * weights[..., None]).sum(1).to(result)


def _read_name(value: object) -> object:
    """The name of an aiter constant, such as `ActivationType.Silu`, in lower case; words as they are."""
    name = getattr(value, "name", value)
    return name.lower() if isinstance(name, str) else name


def _check(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    expert_mask: torch.Tensor | None,
) -> None:
    shapes = {"hidden_states": hidden_states, "w1": w1, "w2": w2, "topk_weight": topk_weight, "topk_ids": topk_ids}
    found = ", ".join(f"{name} {tuple(each.shape)}" for name, each in shapes.items())
    dims = [each.dim() for each in shapes.values()]
    if dims != [2, 3, 3, 2, 2]:
        raise TensorError(
            "fused_moe needs hidden_states (tokens, hidden), w1 (experts, 2 · inner, hidden), w2 (experts, hidden, "
            f"inner), topk_weight and topk_ids (tokens, k), got {found}"
        )
    inner, hidden, tokens = w2.shape[2], hidden_states.shape[1], hidden_states.shape[0]
    fits = w1.shape == (w2.shape[0], 2 * inner, hidden) and w2.shape[1] == hidden
    if not fits or topk_ids.shape != topk_weight.shape or topk_ids.shape[0] != tokens:
        raise TensorError(f"fused_moe got sizes that do not match: {found}")
    if topk_ids.dtype != torch.int32 or (expert_mask is not None and expert_mask.dtype != torch.int32):
        raise TensorError("fused_moe needs topk_ids and expert_mask of int32: convert them with .int()")
