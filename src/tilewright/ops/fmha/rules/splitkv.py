"""splitkv and combine: P436 to P439, P442, P443 and P446. File names are below ck_tile/ops/fmha/."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.resources.forward import loaded_hdim
from tilewright.ops.fmha.rules.examples import APPEND, COMBINED, SPLIT, SPLIT_NWARP
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import examples

_SPLIT = TileRules({"family": "splitkv"}, SPLIT)
_NWARP = TileRules({"family": "splitkv", "pipeline": "qr_nwarp_sshuffle"}, SPLIT_NWARP)
_COMBINE = TileRules({"family": "combine"}, COMBINED)
# pipeline/block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp: a wave's lanes along a row of LSE.
_LSE_LANES = 8
_SUMS_OF_A_LANE = 4  # 16 bytes of fp32
_COMBINE_WAVES = 4
_LEAST_LOG_SPLITS, _KNOWN_LOG_SPLITS = 3, 7
_KNOWN_HDIM_V = 256


@examples(good={"mask_form": "any"}, bad={"mask_form": "causal"})
@_SPLIT.rule("P436", "mask-without-parts", "compiler", when={"mask_form": ("causal", "window")})
def check_split_mask(config: Config, arch: Arch) -> Rejection | None:
    """splitkv supports only the mask forms any and none.

    Why: the mask must compute the visible tiles of a part. Only SimplifiedGenericAttentionMask in
    block/block_masking.hpp has a GetTileRangeAlongX with parts.
    Fix: use mask_form any: its window is a run-time argument, and may be causal.
    """
    return Rejection(f"mask_form {config.mask_form} does not support split keys", "mask_form", "any")


@examples(good={"merge_heads": True}, bad={"merge_heads": True, "mask_form": "any"})
@_SPLIT.rule("P437", "merged-rows", "compiler", ("mask_form", "bias"), when={"merge_heads": True})
def check_merged_heads(config: Config, arch: Arch) -> Rejection | None:
    """merge_heads does not support masks and biases.

    Why: the index of a row is then not the index of its query (FmhaFwdSplitKVKernel asserts it).
    Fix: leave one of them out.
    """
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
    Fix: use waves 1 x w x 1 for both GEMMs.
    """
    if len(config.waves) != 6 or config.waves[3] == 1:
        return None
    count = config.waves[3] * config.waves[4]
    return Rejection(f"the second GEMM has {config.waves[3]} waves along m", "waves", (1, count, 1, 1, count, 1))


@examples(bad={"block": (16, 64, 16, 64, 32, 48)})
@_NWARP.tile_rule("P439", "queries-not-spread", "compiler", ("dtype", "waves"))
def check_query_sharing(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The threads of qr_nwarp_sshuffle must share a query tile evenly, in vectors.

    Why: queries go to LDS first, one vector per thread (MakeQDramTileDistribution of the pipeline's policy).
    Fix: use another hdim_q, such as 64 with pad_hdim_q, a larger m0, or fewer waves.
    """
    waves, width = config.waves[0] * config.waves[1], loaded_hdim(tile.hdim_q)
    elements = tile.m0 * width // (waves * arch.wave_size)
    vector = min(elements, 16 * 8 // find_dtype(DTYPES[config.dtype].qkv).bits)
    lanes = width // vector if vector else 0
    # Some lanes may load nothing: heads of 192 use 24 lanes of 32.
    whole = lanes and width % vector == 0 and vector & (vector - 1) == 0 and lanes <= arch.wave_size
    if whole and tile.m0 % (arch.wave_size // lanes * waves) == 0:
        return None
    return Rejection(f"{waves} waves cannot share a query tile of {tile.m0} x {width} elements evenly", "block")


@examples(good={"block": (16, 128)}, bad={"block": (64, 128)})
@_COMBINE.tile_rule("P442", "combine-lanes", "compiler")
def check_combine_lanes(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """combine needs an n1 of 8, 16 or 32, and an hdim_v that is a multiple of it.

    Why: a lane has 4 sums, so a wave has wave_size · 4 / n1 rows. For their LSE 8 lanes share a row
    (MakeLSEaccRegTileDistribution): n1 is at most 32 for the rows of one wave, and at least 8 for those of all 4 waves.
    BlockFmhaSplitKVCombinePipelineProblem asserts the rest.
    Fix: use n1 = 32, as the usual kernels do.
    """
    most = _SUMS_OF_A_LANE * _LSE_LANES
    least = most // _COMBINE_WAVES
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
    Fix: use log_max_splits 3 to 7, or set blocks_per_cu to 1.
    """
    log, least = config.log_max_splits, _LEAST_LOG_SPLITS
    if log < least:
        return Rejection(f"log_max_splits is {log}, must be at least {least}", "log_max_splits", least)
    large = f"2^{log} parts are more than 128" if log > _KNOWN_LOG_SPLITS else ""
    if not large and tile.hdim_v > _KNOWN_HDIM_V:
        large = f"hdim_v = {tile.hdim_v} is above {_KNOWN_HDIM_V}"
    if config.blocks_per_cu or not large:
        return None
    return Rejection(f"{large}, but blocks_per_cu is 0", "blocks_per_cu", 1)


@examples(good=APPEND, bad=SPLIT_NWARP)
@TileRules(_NWARP.when, arch="gfx1100").rule("P446", "scores-of-half-a-wave", "device")
def check_shuffle_gpu(config: Config, arch: Arch) -> Rejection | None:
    """qr_nwarp_sshuffle does not support RDNA 3.

    Why: a matrix instruction of RDNA 3 needs each operand in both halves of a wave. MakeSRegTileDistribution of the
    pipeline's policy is only for the 16 lanes of one half; the others read beyond the scores, and beyond the LDS.
    Fix: use another GPU, or another family.
    """
    if not arch.name.startswith("gfx11"):
        return None
    return Rejection(f"on {arch.name} only 16 lanes of a wave read scores, the others read beyond them", "pipeline")
