"""Pages and lengths of caches, combine and appendkv: P440 to P459. File names are below ck_tile/ops/fmha/."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import APPENDKV, BATCH_PREFILL, COMBINE, DTYPES, PAGEDKV, SPLITKV, get_tile
from tilewright.ops.fmha.rules.caches import APPEND, COMBINED, PAGED, PREFILL
from tilewright.ops.rule import Rejection, rule

# pipeline/block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp: a wave's lanes along a row of LSE.
_LSE_LANES = 8
_SUMS_OF_A_LANE = 4  # 16 bytes of fp32
_COMBINE_WAVES = 4
_LEAST_LOG_SPLITS, _KNOWN_LOG_SPLITS = 3, 7
_KNOWN_HDIM_V = 256
# pipeline/block_fmha_pipeline_problem.hpp, BlockFmhaFwdAppendKVPipelineProblem: threads of a work-group.
_APPEND_THREADS = 256


@rule(
    "P440",
    "lengths-not-cut",
    reads=("family", "pad_k", "mask_form", "uneven_splits", "bias", "v_layout"),
    enforced_by="supports",
    good={**PAGED, "pad_k": False, "mask_form": "any"},
    bad={**PAGED, "pad_k": False},
)
def check_key_padding(config: Config, arch: Arch) -> Rejection | None:
    """pagedkv needs pad_k or a mask, splitkv pad_k, a mask or uneven_splits; others over a cache need pad_k.

    Why: the number of keys in each sequence of a cache is known only on the GPU, so the last tile must always be cut:
    by pad_k, by the mask, or by uneven_splits. Rows along the keys, as in an elementwise bias and in transposed values,
    would be read and written in vectors beyond their end. batch_prefill reads pages beyond the end with any mask.

    Fix: set pad_k, so that the kernel checks where keys end.
    """
    if config.family not in (SPLITKV, PAGEDKV, APPENDKV, BATCH_PREFILL) or config.pad_k:
        return None
    if config.bias == "elementwise" or config.v_layout == "col":
        what = "the bias" if config.bias == "elementwise" else "transposed values"
        return Rejection(f"rows of {what} may end inside a tile, but pad_k is False", "pad_k", True)
    masked = config.mask_form != "none" and config.family != BATCH_PREFILL
    cut = masked or (config.family == SPLITKV and config.uneven_splits)
    if cut or config.family == APPENDKV:
        return None
    return Rejection("sequences of a cache may end inside a tile, but pad_k is False", "pad_k", True)


@rule(
    "P441",
    "no-pages",
    reads=("family", "paged"),
    enforced_by="tilewright",
    good=PREFILL,
    bad={**PREFILL, "paged": False},
)
def check_pages(config: Config, arch: Arch) -> Rejection | None:
    """batch_prefill needs paged.

    Why: its only kernel finds each key in a list of one-token pages (FmhaBatchPrefillWithPagedKVCacheKernel).

    Fix: set paged, as in all kernels of this family.
    """
    if config.family != BATCH_PREFILL or config.paged:
        return None
    return Rejection("paged is False, but batch_prefill supports only pages", "paged", True)


@rule(
    "P442",
    "combine-lanes",
    reads=("family", "block"),
    enforced_by="compiler",
    good={**COMBINED, "block": (16, 128)},
    bad={**COMBINED, "block": (64, 128)},
)
def check_combine_lanes(config: Config, arch: Arch) -> Rejection | None:
    """combine needs an n1 of 8, 16 or 32, and an hdim_v that is a multiple of it.

    Why: a lane has 4 sums, so a wave has wave_size · 4 / n1 rows. For their LSE 8 lanes share a row
    (MakeLSEaccRegTileDistribution): n1 is at most 32 for the rows of one wave, and at least 8 for those of all 4 waves.
    BlockFmhaSplitKVCombinePipelineProblem asserts the rest.

    Fix: use n1 = 32, as the usual kernels do.
    """
    tile = get_tile(config) if config.family == COMBINE else {}
    if not tile:
        return None
    least, most = _SUMS_OF_A_LANE * _LSE_LANES // _COMBINE_WAVES, _SUMS_OF_A_LANE * _LSE_LANES
    n1, hdim = tile["n1"], tile["hdim_v"]
    if n1 not in (least, 2 * least, most):
        return Rejection(f"n1 is {n1}, must be {least}, {2 * least} or {most}", "block", (most, hdim))
    if hdim % n1:
        return Rejection(f"hdim_v = {hdim} is not a multiple of n1 = {n1}", "block")
    return None


@rule(
    "P443",
    "combine-size-unknown",
    reads=("family", "block", "log_max_splits", "blocks_per_cu"),
    enforced_by="compiler",
    good={**COMBINED, "log_max_splits": 8, "blocks_per_cu": 1},
    bad={**COMBINED, "log_max_splits": 8},
)
def check_combine_size(config: Config, arch: Arch) -> Rejection | None:
    """combine needs log_max_splits of at least 3, and blocks_per_cu above 128 parts or with hdim_v above 256.

    Why: BlockFmhaSplitKVCombinePipelineProblem asserts at least 8 parts. CK Tile's own choice of work-groups per
    compute unit supports at most 128 parts and 256 elements (kBlockPerCu in
    pipeline/block_fmha_fwd_splitkv_combine_pipeline.hpp).

    Fix: use log_max_splits 3 to 7, or set blocks_per_cu to 1.
    """
    tile = get_tile(config) if config.family == COMBINE else {}
    if not tile:
        return None
    log = config.log_max_splits
    if log < _LEAST_LOG_SPLITS:
        return Rejection(
            f"log_max_splits is {log}, must be at least {_LEAST_LOG_SPLITS}", "log_max_splits", _LEAST_LOG_SPLITS
        )
    if config.blocks_per_cu:
        return None
    if log > _KNOWN_LOG_SPLITS:
        return Rejection(f"2^{log} parts are more than 128, but blocks_per_cu is 0", "blocks_per_cu", 1)
    if tile["hdim_v"] > _KNOWN_HDIM_V:
        return Rejection(
            f"hdim_v = {tile['hdim_v']} is above {_KNOWN_HDIM_V}, but blocks_per_cu is 0", "blocks_per_cu", 1
        )
    return None


@rule(
    "P444",
    "append-group",
    reads=("family", "mode"),
    enforced_by="compiler",
    good=APPEND,
    bad={**APPEND, "mode": "group"},
)
def check_append_mode(config: Config, arch: Arch) -> Rejection | None:
    """appendkv supports only batch mode.

    Why: FmhaFwdAppendKVKernel has no other mode; the launcher asserts it.

    Fix: use mode batch, which supports any lengths.
    """
    if config.family != APPENDKV or config.mode == "batch":
        return None
    return Rejection("appendkv has no group mode", "mode", "batch")


@rule(
    "P445",
    "append-tile",
    reads=("family", "dtype", "block", "v_layout", "rotary"),
    enforced_by="device",
    good={**APPEND, "block": (16, 16, 128, 128)},
    bad={**APPEND, "block": (16, 24, 128, 128)},
)
def check_append_tile(config: Config, arch: Arch) -> Rejection | None:
    """The 256 threads of appendkv must share each tile evenly, 16 bytes of a row at a time.

    Why: other elements are not written: the rows after the last whole pass, and those of the lanes after the last whole
    row (MakeKnewDramTileDistribution and similar functions in
    pipeline/block_fmha_fwd_appendkv_pipeline_default_policy.hpp). Without rotation m0 is not used.

    Fix: use powers of two for all four integers of the block.
    """
    tile = get_tile(config) if config.family == APPENDKV else {}
    if not tile:
        return None
    vector = 16 * 8 // find_dtype(DTYPES[config.dtype].qkv).bits
    shared = [("n0 x hdim_q", tile["n0"], tile["hdim_q"])]
    values = ("n0 x hdim_v", tile["n0"], tile["hdim_v"])
    shared.append(values if config.v_layout == "row" else ("hdim_v x n0", tile["hdim_v"], tile["n0"]))
    if config.rotary != "none":
        shared.append(("m0 x hdim_q", tile["m0"], tile["hdim_q"]))
    for name, rows, width in shared:
        lanes = width // vector
        whole = lanes and width % vector == 0 and arch.wave_size % lanes == 0
        if not whole or rows % (_APPEND_THREADS // lanes):
            return Rejection(f"{name} = {rows} x {width} cannot be shared evenly by {_APPEND_THREADS} threads", "block")
    return None
