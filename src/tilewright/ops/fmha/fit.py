"""The problems that an attention kernel supports: the same checks as the built kernel's `supports`. Codes S6xx.

Each rule is one check of launch/*.hpp.
"""

from __future__ import annotations

import functools
import sys

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha import fit_caches
from tilewright.ops.fmha.call import STRIDED, get_struct_strides
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import (
    APPENDKV,
    BATCH_PREFILL,
    CONVERT_DQ,
    DQ_DK_DV,
    DTYPES,
    FORWARD,
    SCORING,
    USED,
)
from tilewright.ops.fmha.kind import query_tile_rows
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tensors import list_tensors
from tilewright.ops.rule import Rejection, Rule, collect_rules, rule

# Fields that kernels and problems share, and that are compiled in.
_SAME = ("bias", "lse", "sink", "v_layout", "rotary", "bias_gradient", "deterministic", "static_quant")
# CK Tile has 32-bit strides, and 32-bit counts of the tokens that a work-group addresses.
_BEYOND = 2**31
# Families that check where keys end if they have pads.
_KEYS_PADDED = (FORWARD, APPENDKV)


@rule(
    "S601",
    "other-problem",
    reads=("family", "mode", "dtype"),
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype": "bf16"}},
)
def check_family(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The family, mode and types of problem and kernel must be equal.

    Why: they are compiled in. A problem that takes several kernels is computed by a launch plan.

    Fix: choose a kernel with the problem's family, mode and types.
    """
    for name in ("family", "mode", "dtype"):
        mine, wanted = getattr(config, name), getattr(problem, name)
        if mine != wanted:
            return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name, wanted)
    return None


@rule(
    "S602",
    "other-features",
    reads=("family", *_SAME, "store_randval"),
    enforced_by="supports",
    good={"lse": True, "problem": {"lse": True}},
    bad={"problem": {"lse": True}},
)
def check_features(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Bias, LSE, sinks, the layout of the values and all other compiled-in features must match the problem.

    Why: a kernel has the code for them or not. Storing random numbers is a run-time argument of forward kernels with
    dropout, but is compiled into gradient kernels.

    Fix: use a kernel with the problem's features.
    """
    for name in (*_SAME, "store_randval"):
        mine, wanted = getattr(config, name), getattr(problem, name)
        if name in USED[config.family] and mine != wanted:
            return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name, wanted)
    return None


@rule(
    "S603",
    "head-size",
    reads=("family", "dtype", "block", "pad_hdim_q", "pad_hdim_v"),
    enforced_by="supports",
    good={"pad_hdim_q": 8, "pad_hdim_v": 8, "problem": {"hdim_q": 72}},
    bad={"pad_hdim_q": 8, "pad_hdim_v": 8, "problem": {"hdim_q": 68}},
)
def check_head_size(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The head sizes must equal those of the tiles, or be smaller where the kernel pads them.

    Why: a kernel without pads loads whole tiles. One that pads by 8 loads vectors of 8 elements, or of 16 for 8-bit
    types, which must be completely inside or outside the head.

    Fix: use a kernel with larger tiles, or with suitable pads.
    """
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


@rule(
    "S604",
    "queries-not-tiled",
    reads=("family", "mode", "block", "pad_q", "merge_heads", "rotary"),
    enforced_by="supports",
    good={"problem": {"seqlen_q": 100}},
    bad={"pad_q": False, "problem": {"seqlen_q": 100, "seqlen_k": 128}},
)
def check_query_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Without pad_q the number of queries must be a multiple of the tile.

    Why: such a kernel does not check where the queries end. With merged heads, the rows of all heads count as queries.
    appendkv does not touch the queries unless it rotates them.

    Fix: use a kernel with pad_q.
    """
    if "pad_q" not in USED[config.family] or config.pad_q or config.mode == "group":
        return None
    if config.family == APPENDKV and config.rotary == "none":
        return None
    rows, step = count_query_rows(config, problem), query_tile_rows(config)
    if rows % step == 0:
        return None
    return Rejection(f"{rows} rows of queries are not a multiple of {step}, and the kernel has no pad_q", "pad_q", True)


def count_query_rows(config: Config, problem: Problem) -> int:
    """Return the query rows of one sequence in one of the kernel's heads."""
    return problem.seqlen_q * (problem.heads // problem.kv_heads if config.merge_heads else 1)


@rule(
    "S605",
    "keys-not-tiled",
    reads=("family", "mode", "block", "pad_k"),
    enforced_by="supports",
    good={"problem": {"seqlen_k": 100}},
    bad={"pad_k": False, "problem": {"seqlen_k": 100}},
)
def check_key_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Without pad_k the number of keys must be a multiple of the tile.

    Why: such a kernel does not check where the keys end. Kernels over caches read the sequence lengths on the device.

    Fix: use a kernel with pad_k.
    """
    if config.family not in _KEYS_PADDED or config.pad_k or config.mode == "group":
        return None
    keys = problem.seqlen_new if config.family == APPENDKV else problem.seqlen_k
    columns = config.tile["n0"]
    if keys % columns == 0:
        return None
    return Rejection(f"{keys} keys are not a multiple of {columns}, and the kernel has no pad_k", "pad_k", True)


@rule(
    "S606",
    "other-mask",
    reads=("family", "mask_form"),
    enforced_by="supports",
    good={"mask_form": "any", "problem": {"mask": "top_left"}},
    bad={"problem": {"mask": "top_left"}},
)
def check_mask(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The kernel's mask form must support the problem's mask.

    Why: `any` takes the window at run time. `causal` has no limit on the left, and `window` has both limits.

    Fix: use a kernel with mask_form any, or with the form of the problem's mask.
    """
    if "mask_form" not in USED[config.family]:
        return None
    if (problem.mask == "none") != (config.mask_form == "none"):
        nearest = "none" if problem.mask == "none" else "any"
        return Rejection(
            f"mask is {problem.mask}, but the kernel has mask_form {config.mask_form}", "mask_form", nearest
        )
    if config.mask_form == "causal" and problem.window_left >= 0:
        left = problem.window_left
        return Rejection(f"window_left is {left}, but a causal kernel has no limit on the left", "mask_form", "any")
    widest = max(problem.window_left, problem.window_right)
    if widest > _WIDEST:
        return Rejection(f"the window has {widest} keys, the maximum is {_WIDEST}", "mask_form")
    return None


_WIDEST = (_BEYOND - 1) // 4


@rule(
    "S607",
    "other-cap",
    reads=("family", "soft_cap"),
    enforced_by="supports",
    good={"soft_cap": True, "problem": {"logits_cap": 30.0}},
    bad={"problem": {"logits_cap": 30.0}},
)
def check_soft_cap(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A problem with logits_cap needs a kernel with soft_cap, and one without needs a kernel without.

    Why: the tanh is compiled in. CK Tile has no gradient for it.

    Fix: use a kernel whose soft_cap matches the problem.
    """
    if config.family not in SCORING or config.soft_cap == (problem.logits_cap > 0):
        return None
    return Rejection(f"logits_cap is {problem.logits_cap:g}, but the kernel has soft_cap {config.soft_cap}", "soft_cap")


@rule(
    "S608",
    "other-dropout",
    reads=("family", "dropout"),
    enforced_by="supports",
    good={"dropout": True, "problem": {"p_drop": 0.1}},
    bad={"problem": {"p_drop": 0.1}},
)
def check_dropout(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Dropout and stored random numbers need a kernel with dropout.

    Why: the random number generator is compiled in. A kernel with dropout also supports p_drop = 0.

    Fix: use a kernel with dropout.
    """
    if config.family not in SCORING or config.dropout or not (problem.p_drop or problem.store_randval):
        return None
    return Rejection(f"p_drop is {problem.p_drop:g}, but the kernel was built without dropout", "dropout", True)


@rule(
    "S611",
    "too-many-queries",
    reads=("max_seqlen_q",),
    enforced_by="supports",
    good={},
    bad={"max_seqlen_q": 64},
)
def check_max_queries(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A kernel with max_seqlen_q does not support longer sequences.

    Why: it has no loop over query tiles.

    Fix: use a kernel without max_seqlen_q.
    """
    if not config.max_seqlen_q or problem.seqlen_q <= config.max_seqlen_q:
        return None
    return Rejection(
        f"seqlen_q is {problem.seqlen_q}, the kernel's maximum is {config.max_seqlen_q}", "max_seqlen_q", 0
    )


@rule(
    "S612",
    "no-skipping",
    reads=("family", "skip_min_seqlen_q"),
    enforced_by="supports",
    good={},
    bad={"problem": {"min_seqlen_q": 2}},
)
def check_skipping(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Skipping short sequences needs a kernel with skip_min_seqlen_q.

    Why: the check is compiled in.

    Fix: use a kernel with skip_min_seqlen_q.
    """
    if config.skip_min_seqlen_q or not problem.min_seqlen_q or config.family not in SCORING[:-1]:
        return None
    return Rejection(f"min_seqlen_q is {problem.min_seqlen_q}, but the kernel skips nothing", "skip_min_seqlen_q", True)


@rule(
    "S614",
    "too-large",
    reads=("family", "merge_heads"),
    enforced_by="supports",
    good={},
    bad={"problem": {"heads": 2**24}},
)
def check_sizes(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """All strides must be below 2³¹ elements.

    Why: they are 32-bit integers in CK Tile's kernels.

    Fix: split the batch.
    """
    beyond = _find_large_stride(problem)
    if beyond:
        return Rejection(f"a stride of {beyond[0]} is {beyond[1]:,}, must be below {_BEYOND:,}", "family")
    rows = count_query_rows(config, problem) * max(problem.num_splits, 1)
    tokens = problem.batch * problem.seqlen_k if config.family == BATCH_PREFILL else 0
    if max(rows, tokens) >= _BEYOND - 1024:
        return Rejection(f"{max(rows, tokens):,} rows, must be below {_BEYOND:,}", "family")
    return None


@functools.lru_cache(maxsize=256)
def _find_large_stride(problem: Problem) -> tuple[str, int] | None:
    """Return the first tensor with a too large stride, and that stride; cached, since every kernel needs it."""
    for tensor in list_tensors(problem):
        largest = max(get_struct_strides(problem, tensor)) if tensor.name in STRIDED else 0
        if largest >= _BEYOND:
            return tensor.name, largest
    return None


@rule(
    "S615",
    "other-parts",
    reads=("family", "pipeline", "block", "deterministic"),
    enforced_by="supports",
    good={},
    bad={
        **{"family": DQ_DK_DV, "pipeline": "kr_ktr_vr", "block": (32, 128, 64, 32, 64, 32, 32, 64, 64)},
        **{"waves": (1, 4, 1, 4, 1, 1, 1, 4, 1), "mma": (16, 16, 32, 16, 16, 16, 16, 16, 32)},
        "problem": {"family": DQ_DK_DV, "dq_parts": 2},
    },
)
def check_dq_parts(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The problem must have as many partial sums of dq as the kernel.

    Why: a deterministic kernel has one for each key tile, and others have one, to which they add. A pipeline that goes
    over the keys for each query tile needs only one.

    Fix: set dq_parts to the number in the message, or use kernels with another n0.
    """
    if config.family not in (DQ_DK_DV, CONVERT_DQ):
        return None
    parted = config.deterministic and config.pipeline != "trload_qr_qtr_dor"
    wanted = -(-problem.seqlen_k // config.tile["n0"]) if parted else 1
    if problem.dq_parts == wanted:
        return None
    return Rejection(f"the problem has {problem.dq_parts} partial sums of dq, the kernel {wanted}", "block")


FIT_RULES: tuple[Rule, ...] = collect_rules(sys.modules[__name__], fit_caches)
