"""Kernels over caches, including splitkv and combine: P430 to P459. File names are below ck_tile/ops/fmha/.

splitkv, pagedkv and batch_prefill are forward kernels that find their keys in another way. They have the limitations of
the pipelines qr and qr_async: P430 to P435 apply the forward rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import APPENDKV, BATCH_PREFILL, COMBINE, DTYPES, FORWARD, PAGEDKV, SPLITKV, get_tile
from tilewright.ops.fmha.resources.forward import loaded_hdim
from tilewright.ops.fmha.rules import forward, forward_tiles
from tilewright.ops.rule import Rejection, Rule, rule

_TILES = ("family", "pipeline", "block", "waves", "mma")
NWARP = "qr_nwarp_sshuffle"
# The forward pipelines with the same policy.
_SEEN_AS = {
    (SPLITKV, "qr"): "qr",
    (SPLITKV, NWARP): "qr",
    (PAGEDKV, "qr_pagedkv"): "qr",
    (BATCH_PREFILL, "qr_async"): "qr_async",
}
# Examples: the smallest changes to the op's example that give a kernel of each family.
SPLIT: Mapping[str, Any] = {"family": SPLITKV, "uneven_splits": True}
SPLIT_NWARP: Mapping[str, Any] = {
    **SPLIT,
    **{"pipeline": NWARP, "block": (16, 64, 32, 128, 32, 128), "waves": (1, 4, 1, 1, 4, 1)},
    "mma": (16, 16, 16, 16, 16, 16),
}
PAGED: Mapping[str, Any] = {"family": PAGEDKV, "pipeline": "qr_pagedkv", "paged": True}
PREFILL: Mapping[str, Any] = {
    **{"family": BATCH_PREFILL, "pipeline": "qr_async", "paged": True, "pad_hdim_q": 8, "pad_hdim_v": 8},
}
COMBINED: Mapping[str, Any] = {
    **{"family": COMBINE, "pipeline": "combine", "block": (32, 128), "waves": (), "mma": ()},
    **{"pad_k": False, "log_max_splits": 3},
}
APPEND: Mapping[str, Any] = {
    **{"family": APPENDKV, "pipeline": "appendkv", "block": (64, 64, 128, 128), "waves": (), "mma": ()},
}


def _check_as_forward(config: Config, arch: Arch, reads: Sequence[str], rules: Sequence[Rule]) -> Rejection | None:
    """Apply forward rules to a kernel that uses a forward pipeline's policy. `reads` are all fields that they read."""
    pipeline = _SEEN_AS.get((config.family, config.pipeline))
    if pipeline is None:
        return None
    seen = SimpleNamespace(**{name: getattr(config, name) for name in reads})
    seen.family, seen.pipeline = FORWARD, pipeline
    for each in rules:
        fault = each.check(seen, arch)
        if fault is not None:
            nearest = None if fault.field in ("family", "pipeline") else fault.nearest
            return Rejection(f"by the rule {each.code} of forward kernels, {fault.message}", fault.field, nearest)
    return None


_READS_TILES = ("dtype", "v_layout", *_TILES)


@rule(
    "P430",
    "tile-of-no-forward",
    reads=_READS_TILES,
    enforced_by="compiler",
    good={**SPLIT, "block": (128, 128, 64, 128, 32, 128)},
    bad={**SPLIT, "block": (128, 128, 128, 128, 32, 128)},
)
def check_forward_tile(config: Config, arch: Arch) -> Rejection | None:
    """splitkv, pagedkv and batch_prefill support only the tiles of the forward pipelines qr and qr_async.

    Why: their policies derive from the same one (pipeline/block_fmha_pipeline_qx_ks_vs_custom_policy.hpp), and their
    pipelines have the same assertions.

    Fix: follow the fix of the forward rule that the message names.
    """
    tiles = forward_tiles
    rules = [
        *(tiles.check_head_size, tiles.check_head_steps, tiles.check_key_steps, tiles.check_step_count),
        *(
            tiles.check_eight_bit_mma,
            tiles.check_key_sharing,
            tiles.check_async_copies,
            tiles.check_buffer_order,
            tiles.check_value_sharing,
        ),
    ]
    return _check_as_forward(config, arch, _READS_TILES, rules)


_READS_LAYOUT = ("dtype", "family", "pipeline", "waves", "mma")


@rule(
    "P431",
    "layout-of-no-forward",
    reads=_READS_LAYOUT,
    enforced_by="device",
    good={**PAGED, "mma": (32, 32, 8, 32, 32, 16)},
    bad={**PAGED, "mma": (32, 32, 16, 32, 32, 8)},
)
def check_forward_layout(config: Config, arch: Arch) -> Rejection | None:
    """As in a forward kernel, the result layout of the first GEMM must be the operand layout of the second.

    Why: probabilities stay in registers. Only qr_nwarp_sshuffle sends scores through LDS.

    Fix: follow the fix of the forward rule that the message names, or use qr_nwarp_sshuffle for waves along n.
    """
    if config.pipeline == NWARP:
        return None
    return _check_as_forward(
        config, arch, _READS_LAYOUT, [forward_tiles.check_waves_along_n, forward_tiles.check_register_layout]
    )


@rule(
    "P432",
    "gpu-of-no-forward",
    reads=("family", "pipeline"),
    enforced_by="compiler",
    good=APPEND,
    bad={**PAGED, "mma": (16, 16, 16, 16, 16, 16)},
    arch="gfx1100",
)
def check_forward_gpu(config: Config, arch: Arch) -> Rejection | None:
    """The GPU must support a forward kernel with the same policy.

    Why: both need the same instructions and the same operand layout.

    Fix: follow the fix of the forward rule that the message names.
    """
    if config.pipeline == NWARP:  # P446
        return None
    return _check_as_forward(
        config, arch, ("family", "pipeline"), [forward.check_async_copy, forward.check_lane_layout]
    )


_READS_FEATURES = ("family", "pipeline", "pad_q", "pad_hdim_q", "pad_hdim_v", "bias", "soft_cap")


@rule(
    "P433",
    "feature-of-no-forward",
    reads=_READS_FEATURES,
    enforced_by="compiler",
    good={**SPLIT, "soft_cap": True},
    bad={**SPLIT, "soft_cap": True, "bias": "alibi"},
)
def check_forward_features(config: Config, arch: Arch) -> Rejection | None:
    """The combinations of pads, bias and cap are limited as in a forward kernel.

    Why: the pipelines have the same assertions: batch_prefill always pads queries and heads, and no pipeline caps
    scores with a bias.

    Fix: follow the fix of the forward rule that the message names.
    """
    return _check_as_forward(config, arch, _READS_FEATURES, [forward.check_required_pads, forward.check_capped_bias])


_READS_OURS = ("family", "pipeline", "pad_hdim_q", "pad_hdim_v", "mask_form", "sink")


@rule(
    "P434",
    "words-of-no-forward",
    reads=_READS_OURS,
    enforced_by="tilewright",
    good={**PAGED, "pad_hdim_q": 1},
    bad={**PAGED, "pad_hdim_q": 8},
)
def check_forward_fields(config: Config, arch: Arch) -> Rejection | None:
    """Head pads and sinks have the same values as in a forward kernel, so that each kernel has one name.

    Why: CK Tile only distinguishes padded and not padded heads; the allowed head sizes follow from the pipeline.

    Fix: follow the fix of the forward rule that the message names.
    """
    return _check_as_forward(config, arch, _READS_OURS, [forward.check_head_padding, forward.check_sink_window])


_READS_UNSEEN = ("mode", "dtype", "skip_min_seqlen_q", "dropout", *_TILES)


@rule(
    "P435",
    "unseen-as-in-forward",
    reads=_READS_UNSEEN,
    enforced_by="tilewright",
    good={**PAGED, "mode": "group", "skip_min_seqlen_q": True},
    bad={**PAGED, "skip_min_seqlen_q": True},
)
def check_forward_skip_and_dropout(config: Config, arch: Arch) -> Rejection | None:
    """As in a forward kernel, sequences can be skipped only in group mode, and dropout needs enough LDS.

    Why: in batch mode the kernel does not get the limit (kernel/fmha_fwd_pagedkv_kernel.hpp), and random numbers use
    the same LDS.

    Fix: follow the fix of the forward rule that the message names.
    """
    return _check_as_forward(config, arch, _READS_UNSEEN, [forward.check_skip_mode, forward.check_dropout_lds])


@rule(
    "P436",
    "mask-without-parts",
    reads=("family", "mask_form"),
    enforced_by="compiler",
    good={**SPLIT, "mask_form": "any"},
    bad={**SPLIT, "mask_form": "causal"},
)
def check_split_mask(config: Config, arch: Arch) -> Rejection | None:
    """splitkv supports only the mask forms any and none.

    Why: the mask must compute the visible tiles of a part. Only SimplifiedGenericAttentionMask in
    block/block_masking.hpp has a GetTileRangeAlongX with parts.

    Fix: use mask_form any: its window is a run-time argument, and may be causal.
    """
    if config.family != SPLITKV or config.mask_form in ("none", "any"):
        return None
    return Rejection(f"mask_form {config.mask_form} does not support split keys", "mask_form", "any")


@rule(
    "P437",
    "merged-rows",
    reads=("family", "merge_heads", "mask_form", "bias"),
    enforced_by="compiler",
    good={**SPLIT, "merge_heads": True},
    bad={**SPLIT, "merge_heads": True, "mask_form": "any"},
)
def check_merged_heads(config: Config, arch: Arch) -> Rejection | None:
    """merge_heads does not support masks and biases.

    Why: the index of a row is then not the index of its query (FmhaFwdSplitKVKernel asserts it).

    Fix: leave one of them out.
    """
    if config.family != SPLITKV or not config.merge_heads or (config.mask_form, config.bias) == ("none", "none"):
        return None
    return Rejection(
        f"merge_heads is set with mask_form {config.mask_form} and bias {config.bias}", "merge_heads", False
    )


@rule(
    "P438",
    "shuffle-waves",
    reads=("family", "pipeline", "waves"),
    enforced_by="compiler",
    good=SPLIT_NWARP,
    bad={**SPLIT_NWARP, "waves": (4, 1, 1, 4, 1, 1), "block": (64, 64, 32, 128, 32, 128)},
)
def check_shuffle_waves(config: Config, arch: Arch) -> Rejection | None:
    """With qr_nwarp_sshuffle the second GEMM must have all its waves along n.

    Why: each wave reads all scores of a row back from LDS (MakeSRegTileDistribution in
    pipeline/block_fmha_fwd_splitkv_pipeline_nwarp_sshuffle_qr_ks_vs_default_policy.hpp asserts 1 wave along m).

    Fix: use waves 1 x w x 1 for both GEMMs.
    """
    if config.family != SPLITKV or config.pipeline != NWARP or len(config.waves) != 6 or config.waves[3] == 1:
        return None
    count = config.waves[3] * config.waves[4]
    return Rejection(f"the second GEMM has {config.waves[3]} waves along m", "waves", (1, count, 1, 1, count, 1))


@rule(
    "P439",
    "queries-not-spread",
    reads=("dtype", "family", "pipeline", "block", "waves"),
    enforced_by="compiler",
    good=SPLIT_NWARP,
    bad={**SPLIT_NWARP, "block": (16, 64, 16, 64, 32, 48)},
)
def check_query_sharing(config: Config, arch: Arch) -> Rejection | None:
    """The threads of qr_nwarp_sshuffle must share a query tile evenly, in vectors.

    Why: queries go to LDS first, one vector per thread (MakeQDramTileDistribution of the pipeline's policy).

    Fix: use another hdim_q, such as 64 with pad_hdim_q, a larger m0, or fewer waves.
    """
    tile = get_tile(config)
    if config.family != SPLITKV or config.pipeline != NWARP or not tile or len(config.waves) != 6:
        return None
    waves, width = config.waves[0] * config.waves[1], loaded_hdim(tile["hdim_q"])
    elements = tile["m0"] * width // (waves * arch.wave_size) if waves else 0
    vector = min(elements, 16 * 8 // find_dtype(DTYPES[config.dtype].qkv).bits)
    lanes = width // vector if vector else 0
    # Some lanes may load nothing: heads of 192 use 24 lanes of 32.
    if lanes and width % vector == 0 and vector & (vector - 1) == 0 and lanes <= arch.wave_size:
        rows = arch.wave_size // lanes * waves
        if tile["m0"] % rows == 0:
            return None
    return Rejection(f"{waves} waves cannot share a query tile of {tile['m0']} x {width} elements evenly", "block")


@rule(
    "P446",
    "scores-of-half-a-wave",
    reads=("family", "pipeline"),
    enforced_by="device",
    good=APPEND,
    bad=SPLIT_NWARP,
    arch="gfx1100",
)
def check_shuffle_gpu(config: Config, arch: Arch) -> Rejection | None:
    """qr_nwarp_sshuffle does not support RDNA 3.

    Why: a matrix instruction of RDNA 3 needs each operand in both halves of a wave. MakeSRegTileDistribution of the
    pipeline's policy is only for the 16 lanes of one half; the others read beyond the scores, and beyond the LDS.

    Fix: use another GPU, or another family.
    """
    if config.family != SPLITKV or config.pipeline != NWARP or not arch.name.startswith("gfx11"):
        return None
    return Rejection(f"on {arch.name} only 16 lanes of a wave read scores, the others read beyond them", "pipeline")
