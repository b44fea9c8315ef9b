"""Kernels over caches, pagedkv, batch_prefill, splitkv with combine, and appendkv: P430 to P446.

splitkv, pagedkv and batch_prefill are forward kernels that find their keys in another way. They have the limitations of
the pipelines qr and qr_async: P430 to P435 apply the forward rules. File names are below ck_tile/ops/fmha/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_kind
from tilewright.ops.fmha.kinds import appendkv, combine
from tilewright.ops.fmha.resources.forward import SUMS_IN_VECTOR, loaded_hdim
from tilewright.ops.fmha.rules import forward, forward_tiles
from tilewright.ops.fmha.rules.examples import APPEND, COMBINED, MMA_16, PAGED, PREFILL, SPLIT, SPLIT_NWARP
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection, Rule
from tilewright.ops.rule_forms import Overlay, RuleParts, examples, join_rules, until

_CACHES = TileRules({"family": ("splitkv", "pagedkv", "appendkv", "batch_prefill")}, PAGED)
_SPLIT = TileRules({"family": "splitkv"}, SPLIT)
_NWARP = TileRules({"family": "splitkv", "pipeline": "qr_nwarp_sshuffle"}, SPLIT_NWARP)
_NWARP_GPU = TileRules(_NWARP.when, arch="gfx1100")
_COMBINE = TileRules({"family": "combine"}, COMBINED)
_PREFILL = TileRules({"family": "batch_prefill"}, PREFILL)
_APPEND = TileRules({"family": "appendkv"}, APPEND)
# Pipelines that keep scores in registers, as forward kernels do, and also the one that sends them through LDS.
_IN_REGISTERS = ("qr", "qr_pagedkv", "qr_async")
_ALL_PIPELINES = (*_IN_REGISTERS, "qr_nwarp_sshuffle")
# pipeline/block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp: a wave's lanes along a row of LSE.
_LSE_LANES = 8
_LEAST_LOG_SPLITS, _KNOWN_LOG_SPLITS = 3, 7
_KNOWN_HDIM_V = 256


def _see_as_forward(config: Config) -> Overlay | None:
    """The forward kernel with the same policy."""
    if config.pipeline not in find_kind(config).pipelines:
        return None
    return Overlay(config, family="forward", pipeline="qr_async" if config.pipeline == "qr_async" else "qr")


def _name_forward_rule(found: Rule, fault: Rejection) -> Rejection:
    nearest = None if fault.field in ("family", "pipeline") else fault.nearest
    return Rejection(f"by the rule {found.code} of forward kernels, {fault.message}", fault.field, nearest)


def _apply(
    code: str,
    slug: str,
    what: str,
    rules: Sequence[Rule],
    pipelines: tuple[str, ...] = _ALL_PIPELINES,
    **parts: Unpack[RuleParts],
) -> Rule:
    """Forward rules as one rule of the kernels over caches with one of these pipelines."""
    parts.setdefault("fix", "follow the fix of the forward rule that the message names.")
    joined = join_rules(code, slug, what, rules, report=_name_forward_rule, **parts)
    limits = {"family": ("splitkv", "pagedkv", "batch_prefill"), "pipeline": pipelines}
    return joined.on(_see_as_forward, when=limits)


check_forward_tile = _apply(
    "P430",
    "tile-of-no-forward",
    "splitkv, pagedkv and batch_prefill support only the tiles of the forward pipelines qr and qr_async.",
    [
        forward_tiles.check_head_size,
        forward_tiles.check_head_of_80,
        forward_tiles.check_head_steps,
        forward_tiles.check_key_steps,
        forward_tiles.check_step_count,
        forward_tiles.check_eight_bit_mma,
        forward_tiles.check_key_sharing,
        forward_tiles.check_async_copies,
        forward_tiles.check_buffer_order,
        forward_tiles.check_value_sharing,
    ],
    enforced_by="compiler",
    good={**SPLIT, "block": (128, 128, 64, 128, 32, 128)},
    bad={**SPLIT, "block": (128, 128, 128, 128, 32, 128)},
    why="their policies derive from the same one (pipeline/block_fmha_pipeline_qx_ks_vs_custom_policy.hpp), and their "
    "pipelines have the same assertions.",
)
check_forward_layout = _apply(
    "P431",
    "layout-of-no-forward",
    "As in a forward kernel, the result layout of the first GEMM must be the operand layout of the second.",
    [forward_tiles.check_waves_along_n, forward_tiles.check_register_layout],
    pipelines=_IN_REGISTERS,
    enforced_by="device",
    good={**PAGED, "mma": (32, 32, 8, 32, 32, 16)},
    bad={**PAGED, "mma": (32, 32, 16, 32, 32, 8)},
    why="probabilities stay in registers. Only qr_nwarp_sshuffle sends scores through LDS.",
    fix="follow the fix of the forward rule that the message names, or use qr_nwarp_sshuffle for waves along n.",
)
check_forward_gpu = _apply(
    "P432",
    "gpu-of-no-forward",
    "The GPU must support a forward kernel with the same policy.",
    [forward.check_async_copy, forward.check_lane_layout],
    pipelines=_IN_REGISTERS,  # for the other, P446
    enforced_by="compiler",
    good=APPEND,
    bad={**PAGED, "mma": MMA_16},
    arch="gfx1100",
    why="both need the same instructions and the same operand layout.",
)
check_forward_features = _apply(
    "P433",
    "feature-of-no-forward",
    "The combinations of pads, bias and cap are limited as in a forward kernel.",
    [forward.check_required_pads, forward.check_capped_bias],
    enforced_by="compiler",
    good={**SPLIT, "soft_cap": True},
    bad={**SPLIT, "soft_cap": True, "bias": "alibi"},
    why="the pipelines have the same assertions: batch_prefill always pads queries and heads, and no pipeline caps "
    "scores with a bias.",
)
check_forward_fields = _apply(
    "P434",
    "words-of-no-forward",
    "Head pads and sinks have the same values as in a forward kernel, so that each kernel has one name.",
    [forward.check_head_padding, forward.check_sink_window],
    enforced_by="tilewright",
    good={**PAGED, "pad_hdim_q": 1},
    bad={**PAGED, "pad_hdim_q": 8},
    why="CK Tile only distinguishes padded and not padded heads; the allowed head sizes follow from the pipeline.",
)
check_forward_skip_and_dropout = _apply(
    "P435",
    "unseen-as-in-forward",
    "As in a forward kernel, sequences can be skipped only in group mode, and dropout needs enough LDS.",
    [forward.check_skip_mode, forward.check_dropout_lds],
    enforced_by="tilewright",
    good={**PAGED, "mode": "group", "skip_min_seqlen_q": True},
    bad={**PAGED, "skip_min_seqlen_q": True},
    why="in batch mode the kernel does not get the limit (kernel/fmha_fwd_pagedkv_kernel.hpp), and random numbers use "
    "the same LDS.",
)


@examples(good={"mask_form": "any"}, bad={"mask_form": "causal"})
@_SPLIT.rule("P436", "mask-without-parts", "compiler", when={"mask_form": ("causal", "window")})
def check_split_mask(config: Config, arch: Arch) -> Rejection | None:
    """splitkv supports only the mask forms any and none.

    Why: the mask must compute the visible tiles of a part. Only SimplifiedGenericAttentionMask in
    block/block_masking.hpp has a GetTileRangeAlongX with parts.
    Fix: use mask_form any: its window is a run-time argument, and may be causal."""
    return Rejection(f"mask_form {config.mask_form} does not support split keys", "mask_form", "any")


@examples(good={"merge_heads": True}, bad={"merge_heads": True, "mask_form": "any"})
@_SPLIT.rule("P437", "merged-rows", "compiler", ("mask_form", "bias"), when={"merge_heads": True})
def check_merged_heads(config: Config, arch: Arch) -> Rejection | None:
    """merge_heads does not support masks and biases.

    Why: the index of a row is then not the index of its query (FmhaFwdSplitKVKernel asserts it).
    Fix: leave one of them out."""
    if config.mask_form == config.bias == "none":
        return None
    message = f"merge_heads is set with mask_form {config.mask_form} and bias {config.bias}"
    return Rejection(message, "merge_heads", False)


@examples(bad={"waves": (4, 1, 1, 4, 1, 1), "block": (64, 64, 32, 128, 32, 128)})
@_NWARP.rule("P438", "shuffle-waves", "compiler", ("waves",))
def check_shuffle_waves(config: Config, arch: Arch) -> Rejection | None:
    """With qr_nwarp_sshuffle the second GEMM must have all its waves along n.

    Why: each wave reads all scores of a row back from LDS (MakeSRegTileDistribution in
    pipeline/block_fmha_fwd_splitkv_pipeline_nwarp_sshuffle_qr_ks_vs_default_policy.hpp asserts 1 wave along m).
    Fix: use waves 1 x w x 1 for both GEMMs."""
    if len(config.waves) != 6 or config.waves[3] == 1:
        return None
    count = config.waves[3] * config.waves[4]
    return Rejection(f"the second GEMM has {config.waves[3]} waves along m", "waves", (1, count, 1, 1, count, 1))


@examples(bad={"block": (16, 64, 16, 64, 32, 48)})
@_NWARP.tile_rule("P439", "queries-not-spread", "compiler", ("dtype", "waves"))
def check_query_sharing(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The threads of qr_nwarp_sshuffle must share a query tile evenly, in vectors.

    Why: queries go to LDS first, one vector per thread (MakeQDramTileDistribution of the pipeline's policy).
    Fix: use another hdim_q, such as 64 with pad_hdim_q, a larger m0, or fewer waves."""
    waves, width = config.waves[0] * config.waves[1], loaded_hdim(tile.hdim_q)
    elements = tile.m0 * width // (waves * arch.wave_size)
    vector = min(elements, 16 * 8 // find_dtype(DTYPES[config.dtype].qkv).bits)
    lanes = width // vector if vector else 0
    # Some lanes may load nothing: heads of 192 use 24 lanes of 32.
    whole = lanes and width % vector == 0 and vector & (vector - 1) == 0 and lanes <= arch.wave_size
    if whole and tile.m0 % (arch.wave_size // lanes * waves) == 0:
        return None
    return Rejection(f"{waves} waves cannot share a query tile of {tile.m0} x {width} elements evenly", "block")


@examples(good={"pad_k": False, "mask_form": "any"}, bad={"pad_k": False})
@_CACHES.rule(
    "P440", "lengths-not-cut", "supports", ("mask_form", "uneven_splits", "bias", "v_layout"), when={"pad_k": False}
)
def check_key_padding(config: Config, arch: Arch) -> Rejection | None:
    """pagedkv needs pad_k or a mask, splitkv pad_k, a mask or uneven_splits; others over a cache need pad_k.

    Why: the number of keys in each sequence of a cache is known only on the GPU, so the last tile must always be cut:
    by pad_k, by the mask, or by uneven_splits. Rows along the keys, as in an elementwise bias and in transposed values,
    would be read and written in vectors beyond their end. batch_prefill reads pages beyond the end with any mask.
    Fix: set pad_k, so that the kernel checks where keys end."""
    kind = find_kind(config)
    if config.bias == "elementwise" or config.v_layout == "col":
        rows = "the bias" if config.bias == "elementwise" else "transposed values"
        return Rejection(f"rows of {rows} may end inside a tile, but pad_k is False", "pad_k", True)
    masked = config.mask_form != "none" and not kind.lists_pages
    uneven = config.uneven_splits and kind.has_field("uneven_splits")
    if masked or uneven or kind.appends:
        return None
    return Rejection("sequences of a cache may end inside a tile, but pad_k is False", "pad_k", True)


@examples(bad={"paged": False})
@_PREFILL.rule("P441", "no-pages", "tilewright", when={"paged": False})
def check_pages(config: Config, arch: Arch) -> Rejection | None:
    """batch_prefill needs paged.

    Why: its only kernel finds keys in a list of pages (FmhaBatchPrefillWithPagedKVCacheKernel).
    Fix: set paged, as in all kernels of this family."""
    return Rejection("paged is False, but batch_prefill supports only pages", "paged", True)


@examples(good={"block": (16, 128)}, bad={"block": (64, 128)})
@_COMBINE.tile_rule("P442", "combine-lanes", "compiler")
def check_combine_lanes(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """combine needs an n1 of 8, 16 or 32, and an hdim_v that is a multiple of it.

    Why: a lane has 4 sums, so a wave has wave_size · 4 / n1 rows. For their LSE 8 lanes share a row
    (MakeLSEaccRegTileDistribution): n1 is at most 32 for the rows of one wave, and at least 8 for those of all 4 waves.
    BlockFmhaSplitKVCombinePipelineProblem asserts the rest.
    Fix: use n1 = 32, as the usual kernels do."""
    most = SUMS_IN_VECTOR * _LSE_LANES
    least = most // combine.WAVES
    if tile.n1 not in (least, 2 * least, most):
        return Rejection(f"n1 is {tile.n1}, must be {least}, {2 * least} or {most}", "block", (most, tile.hdim_v))
    if tile.hdim_v % tile.n1:
        return Rejection(f"hdim_v = {tile.hdim_v} is not a multiple of n1 = {tile.n1}", "block")
    return None


@examples(good={"log_max_splits": 8, "blocks_per_cu": 1}, bad={"log_max_splits": 8})
@_COMBINE.tile_rule("P443", "combine-size-unknown", "compiler", ("log_max_splits", "blocks_per_cu"))
def check_combine_size(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """combine needs log_max_splits of at least 3, and blocks_per_cu above 128 parts or with hdim_v above 256.

    Why: BlockFmhaSplitKVCombinePipelineProblem asserts at least 8 parts. CK Tile's own choice of work-groups per
    compute unit supports at most 128 parts and 256 elements (kBlockPerCu in
    pipeline/block_fmha_fwd_splitkv_combine_pipeline.hpp).
    Fix: use log_max_splits 3 to 7, or set blocks_per_cu to 1."""
    log, least = config.log_max_splits, _LEAST_LOG_SPLITS
    if log < least:
        return Rejection(f"log_max_splits is {log}, must be at least {least}", "log_max_splits", least)
    large = f"2^{log} parts are more than 128" if log > _KNOWN_LOG_SPLITS else ""
    if not large and tile.hdim_v > _KNOWN_HDIM_V:
        large = f"hdim_v = {tile.hdim_v} is above {_KNOWN_HDIM_V}"
    if config.blocks_per_cu or not large:
        return None
    return Rejection(f"{large}, but blocks_per_cu is 0", "blocks_per_cu", 1)


@examples(bad={"mode": "group"})
@_APPEND.rule("P444", "append-group", "compiler", when={"mode": "group"})
def check_append_mode(config: Config, arch: Arch) -> Rejection | None:
    """appendkv supports only batch mode.

    Why: FmhaFwdAppendKVKernel has no other mode; the launcher asserts it.
    Fix: use mode batch, which supports any lengths."""
    return Rejection("appendkv has no group mode", "mode", "batch")


@examples(good={"block": (16, 16, 128, 128)}, bad={"block": (16, 24, 128, 128)})
@_APPEND.tile_rule("P445", "append-tile", "device", ("dtype", "v_layout", "rotary"))
def check_append_tile(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The 256 threads of appendkv must share each tile evenly, 16 bytes of a row at a time.

    Why: other elements are not written: the rows after the last whole pass, and those of the lanes after the last whole
    row (MakeKnewDramTileDistribution and similar functions in
    pipeline/block_fmha_fwd_appendkv_pipeline_default_policy.hpp). Without rotation m0 is not used.
    Fix: use powers of two for all four integers of the block."""
    vector = 16 * 8 // find_dtype(DTYPES[config.dtype].qkv).bits
    shared = [("n0", "hdim_q"), ("n0", "hdim_v") if config.v_layout == "row" else ("hdim_v", "n0")]
    if config.rotary != "none":
        shared.append(("m0", "hdim_q"))
    for name, other in shared:
        rows, width = getattr(tile, name), getattr(tile, other)
        lanes = width // vector
        whole = lanes and width % vector == 0 and arch.wave_size % lanes == 0
        if not whole or rows % (appendkv.THREADS // lanes):
            message = f"{name} x {other} = {rows} x {width} cannot be shared evenly by {appendkv.THREADS} threads"
            return Rejection(message, "block")
    return None


@until("2026-06")
@examples(good=APPEND, bad=SPLIT_NWARP)
@_NWARP_GPU.rule("P446", "scores-of-half-a-wave", "device")
def check_shuffle_gpu(config: Config, arch: Arch) -> Rejection | None:
    """qr_nwarp_sshuffle supports RDNA 3 since CK 2026-06 only.

    Why: a matrix instruction of RDNA 3 needs each operand in both halves of a wave. MakeSRegTileDistribution of the
    pipeline's policy is only for the 16 lanes of one half; the others read beyond the scores, and beyond the LDS.
    Fix: use another GPU, or another family."""
    if not arch.name.startswith("gfx11"):
        return None
    return Rejection(f"on {arch.name} only 16 lanes of a wave read scores, the others read beyond them", "pipeline")
