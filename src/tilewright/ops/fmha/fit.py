"""The problems that an attention kernel supports: the same checks as the built kernel's `supports`. Codes S6xx.

Each rule is one check of launch/*.hpp. Rules are translated to C (`ops.in_c`).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.resources import MAX_ACCESS_BYTES
from tilewright.ops.cost_model.arithmetic import maximum
from tilewright.ops.fmha import fit_sinks
from tilewright.ops.fmha.call import STRIDED, get_struct_strides
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_kind, query_tile_rows
from tilewright.ops.fmha.kinds import KINDS
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.rules.examples import GRADIENT_TILE, PREFILL, V3
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.fmha.tensors import count_pages, iterate_tensors
from tilewright.ops.kind import combine_rules
from tilewright.ops.rule import Rejection, Rule, collect_rules
from tilewright.ops.rule_forms import examples

# Fields that kernels and problems share, and that are compiled in.
_SAME = (
    "bias",
    "lse",
    "sink",
    "v_layout",
    "rotary",
    "bias_gradient",
    "deterministic",
    "static_quant",
    "store_randval",
    "kv_layout",
    "page_lookup",
)
# CK Tile has 32-bit strides, and 32-bit counts of the tokens that a work-group addresses.
_BEYOND = 2**31
_WIDEST = (_BEYOND - 1) // 4
_ATTENTION_KINDS = ("forward", "pagedkv", "splitkv", "batch_prefill")

_ALL = TileRules()
_UNPADDED = TileRules({"mode": "batch", "pad_q": False})
_UNPADDED_KEYS = TileRules({"family": ("forward", "appendkv"), "mode": "batch", "pad_k": False})
_ATTENTION = TileRules({"family": _ATTENTION_KINDS})
# Kernels that compute scores: products of queries and keys.
_SCORING = TileRules({"family": (*_ATTENTION_KINDS, "dq_dk_dv")})
_PAGED = TileRules({"family": (*_ATTENTION_KINDS, "dq_dk_dv", "appendkv")})
_SPLIT = TileRules({"family": (*_ATTENTION_KINDS, "combine")})
_APPEND = TileRules({"family": "appendkv"})
_GRADIENTS = TileRules({"family": ("dq_dk_dv", "convert_dq")})
_PREFILL = TileRules({"family": "batch_prefill"})
_GROUP_PREFILL: dict[str, Any] = {**PREFILL, "mode": "group", "page_size": 128}
_PREFILL_PROBLEM: dict[str, Any] = {
    **{"family": "batch_prefill", "mode": "group", "batch": 2, "heads": 4, "page_size": 128},
    **{"seqlen_q": 128, "total_q": 200, "total_k": 200},
}
_V3 = TileRules({"family": "forward", "pipeline": "v3"}, V3, "gfx950")


@examples(bad={"problem": {"dtype": "bf16"}})
@_ALL.rule("S601", "other-problem", "tilewright", ("family", "mode", "dtype"))
def check_family(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The family, mode and types of problem and kernel must be equal.

    Why: they are compiled in. A problem that takes several kernels is computed by a launch plan.
    Fix: choose a kernel with the problem's family, mode and types."""
    for name in ("family", "mode", "dtype"):
        mine, wanted = getattr(config, name), getattr(problem, name)
        if mine != wanted:
            return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name, wanted)
    return None


@examples(good={"lse": True, "problem": {"lse": True}}, bad={"problem": {"lse": True}})
@_ALL.rule("S602", "other-features", "supports", ("family", *_SAME))
def check_features(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Bias, LSE, sinks, the layout of the values and all other compiled-in features must match the problem.

    Why: a kernel has the code for them or not. Storing random numbers is a run-time argument of forward kernels with
    dropout, but is compiled into gradient kernels.
    Fix: use a kernel with the problem's features."""
    kind = find_kind(config)
    for name in _SAME:
        mine, wanted = getattr(config, name), getattr(problem, name)
        # Kinds without the field v_layout take values in rows only.
        if (kind.has_field(name) or name == "v_layout") and mine != wanted:
            return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name, wanted)
    return None


@examples(
    good={"pad_hdim_q": 8, "pad_hdim_v": 8, "problem": {"hdim_q": 72}},
    bad={"pad_hdim_q": 8, "pad_hdim_v": 8, "problem": {"hdim_q": 68}},
)
@_ALL.rule("S603", "head-size", "supports", ("family", "dtype", "block", "pad_hdim_q", "pad_hdim_v"))
def check_head_size(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The head sizes must equal those of the tiles, or be smaller where the kernel pads them.

    Why: a kernel without pads loads whole tiles. One that pads by 8 loads vectors of 8 elements, or of 16 for 8-bit
    types, which must be completely inside or outside the head.
    Fix: use a kernel with larger tiles, or with suitable pads."""
    for name in ("hdim_q", "hdim_v"):
        tile, pad, size = getattr(config, name), getattr(config, f"pad_{name}"), getattr(problem, name)
        if not tile:
            continue
        if size > tile:
            return Rejection(f"{name} is {size}, but the kernel's tiles hold {tile}", "block")
        if size < tile and not pad:
            return Rejection(f"{name} is {size}, but the kernel has no pads and supports only {tile}", f"pad_{name}")
        step = 16 if pad == 8 and find_dtype(DTYPES[config.dtype].qkv).bits == 8 else pad
        if step and size % step:
            return Rejection(f"{name} is {size}, which is not a multiple of the kernel's pad of {step}", f"pad_{name}")
    return None


@examples(good={"problem": {"seqlen_q": 100}}, bad={"pad_q": False, "problem": {"seqlen_q": 100, "seqlen_k": 128}})
@_UNPADDED.rule("S604", "queries-not-tiled", "supports", ("family", "block", "merge_heads", "rotary"))
def check_query_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Without pad_q the number of queries must be a multiple of the tile.

    Why: such a kernel does not check where the queries end. With merged heads, the rows of all heads count as queries.
    appendkv does not touch the queries unless it rotates them.
    Fix: use a kernel with pad_q."""
    kind = find_kind(config)
    if not kind.has_field("pad_q") or (kind.appends and config.rotary == "none"):
        return None
    rows, step = count_query_rows(config, problem), query_tile_rows(config)
    if rows % step == 0:
        return None
    return Rejection(f"{rows} rows of queries are not a multiple of {step}, and the kernel has no pad_q", "pad_q", True)


def count_query_rows(config: Config, problem: Problem) -> int:
    """Return the query rows of one sequence in one of the kernel's heads."""
    return problem.seqlen_q * (problem.heads // problem.kv_heads if config.merge_heads else 1)


@examples(good={"problem": {"seqlen_k": 100}}, bad={"pad_k": False, "problem": {"seqlen_k": 100}})
@_UNPADDED_KEYS.tile_rule("S605", "keys-not-tiled", "supports")
def check_key_count(config: Config, tile: Tile, problem: Problem, arch: Arch) -> Rejection | None:
    """Without pad_k the number of keys must be a multiple of the tile.

    Why: such a kernel does not check where the keys end. Kernels over caches read the sequence lengths on the device.
    Fix: use a kernel with pad_k."""
    keys = problem.seqlen_new if find_kind(config).appends else problem.seqlen_k
    if keys % tile.n0 == 0:
        return None
    return Rejection(f"{keys} keys are not a multiple of {tile.n0}, and the kernel has no pad_k", "pad_k", True)


@examples(good={"mask_form": "any", "problem": {"mask": "top_left"}}, bad={"problem": {"mask": "top_left"}})
@_SCORING.rule("S606", "other-mask", "supports", ("mask_form",))
def check_mask(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The kernel's mask form must support the problem's mask.

    Why: `any` takes the window at run time. `causal` has no limit on the left, and `window` has both limits.
    Fix: use a kernel with mask_form any, or with the form of the problem's mask."""
    if (problem.mask == "none") != (config.mask_form == "none"):
        nearest = "none" if problem.mask == "none" else "any"
        message = f"mask is {problem.mask}, but the kernel has mask_form {config.mask_form}"
        return Rejection(message, "mask_form", nearest)
    left = problem.window_left
    if config.mask_form == "causal" and left >= 0:
        return Rejection(f"window_left is {left}, but a causal kernel has no limit on the left", "mask_form", "any")
    widest = maximum(left, problem.window_right)
    if widest > _WIDEST:
        return Rejection(f"the window has {widest} keys, the maximum is {_WIDEST}", "mask_form")
    return None


@examples(good={"soft_cap": True, "problem": {"logits_cap": 30.0}}, bad={"problem": {"logits_cap": 30.0}})
@_SCORING.rule("S607", "other-cap", "supports", ("soft_cap",))
def check_soft_cap(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A problem with logits_cap needs a kernel with soft_cap, and one without needs a kernel without.

    Why: the tanh is compiled in. CK Tile has no gradient for it.
    Fix: use a kernel whose soft_cap matches the problem."""
    if config.soft_cap == (problem.logits_cap > 0):
        return None
    return Rejection(f"logits_cap is {problem.logits_cap:g}, but the kernel has soft_cap {config.soft_cap}", "soft_cap")


@examples(good={"dropout": True, "problem": {"p_drop": 0.1}}, bad={"problem": {"p_drop": 0.1}})
@_SCORING.rule("S608", "other-dropout", "supports", when={"dropout": False})
def check_dropout(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Dropout and stored random numbers need a kernel with dropout.

    Why: the random number generator is compiled in. A kernel with dropout also supports p_drop = 0.
    Fix: use a kernel with dropout."""
    if not problem.p_drop and not problem.store_randval:
        return None
    return Rejection(f"p_drop is {problem.p_drop:g}, but the kernel was built without dropout", "dropout", True)


@examples(bad={"problem": {"page_size": 64}})
@_PAGED.tile_rule("S609", "other-pages", "supports", ("paged", "page_size"))
def check_page_size(config: Config, tile: Tile, problem: Problem, arch: Arch) -> Rejection | None:
    """Pages need a kernel with a page table, and a page size that suits its tiles.

    Why: a kernel without a page table would treat the pages as one long sequence. One with a table looks up a page
    once per key tile; batch_prefill is compiled for one page size. appendkv writes a tile to at most two pages.
    Fix: use a kernel whose paged matches the problem, or one with another n0."""
    kind, size = find_kind(config), problem.page_size
    if config.paged != problem.paged:
        return Rejection(f"page_size is {size}, but the kernel has paged {config.paged}", "paged", problem.paged)
    if not config.paged:
        return None
    if kind.lists_pages:
        fault = f"but the kernel supports only pages of {config.page_size}" if size != config.page_size else ""
    elif kind.appends:
        fault = f"fewer than the tile's {tile.n0}" if size < tile.n0 else ""
    else:
        fault = f"which is not a multiple of the tile's {tile.n0}" if size % tile.n0 else ""
    return Rejection(f"a page has {size} tokens, {fault}", "block") if fault else None


@examples(bad={"problem": {"num_splits": 2}})
@_SPLIT.rule("S610", "other-splits", "supports", ("mode", "uneven_splits", "log_max_splits"))
def check_split_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Only splitkv and combine support splits, and only the number that they were built for.

    Why: the lengths of parts are known only on the device, so a part may end inside a tile, which a kernel without
    uneven_splits does not check. combine keeps the LSE of all parts of a query in one tile.
    Fix: use a kernel with uneven_splits or a larger log_max_splits; use splitkv and combine for a forward problem."""
    kind, count, most = find_kind(config), problem.num_splits, 2**config.log_max_splits
    splits, merges = kind.has_field("uneven_splits"), kind.has_field("log_max_splits")
    if not splits and not merges:
        message = f"num_splits is {count}, but {kind.name} does not split the keys"
        return Rejection(message, "family", "splitkv") if count else None
    if count < 1:
        return Rejection(f"num_splits is {count}, must be at least 1", "family")
    if splits and count > 1 and not config.uneven_splits and config.mode != "group":
        message = f"{count} parts may end inside a tile, but the kernel has no uneven_splits"
        return Rejection(message, "uneven_splits", True)
    if merges and count > most:
        return Rejection(f"{count} parts, but the kernel merges at most {most}", "log_max_splits")
    return None


@examples(bad={"max_seqlen_q": 64})
@_ALL.rule("S611", "too-many-queries", "supports", ("max_seqlen_q",))
def check_max_queries(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A kernel with max_seqlen_q does not support longer sequences.

    Why: it has no loop over query tiles.
    Fix: use a kernel without max_seqlen_q."""
    length, most = problem.seqlen_q, config.max_seqlen_q
    if not most or length <= most:
        return None
    return Rejection(f"seqlen_q is {length}, the kernel's maximum is {most}", "max_seqlen_q", 0)


@examples(bad={"problem": {"min_seqlen_q": 2}})
@_ATTENTION.rule("S612", "no-skipping", "supports", when={"skip_min_seqlen_q": False})
def check_skipping(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Skipping short sequences needs a kernel with skip_min_seqlen_q.

    Why: the check is compiled in.
    Fix: use a kernel with skip_min_seqlen_q."""
    if not problem.min_seqlen_q:
        return None
    return Rejection(f"min_seqlen_q is {problem.min_seqlen_q}, but the kernel skips nothing", "skip_min_seqlen_q", True)


@examples(
    bad={
        **{"family": "appendkv", "pipeline": "appendkv", "block": (64, 64, 128, 128), "rotary": "half"},
        "problem": {"family": "appendkv", "rotary": "half", "rotary_dim": 24, "seqlen_new": 64},
    }
)
@_APPEND.rule("S613", "rotary-size", "supports", ("rotary", "dtype"))
def check_rotary_size(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The rotated size must be a multiple of a thread's vector, and appendkv needs at least one new token.

    Why: a thread rotates all elements that it holds or none. With rotary half, the elements of a thread must be in the
    same half.
    Fix: use another rotary_dim."""
    if problem.seqlen_new < 1:
        return Rejection("seqlen_new is 0, must be at least 1", "family")
    if config.rotary == "none":
        return None
    held = MAX_ACCESS_BYTES // find_dtype(DTYPES[config.dtype].qkv).storage_bytes
    step, size = 2 * held if config.rotary == "half" else held, problem.rotary_size
    if size % step == 0 and size <= problem.hdim_q:
        return None
    return Rejection(f"the rotated size is {size}, must be a multiple of {step} and at most {problem.hdim_q}", "rotary")


@examples(bad={"problem": {"heads": 2**24}})
@_ALL.rule("S614", "too-large", "supports", ("family", "merge_heads"))
def check_sizes(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """All strides must be below 2³¹ elements.

    Why: they are 32-bit integers in CK Tile's kernels.
    Fix: split the batch."""
    beyond = _find_large_stride(problem)
    if beyond:
        return Rejection(f"a stride of {beyond[0]} is {beyond[1]:,}, must be below {_BEYOND:,}", "family")
    rows = count_query_rows(config, problem) * maximum(problem.num_splits, 1)
    if find_kind(config).lists_pages:
        rows = maximum(rows, problem.batch * problem.seqlen_k)
    return Rejection(f"{rows:,} rows, must be below {_BEYOND:,}", "family") if rows >= _BEYOND - 1024 else None


@functools.lru_cache(maxsize=256)
def _find_large_stride(problem: Problem) -> tuple[str, int] | None:
    """Return the first tensor with a too large stride, and that stride; cached, since every kernel needs it."""
    for tensor in iterate_tensors(problem, STRIDED):
        largest = maximum(*get_struct_strides(problem, tensor))
        if largest >= _BEYOND:
            return tensor.name, largest
    return None


@examples(bad={**GRADIENT_TILE, "problem": {"family": "dq_dk_dv", "dq_parts": 2}})
@_GRADIENTS.tile_rule("S615", "other-parts", "supports", ("pipeline", "deterministic"))
def check_dq_parts(config: Config, tile: Tile, problem: Problem, arch: Arch) -> Rejection | None:
    """The problem must have as many partial sums of dq as the kernel.

    Why: a deterministic kernel has one for each key tile, and others have one, to which they add. A pipeline that goes
    over the keys for each query tile needs only one.
    Fix: set dq_parts to the number in the message, or use kernels with another n0."""
    parted = config.deterministic and config.pipeline != "trload_qr_qtr_dor"
    wanted = -(-problem.seqlen_k // tile.n0) if parted else 1
    if problem.dq_parts == wanted:
        return None
    return Rejection(f"the problem has {problem.dq_parts} partial sums of dq, the kernel {wanted}", "block")


@examples(good={"problem": {"seqlen_q": 256, "seqlen_k": 128}}, bad={"problem": {"seqlen_q": 256, "seqlen_k": 64}})
@_V3.tile_rule("S616", "two-tiles-of-keys", "supports")
def check_key_tile_count(config: Config, tile: Tile, problem: Problem, arch: Arch) -> Rejection | None:
    """v3 supports one key tile, or at least three.

    Why: with two it reads the second one from LDS before the copy has finished (the wait is inside
    `if(2 < num_total_loop)` in ck_tile/ops/fmha/pipeline/block_fmha_fwd_v3_pipeline.hpp).
    Fix: use a kernel with another pipeline."""
    if not tile.n0 < problem.seqlen_k <= 2 * tile.n0:
        return None
    return Rejection(f"{problem.seqlen_k} keys take exactly two tiles of {tile.n0}", "pipeline", "qr_async")


@examples(
    good={**_GROUP_PREFILL, "problem": {**_PREFILL_PROBLEM, "hdim_q": 128, "kv_heads": 4}},
    bad={**_GROUP_PREFILL, "problem": {**_PREFILL_PROBLEM, "hdim_q": 64, "kv_heads": 4}},
)
@_PREFILL.tile_rule("S617", "small-heads-in-pages", "supports", ("page_size",))
def check_heads_in_pages(config: Config, tile: Tile, problem: Problem, arch: Arch) -> Rejection | None:
    """In pages with at least n0 tokens, heads must be as large as the tiles, unless there is one key head.

    Why: loads of elements behind a head are bounded by the size of a page after the start of the head, which is behind
    the end of the cache in the last page (set_bottom_tensor_view_buffer_size(page_stride_k) in
    ck_tile/ops/fmha/pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async.hpp).
    Fix: use a kernel whose tiles have the problem's head sizes, or smaller pages."""
    if config.page_size < tile.n0 or problem.kv_heads == 1:
        return None
    if problem.hdim_q == tile.hdim_q and problem.hdim_v == tile.n1:
        return None
    sizes = f"heads have {problem.hdim_q} and {problem.hdim_v} elements"
    return Rejection(f"{sizes}, but pages of {config.page_size} tokens need those of the tiles", "block")


@examples(
    good={**_GROUP_PREFILL, "page_size": 16, "problem": {**_PREFILL_PROBLEM, "page_size": 16, "pages": 2**16}},
    bad={**_GROUP_PREFILL, "page_size": 16, "problem": {**_PREFILL_PROBLEM, "page_size": 16, "pages": 2**18}},
)
@_PREFILL.tile_rule("S618", "cache-too-large", "supports", ("page_size", "dtype"))
def check_cache_size(config: Config, tile: Tile, problem: Problem, arch: Arch) -> Rejection | None:
    """With pages of fewer than n0 tokens, keys and values must each have less than 2 GiB.

    Why: where a tile has several pages, an address is a 32-bit offset from the first page (kNeedFullOffset in
    ck_tile/ops/fmha/pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async.hpp).
    Fix: use pages with at least n0 tokens."""
    if config.page_size >= tile.n0:
        return None
    widest = maximum(problem.hdim_q, problem.hdim_v)
    elements = count_pages(problem) * maximum(problem.page_size, 1) * problem.kv_heads * widest
    most = (_BEYOND - 1) // find_dtype(DTYPES[config.dtype].qkv).storage_bytes
    return (
        Rejection(f"the cache has {elements:,} elements, must have at most {most:,}", "page_size")
        if elements > most
        else None
    )


FIT_RULES: tuple[Rule, ...] = combine_rules(
    collect_rules(sys.modules[__name__], fit_sinks), {kind.name: kind.fit_rules for kind in KINDS}, "family"
)
