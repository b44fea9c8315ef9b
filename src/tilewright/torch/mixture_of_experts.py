"""`fused_moe`: the experts of a mixture-of-experts layer, with the arguments of aiter's function of this name."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tilewright.base.errors import InvalidValueError, TensorError, choose
from tilewright.torch.grouped_matmul import grouped_mm, scaled_grouped_mm
from tilewright.torch.quantization import TYPES, quantize_rows
from tilewright.torch.sorting import sort_by_expert
from tilewright.torch.unsupported import reject_unsupported

# Of gate and up; the last one is clamped, with a limit and a factor of the sigmoid's argument.
_ACTIVATIONS = ("silu", "gelu", "swiglu")
# Whether products have scales, by aiter's names of kinds of quantisation.
_QUANTS = {"none": False, "no": False, "per_token": True}
_TOKEN_BITS = 24  # of an entry of `sort_by_expert`; the place among a token's experts is above
# Arguments of aiter's function of which only the default is supported, if that is not None.
_DEFAULTS = {"doweight_stage1": False, "hidden_pad": 0, "intermediate_pad": 0, "splitk": 0}


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
    splitk: int = 0,
    *,
    swiglu_alpha: float = 1.702,
    swiglu_limit: float = 7.0,
) -> torch.Tensor:
    """The weighted sum of each token's experts, `w2 · (activation(gate) · up)` with gate and up = `w1 · token`.

    `hidden_states` (tokens, hidden) is fp16 or bf16. `w1` (experts, 2 · inner, hidden) has the rows of gate, then those
    of up; `w2` is (experts, hidden, inner); neither is reordered. `topk_ids` (tokens, k) of int32 has k experts of each
    token, and `topk_weight` their weights. Experts that do not exist, such as -1, contribute nothing, whatever their
    weights; the weights of an expert that a token has several times are added up. `activation` is "silu", "gelu" or
    "swiglu", or aiter's value of that name. "swiglu" is gpt-oss's, `gate · sigmoid(alpha · gate) · (up + 1)`, with gate
    clamped to at most `swiglu_limit` and up to ± `swiglu_limit`. The defaults are gpt-oss's; aiter's function has no
    such arguments.

    With `expert_mask` (all experts) of int32, `w1` and `w2` have only the experts whose mask is 1: the others
    contribute nothing. `dtype` is the type of the result; by default that of `hidden_states`.

    Tokens are sorted and multiplied by CK Tile's kernels; torch gathers rows, computes the activation, and adds up the
    weighted results in fp32, in the order of a token's experts, so that results do not change from run to run. The host
    does not wait for the device. `hidden_states`, `w1`, `w2` and `topk_weight` have gradients.

    With `quant_type` "per_token", or aiter's `QuantType.per_Token`, `w1` and `w2` are fp8 (E4M3) in the encoding of the
    GPU, with a float32 scale for each output channel: `w1_scale` (experts, 2 · inner) and `w2_scale` (experts, hidden),
    or with a last dimension of 1. Tokens and activations are quantised with a scale for each row, by CK Tile's kernel
    for smooth quantisation. `hidden_states` may also be fp8, with `a1_scale` (tokens,) or (tokens, 1); then `dtype`
    must be given. `a2_scale` must be None. Only `topk_weight` has a gradient then.

    `block_size_M` and `moe_sorting_dispatch_policy` choose among aiter's kernels, and are ignored. The other arguments
    are those of biases, of padded weights and of `splitk`, which are not supported: only their defaults are accepted.
    """
    del block_size_M, moe_sorting_dispatch_policy
    given = {
        **{"doweight_stage1": doweight_stage1, "hidden_pad": hidden_pad, "a2_scale": a2_scale},
        **{"intermediate_pad": intermediate_pad, "num_local_tokens": num_local_tokens, "bias1": bias1, "bias2": bias2},
        "splitk": splitk,
    }
    reject_unsupported("fused_moe", given, _DEFAULTS)
    chosen = choose("activation", str(_read_name(activation)), _ACTIVATIONS)
    quantised = _QUANTS[choose("quant_type", str(_read_name(quant_type)).lower(), _QUANTS)]
    _check(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask)
    scales = _Scales.read(hidden_states, w1, w2, w1_scale, w2_scale, a1_scale, dtype) if quantised else _Scales()
    if not quantised and not (w1_scale is w2_scale is a1_scale is None):
        raise InvalidValueError("fused_moe has scales only with quant_type per_token: leave them out, or give it")
    experts = w1.shape[0] if expert_mask is None else expert_mask.shape[0]
    tokens, k = topk_ids.shape
    result = dtype or hidden_states.dtype
    if 0 in (tokens, k):
        return hidden_states.new_zeros(hidden_states.shape, dtype=result)
    pairs = tokens * k
    weights = _add_repeated(topk_weight.float(), topk_ids, experts)
    # Blocks of one entry: the rows of experts follow each other without gaps, as grouped products have them.
    entries, _, owners, totals = sort_by_expert(topk_ids, weights.detach(), experts, 1, expert_mask)
    entries, owners = entries[:pairs], owners[:pairs]
    place = (entries & ((1 << _TOKEN_BITS) - 1)) * k + (entries >> _TOKEN_BITS)
    # Entries behind the last one are not written, and those in the place of a repeated expert have no token.
    is_entry = torch.arange(pairs, device=entries.device) < totals[0]
    place = torch.where(is_entry, place.clamp(max=pairs), pairs)
    owners = torch.where(is_entry, owners, w1.shape[0])
    ends = torch.searchsorted(owners, torch.arange(w1.shape[0], device=owners.device, dtype=owners.dtype), right=True)
    offs = ends.to(torch.int32)
    source = torch.clamp(place // k, max=tokens - 1)
    half = result if hidden_states.dtype in TYPES else hidden_states.dtype
    gate, up = _multiply(hidden_states, scales.a1, source, w1, scales.w1, offs, half).float().chunk(2, dim=-1)
    inner = _activate(chosen, gate, up, swiglu_alpha, swiglu_limit).to(half)
    down = _multiply(inner, None, None, w2, scales.w2, offs, half).float()
    # One row more, for those that belong to no expert.
    placed = down.new_zeros((pairs + 1, down.shape[-1])).index_copy(0, place.long(), down)
    return (placed[:pairs].reshape(tokens, k, -1) * weights[..., None]).sum(1).to(result)


class _Scales(NamedTuple):
    """Scales of tokens, if they are quantised already, and those of channels as the products take them."""

    a1: torch.Tensor | None = None
    w1: torch.Tensor | None = None
    w2: torch.Tensor | None = None

    @classmethod
    def read(
        cls,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        w1_scale: torch.Tensor | None,
        w2_scale: torch.Tensor | None,
        a1_scale: torch.Tensor | None,
        dtype: torch.dtype | None,
    ) -> _Scales:
        """Check shapes and types of scales, and give them the shapes that products take."""
        if w1.dtype not in TYPES or w2.dtype != w1.dtype:
            raise TensorError(f"fused_moe with per_token needs w1 and w2 of fp8 (E4M3), got {w1.dtype} and {w2.dtype}")
        ready = hidden_states.dtype == w1.dtype
        if ready != (a1_scale is not None):
            raise TensorError("fused_moe needs a1_scale for hidden_states of the type of w1, and only for those")
        if ready and dtype not in (torch.float16, torch.bfloat16):
            raise TensorError("fused_moe needs dtype float16 or bfloat16 for quantised hidden_states")
        wanted = {"w1_scale": (w1_scale, w1.shape[:2]), "w2_scale": (w2_scale, w2.shape[:2])}
        if ready:
            wanted["a1_scale"] = (a1_scale, hidden_states.shape[:1])
        found = {}
        for name, (scale, shape) in wanted.items():
            if scale is None or scale.dtype != torch.float32 or tuple(scale.shape) not in (tuple(shape), (*shape, 1)):
                given = "None" if scale is None else f"{scale.dtype} of shape {tuple(scale.shape)}"
                raise TensorError(f"fused_moe needs {name} of float32 and shape {(*shape, 1)}, got {given}")
            found[name.removesuffix("_scale")] = scale.reshape(shape)
        return cls(**found)


def _multiply(
    rows: torch.Tensor,
    row_scales: torch.Tensor | None,
    source: torch.Tensor | None,
    weights: torch.Tensor,
    scales: torch.Tensor | None,
    offs: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The product of each row with the weights of its group; of the rows `source`, if they are given."""
    if scales is None:
        chosen = rows if source is None else rows[source]
        return grouped_mm(chosen, weights.transpose(-2, -1), offs)
    if row_scales is None:
        rows, row_scales = quantize_rows(rows.detach(), weights.dtype)
    if source is not None:  # torch's index does not have all 8-bit types
        rows, row_scales = rows.view(torch.uint8)[source].view(rows.dtype), row_scales[source]
    return scaled_grouped_mm(rows, weights.transpose(-2, -1), row_scales, scales, offs, out_dtype=dtype)


def _add_repeated(weights: torch.Tensor, ids: torch.Tensor, experts: int) -> torch.Tensor:
    """The sum of each expert's weights of a token: only one of its pairs is sorted. 0 for experts that do not exist."""
    same = ids[:, :, None] == ids[:, None, :]
    exists = (ids >= 0) & (ids < experts)
    return torch.where(same & exists[:, :, None], weights[:, None, :], 0.0).sum(-1)


def _activate(name: str, gate: torch.Tensor, up: torch.Tensor, alpha: float, limit: float) -> torch.Tensor:
    if name == "swiglu":
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)
    compute = torch.nn.functional.silu if name == "silu" else torch.nn.functional.gelu
    return compute(gate) * up


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
