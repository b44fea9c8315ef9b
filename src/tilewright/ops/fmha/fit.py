"""Which problems an attention kernel can compute: the same tests as the built kernel's `supports`. Codes S6xx.

The tests are those of launch/*.hpp, each rule one of them.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha import fit_caches, fit_forward
from tilewright.ops.fmha.abi import STRIDED
from tilewright.ops.fmha.families import (
    APPENDKV,
    BATCH_PREFILL,
    COMBINE,
    CONVERT_DQ,
    DOT_DO_O,
    DQ_DK_DV,
    FORWARD,
    SCORING,
)
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tensors import struct_strides, tensors
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.fmha.uses import USED
from tilewright.ops.rule import Fault, Rule, rule, rules_in

# Words that a kernel and a problem have in common, and that are compiled in.
_SAME = ("bias", "lse", "sink", "v_layout", "rotary", "bias_gradient", "deterministic", "static_quant")
# Strides, and numbers of tokens in a work-group's reach, are 32-bit numbers to CK Tile.
_BEYOND = 2**31
# Families that look where keys end if they have pads.
_KEYS_PADDED = (FORWARD, APPENDKV)


@rule(
    "S601",
    "other-problem",
    reads=("family", "mode", "dtype"),
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype": "bf16"}},
)
def other_problem(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Family, mode and types of problem and kernel must be the same.

    Why: they are compiled in. A problem of several kernels is computed by a plan of them.

    Fix: choose a kernel of the problem's family, mode and types.
    """
    for name in ("family", "mode", "dtype"):
        mine, wanted = getattr(config, name), getattr(problem, name)
        if mine != wanted:
            return Fault(f"the kernel has {name} {mine}, the problem {wanted}", name, wanted)
    return None


@rule(
    "S602",
    "other-features",
    reads=("family", *_SAME, "store_randval"),
    enforced_by="supports",
    good={"lse": True, "problem": {"lse": True}},
    bad={"problem": {"lse": True}},
)
def other_features(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Bias, LSE, sinks, layout of the values and what else is compiled in must be as the problem has them.

    Why: a kernel has the code for them or not. A forward kernel with dropout is told when it runs whether it stores
    its random numbers; one for gradients is not.

    Fix: a kernel with the problem's features.
    """
    for name in (*_SAME, "store_randval"):
        mine, wanted = getattr(config, name), getattr(problem, name)
        if name in USED[config.family] and mine != wanted:
            return Fault(f"the kernel has {name} {mine}, the problem {wanted}", name, wanted)
    return None


@rule(
    "S603",
    "head-size",
    reads=("family", "dtype", "block", "pad_hdim_q", "pad_hdim_v"),
    enforced_by="supports",
    good={"pad_hdim_q": 8, "pad_hdim_v": 8, "problem": {"hdim_q": 72}},
    bad={"pad_hdim_q": 8, "pad_hdim_v": 8, "problem": {"hdim_q": 68}},
)
def head_size(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """The head sizes must be those of the tiles, or less where the kernel pads them.

    Why: a kernel without pads loads whole tiles. One that pads by 8 loads vectors of 8 elements, or of 16 where they
    have 8 bits, of which either all or none are inside the head.

    Fix: a kernel with larger tiles, or with pads that fit.
    """
    for name in ("hdim_q", "hdim_v"):
        tile, pad, size = getattr(config, name), getattr(config, f"pad_{name}"), getattr(problem, name)
        if not tile:
            continue
        if size > tile:
            return Fault(f"{name} is {size}, the kernel's tiles hold {tile}", "block")
        if size < tile and not pad:
            return Fault(f"{name} is {size}, the kernel has no pads and takes {tile} only", f"pad_{name}")
        step = 16 if pad == 8 and dtype(DTYPES[config.dtype].qkv).bits == 8 else pad
        if step and size % step:
            return Fault(f"{name} is {size}, not a multiple of the {step} by which the kernel pads", f"pad_{name}")
    return None


@rule(
    "S604",
    "queries-not-tiled",
    reads=("family", "mode", "block", "pad_q", "merge_heads", "rotary"),
    enforced_by="supports",
    good={"problem": {"seqlen_q": 100}},
    bad={"pad_q": False, "problem": {"seqlen_q": 100, "seqlen_k": 128}},
)
def queries_not_tiled(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Without pad_q the number of queries must be a multiple of the tile.

    Why: such a kernel does not look where the queries end. Heads that are computed together follow each other as if
    they were more queries. appendkv leaves the queries alone unless it rotates them.

    Fix: a kernel with pad_q.
    """
    if "pad_q" not in USED[config.family] or config.pad_q or config.mode == "group":
        return None
    if config.family == APPENDKV and config.rotary == "none":
        return None
    rows, step = query_rows(config, problem), query_step(config)
    if rows % step == 0:
        return None
    return Fault(f"{rows} rows of queries are not a multiple of {step}, and the kernel has no pad_q", "pad_q", True)


def query_rows(config: Any, problem: Problem) -> int:
    """Rows that a kernel has in one head for the queries of one sequence."""
    return problem.seqlen_q * (problem.heads // problem.kv_heads if config.merge_heads else 1)


def query_step(config: Any) -> int:
    """Queries of one tile."""
    tile = config.tile
    if config.family == COMBINE:
        # A lane holds 4 elements of a row of n1 (fmha/pipeline/block_fmha_fwd_splitkv_combine_pipeline_default_policy).
        # Waves of 32 lanes have half as many rows; the kernel asks for those of 64 always.
        return int(64 // (tile["n1"] // 4))
    return int(tile["threads"] if config.family == DOT_DO_O else tile["m0"])


@rule(
    "S605",
    "keys-not-tiled",
    reads=("family", "mode", "block", "pad_k"),
    enforced_by="supports",
    good={"problem": {"seqlen_k": 100}},
    bad={"pad_k": False, "problem": {"seqlen_k": 100}},
)
def keys_not_tiled(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Without pad_k the number of keys must be a multiple of the tile.

    Why: such a kernel does not look where the keys end. Kernels over caches are told the lengths of sequences on the
    device.

    Fix: a kernel with pad_k.
    """
    if config.family not in _KEYS_PADDED or config.pad_k or config.mode == "group":
        return None
    keys = problem.seqlen_new if config.family == APPENDKV else problem.seqlen_k
    columns = config.tile["n0"]
    if keys % columns == 0:
        return None
    return Fault(f"{keys} keys are not a multiple of {columns}, and the kernel has no pad_k", "pad_k", True)


@rule(
    "S606",
    "other-mask",
    reads=("family", "mask_form"),
    enforced_by="supports",
    good={"mask_form": "any", "problem": {"mask": "top_left"}},
    bad={"problem": {"mask": "top_left"}},
)
def other_mask(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """The kernel's mask must be able to say the problem's.

    Why: `any` takes the window when it runs. `causal` knows no end on the left, and `window` has both ends.

    Fix: a kernel with mask_form any, or with the problem's.
    """
    if "mask_form" not in USED[config.family]:
        return None
    if (problem.mask == "none") != (config.mask_form == "none"):
        nearest = "none" if problem.mask == "none" else "any"
        return Fault(f"the problem has mask {problem.mask}, the kernel {config.mask_form}", "mask_form", nearest)
    if config.mask_form == "causal" and problem.window_left >= 0:
        left = problem.window_left
        return Fault(f"a causal kernel has no window on the left, the problem one of {left}", "mask_form", "any")
    widest = max(problem.window_left, problem.window_right)
    if widest > _WIDEST:
        return Fault(f"the window reaches {widest} keys, at most {_WIDEST} can be named", "mask_form")
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
def other_cap(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """A cap of the scores needs a kernel with soft_cap, which always caps.

    Why: the tanh is compiled in. CK Tile has no gradient of it.

    Fix: a kernel with soft_cap, or without.
    """
    if config.family not in SCORING or config.soft_cap == (problem.logits_cap > 0):
        return None
    return Fault(f"logits_cap is {problem.logits_cap:g}, the kernel has soft_cap {config.soft_cap}", "soft_cap")


@rule(
    "S608",
    "other-dropout",
    reads=("family", "dropout"),
    enforced_by="supports",
    good={"dropout": True, "problem": {"p_drop": 0.1}},
    bad={"problem": {"p_drop": 0.1}},
)
def other_dropout(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Dropout, and the random numbers that it stores, need a kernel with dropout.

    Why: the generator of random numbers is compiled in. With it p_drop may be 0.

    Fix: a kernel with dropout.
    """
    if config.family not in SCORING or config.dropout or not (problem.p_drop or problem.store_randval):
        return None
    return Fault(f"p_drop is {problem.p_drop:g}, the kernel was built without dropout", "dropout", True)


@rule(
    "S611",
    "too-many-queries",
    reads=("max_seqlen_q",),
    enforced_by="supports",
    good={},
    bad={"max_seqlen_q": 64},
)
def too_many_queries(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """A kernel with max_seqlen_q takes no longer sequences.

    Why: it has no loop over tiles of queries.

    Fix: a kernel without max_seqlen_q.
    """
    if not config.max_seqlen_q or problem.seqlen_q <= config.max_seqlen_q:
        return None
    return Fault(f"{problem.seqlen_q} queries, the kernel takes at most {config.max_seqlen_q}", "max_seqlen_q", 0)


@rule(
    "S612",
    "no-skipping",
    reads=("family", "skip_min_seqlen_q"),
    enforced_by="supports",
    good={},
    bad={"problem": {"min_seqlen_q": 2}},
)
def no_skipping(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Leaving out short sequences needs a kernel with skip_min_seqlen_q.

    Why: the test is compiled in.

    Fix: a kernel with skip_min_seqlen_q.
    """
    if config.skip_min_seqlen_q or not problem.min_seqlen_q or config.family not in SCORING[:-1]:
        return None
    return Fault(f"min_seqlen_q is {problem.min_seqlen_q}, the kernel leaves out nothing", "skip_min_seqlen_q", True)


@rule(
    "S614",
    "too-large",
    reads=("family", "merge_heads"),
    enforced_by="supports",
    good={},
    bad={"problem": {"heads": 2**24}},
)
def too_large(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """No stride of a tensor reaches 2³¹ elements.

    Why: CK Tile's kernels have them as 32-bit numbers.

    Fix: split the batch.
    """
    beyond = _stride_beyond(problem)
    if beyond:
        return Fault(f"a stride of {beyond[0]} is {beyond[1]:,}, must be below {_BEYOND:,}", "family")
    rows = query_rows(config, problem) * max(problem.num_splits, 1)
    tokens = problem.batch * problem.seqlen_k if config.family == BATCH_PREFILL else 0
    if max(rows, tokens) >= _BEYOND - 1024:
        return Fault(f"{max(rows, tokens):,} rows, must be below {_BEYOND:,}", "family")
    return None


@functools.lru_cache(maxsize=256)
def _stride_beyond(problem: Problem) -> tuple[str, int] | None:
    """The first tensor with a stride that is too large, and that; remembered, since all kernels ask for it."""
    for tensor in tensors(problem):
        largest = max(struct_strides(problem, tensor)) if tensor.name in STRIDED else 0
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
def other_parts(config: Any, problem: Problem, arch: Arch) -> Fault | None:
    """Gradients of queries are kept in as many partial sums as the kernels add up.

    Why: a deterministic kernel has one for each of its tiles of keys, and others have one, to which they add. A
    pipeline that goes over the keys for each tile of queries needs no others.

    Fix: dq_parts as the message has it, or kernels with another n0.
    """
    if config.family not in (DQ_DK_DV, CONVERT_DQ):
        return None
    parted = config.deterministic and config.pipeline != "trload_qr_qtr_dor"
    wanted = -(-problem.seqlen_k // config.tile["n0"]) if parted else 1
    if problem.dq_parts == wanted:
        return None
    return Fault(f"the gradient of the queries is in {problem.dq_parts} parts, the kernel has {wanted}", "block")


FIT_RULES: tuple[Rule, ...] = rules_in(sys.modules[__name__], fit_caches, fit_forward)
