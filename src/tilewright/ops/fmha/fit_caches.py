"""The problems that kernels over caches support: pages, splits, rotary embedding. Codes S609, S610 and S613."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.resources import MAX_ACCESS_BYTES
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import (
    APPENDKV,
    BATCH_PREFILL,
    COMBINE,
    DTYPES,
    FORWARD,
    PAGEDKV,
    SCORING,
    SPLITKV,
    get_tile,
)
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.rule import Rejection, rule

_V3 = {
    **{"pipeline": "v3", "block": (256, 32, 128, 128, 32, 128)},
    **{"waves": (8, 1, 1, 8, 1, 1), "mma": (32, 32, 16, 32, 32, 16)},
}


@rule(
    "S616",
    "two-tiles-of-keys",
    reads=("family", "pipeline", "block"),
    enforced_by="supports",
    good={**_V3, "problem": {"seqlen_q": 256, "seqlen_k": 128}},
    bad={**_V3, "problem": {"seqlen_q": 256, "seqlen_k": 64}},
    arch="gfx950",
)
def check_key_tile_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """v3 supports one key tile, or at least three.

    Why: with two it reads the second one from LDS before the copy has finished (the wait is inside
    `if(2 < num_total_loop)` in ck_tile/ops/fmha/pipeline/block_fmha_fwd_v3_pipeline.hpp).

    Fix: use a kernel with another pipeline.
    """
    width = get_tile(config).get("n0", 0) if config.family == FORWARD and config.pipeline == "v3" else 0
    if not width < problem.seqlen_k <= 2 * width:
        return None
    return Rejection(f"{problem.seqlen_k} keys take exactly two tiles of {width}", "pipeline", "qr_async")


@rule(
    "S609",
    "other-pages",
    reads=("family", "block", "paged"),
    enforced_by="supports",
    good={},
    bad={"problem": {"page_size": 64}},
)
def check_page_size(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Pages need a kernel with a page table, and a page size that suits its tiles.

    Why: a kernel without a page table would treat the pages as one long sequence. One with a table looks up a page
    once per key tile, batch_prefill once per token. appendkv writes a tile to at most two pages.

    Fix: use a kernel whose paged matches the problem, or one with another n0.
    """
    if config.family not in (*SCORING, APPENDKV):
        return None
    size = problem.page_size
    if config.paged != problem.paged:
        return Rejection(f"page_size is {size}, but the kernel has paged {config.paged}", "paged", problem.paged)
    if not config.paged:
        return None
    message = _describe_page_mismatch(config.family, size, config.tile["n0"])
    return Rejection(message, "block") if message else None


def _describe_page_mismatch(family: str, size: int, n0: int) -> str:
    """Return why a page size is not supported; empty if it is."""
    if family == BATCH_PREFILL:
        return f"a page has {size} tokens, but the kernel supports only pages of 1" if size != 1 else ""
    if family == APPENDKV:
        return f"a page has {size} tokens, fewer than the tile's {n0}" if size < n0 else ""
    return f"a page has {size} tokens, which is not a multiple of the tile's {n0}" if size % n0 else ""


@rule(
    "S610",
    "other-splits",
    reads=("family", "mode", "uneven_splits", "log_max_splits"),
    enforced_by="supports",
    good={},
    bad={"problem": {"num_splits": 2}},
)
def check_split_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Only splitkv and combine support splits, and only the number that they were built for.

    Why: the lengths of parts are known only on the device, so a part may end inside a tile, which a kernel without
    uneven_splits does not check. combine keeps the LSE of all parts of a query in one tile.

    Fix: use a kernel with uneven_splits or a larger log_max_splits; use splitkv and combine for a forward problem.
    """
    count = problem.num_splits
    if config.family in (SPLITKV, COMBINE) and count < 1:
        return Rejection(f"num_splits is {count}, must be at least 1", "family")
    if config.family == SPLITKV and count > 1 and not (config.uneven_splits or config.mode == "group"):
        return Rejection(
            f"{count} parts may end inside a tile, but the kernel has no uneven_splits", "uneven_splits", True
        )
    if config.family == COMBINE and count > 2**config.log_max_splits:
        return Rejection(f"{count} parts, but the kernel merges at most {2**config.log_max_splits}", "log_max_splits")
    if config.family in (FORWARD, PAGEDKV, BATCH_PREFILL) and count:
        return Rejection(f"num_splits is {count}, but {config.family} does not split the keys", "family", SPLITKV)
    return None


@rule(
    "S613",
    "rotary-size",
    reads=("family", "rotary", "dtype"),
    enforced_by="supports",
    good={},
    bad={
        **{"family": APPENDKV, "pipeline": "appendkv", "block": (64, 64, 128, 128), "rotary": "half"},
        "problem": {"family": APPENDKV, "rotary": "half", "rotary_dim": 24, "seqlen_new": 64},
    },
)
def check_rotary_size(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The rotated size must be a multiple of a thread's vector, and appendkv needs at least one new token.

    Why: a thread rotates all elements that it holds or none. With rotary half, the elements of a thread must be in the
    same half.

    Fix: use another rotary_dim.
    """
    if config.family != APPENDKV:
        return None
    if problem.seqlen_new < 1:
        return Rejection("seqlen_new is 0, must be at least 1", "family")
    if config.rotary == "none":
        return None
    held = MAX_ACCESS_BYTES // find_dtype(DTYPES[config.dtype].qkv).storage_bytes
    step = 2 * held if config.rotary == "half" else held
    size = problem.rotary_size
    if size % step == 0 and size <= problem.hdim_q:
        return None
    return Rejection(f"the rotated size is {size}, must be a multiple of {step} and at most {problem.hdim_q}", "rotary")
