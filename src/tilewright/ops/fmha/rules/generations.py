"""Limits that attention has with the CK Tile of 2026 only: P490 to P497. File names are below ck_tile/ops/fmha/."""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.rules.examples import ASYNC, PREFILL, V3
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import equal, examples, since

_SINCE = "2026-06"
_FORWARD = TileRules({"family": "forward"})
_V3 = TileRules({"family": "forward", "pipeline": "v3"}, V3, "gfx950")
_EIGHT_BIT = TileRules({"family": "forward", "pipeline": ("qr", "qr_async")})
_OVER_KEYS = TileRules({"family": ("forward", "splitkv", "pagedkv", "batch_prefill")})
_PREFILL = TileRules({"family": "batch_prefill"})
_V3_HEAD = 128
_NEWER_HEAD = 80
_PREFILL_GROUP = {**PREFILL, "mode": "group"}


@since(_SINCE)
@examples(good={"pipeline": "qr"}, bad={"pipeline": "qs"})
@_FORWARD.rule("P490", "queries-in-lds", "compiler", when={"pipeline": "qs"})
def check_query_in_lds(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qs is not supported with CK 2026-06.

    Why: the kernel passes sinks, which pipeline/block_fmha_pipeline_qs_ks_vs.hpp does not take.
    Fix: use the pipeline qr."""
    return Rejection("qs is not supported with CK 2026-06", "pipeline", "qr")


@since(_SINCE)
@examples(good={"pipeline": "qr"}, bad={"pipeline": "qr_whole_k"})
@_FORWARD.rule("P495", "whole-k-rewritten", "tilewright", when={"pipeline": "qr_whole_k"})
def check_whole_k(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qr_whole_k is not supported with CK 2026-06.

    Why: it was rewritten for other tiles, with another layout of LDS, and was not tested
    (pipeline/block_fmha_pipeline_qr_ks_vs_whole_k_prefetch.hpp).
    Fix: use the pipeline qr."""
    return Rejection("qr_whole_k is not supported with CK 2026-06", "pipeline", "qr")


@since(_SINCE)
@examples(good={"pipeline": "qr"}, bad={**ASYNC, "block": (128, 128, 16, 128, 32, _NEWER_HEAD)})
@_OVER_KEYS.tile_rule("P496", "head-of-80-untested", "tilewright", ("family", "pipeline"))
def check_head_of_80(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With CK 2026-06, tiles with hdim_q = 80 are supported by forward kernels with the pipeline qr only.

    Why: ceil_to_qualified_tile_length in pipeline/tile_fmha_shape.hpp loads such heads as 96. Other pipelines, and
    kernels over caches, were not tested with it.
    Fix: use the pipeline qr, or 96 with pad_hdim_q."""
    if tile.hdim_q != _NEWER_HEAD or (config.family == "forward" and config.pipeline == "qr"):
        return None
    message = f"hdim_q = {tile.hdim_q} is supported by forward kernels with qr only, not by {config.family} with"
    return Rejection(f"{message} {config.pipeline}", "block", tile.replace(hdim_q=96))


check_static_quant = equal(
    "P491",
    "scales-in-memory",
    "static_quant is not supported by forward and batch_prefill with CK 2026-06.",
    {"static_quant": False},
    "{family} with static_quant = {value} is not supported with CK 2026-06",
    enforced_by="compiler",
    good={"dtype": "fp8bf16", "mma": (32,) * 6},
    bad={"dtype": "fp8bf16", "mma": (32,) * 6, "static_quant": True},
    arch="gfx950",
    when={"family": ("forward", "batch_prefill")},
    why="scales of probabilities and of results are no longer arguments (TileFmhaTraits in "
    "pipeline/tile_fmha_traits.hpp): kernels read scales of queries, keys and values from memory instead.",
    fix="leave static_quant out, or use pagedkv or splitkv, which still have it.",
).limit_generations(since=_SINCE)
check_prefill_mode = equal(
    "P492",
    "prefill-form",
    "With CK 2026-06, batch_prefill supports only group mode and v_layout row.",
    {"mode": "group", "v_layout": "row"},
    "batch_prefill with {name} = {value} is not supported with CK 2026-06",
    enforced_by="compiler",
    good=_PREFILL_GROUP,
    bad=PREFILL,
    when={"family": "batch_prefill"},
    why="BlockFmhaBatchPrefillPipelineProblem in pipeline/block_fmha_pipeline_problem.hpp asserts both.",
    fix="use mode group, which also supports sequences of the same length.",
).limit_generations(since=_SINCE)


@since(_SINCE)
@examples(good={"mask_form": "none"}, bad={"block": (256, 32, 64, 64, 32, 64)})
@_V3.tile_rule("P493", "v3-head", "compiler")
def check_v3_head(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With CK 2026-06, v3 supports only heads of 128.

    Why: pipeline/block_fmha_fwd_v3_pipeline.hpp asserts it.
    Fix: use hdim_q and n1 = 128 with pads, or another pipeline."""
    if tile.hdim_q == tile.n1 == _V3_HEAD:
        return None
    message = f"v3 with hdim_q = {tile.hdim_q} and n1 = {tile.n1} is not supported with CK 2026-06, only {_V3_HEAD}"
    return Rejection(message, "block", tile.replace(k0=_V3_HEAD, n1=_V3_HEAD, hdim_q=_V3_HEAD))


@since(_SINCE)
@examples(good={"dtype": "bf16"}, bad={"dtype": "fp8bf16", "mma": (32,) * 6})
@_EIGHT_BIT.rule("P494", "probabilities-above-fp8", "device", ("dtype",))
def check_fp8_probabilities(config: Config, arch: Arch) -> Rejection | None:
    """With CK 2026-06, qr and qr_async do not support fp8 on GPUs whose fp8 ends at 240.

    Why: probabilities are relative to an earlier maximum of their row as long as the new one is at most 2^8 times as
    large (kRescaleThreshold). As fp8 such a probability, up to 256, fits into the format of OCP only.
    Fix: use 16-bit types, pagedkv or splitkv, or a GPU with the fp8 of OCP."""
    if DTYPES[config.dtype].p != "fp8" or arch.numbers.fp8 != "fnuz":
        return None
    message = (
        f"{config.dtype} on {arch.name} is not supported with CK 2026-06: probabilities reach 256, fp8 ends at 240"
    )
    return Rejection(message, "dtype", "bf16")


@since(_SINCE)
@examples(good=_PREFILL_GROUP, bad={**_PREFILL_GROUP, "block": (128, 128, 16, 128, 32, 128)})
@_PREFILL.tile_rule("P497", "prefill-steps", "compiler")
def check_prefill_steps(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With CK 2026-06, batch_prefill needs k0 = k1.

    Why: keys are copied to LDS in steps of k1 and read there in steps of k0
    (pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async.hpp asserts it).
    Fix: use the same number for both."""
    if tile.k0 == tile.k1:
        return None
    message = f"batch_prefill with k0 = {tile.k0} and k1 = {tile.k1} is not supported with CK 2026-06"
    return Rejection(message, "block", tile.replace(k0=tile.k1))
