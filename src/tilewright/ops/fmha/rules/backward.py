"""Gradient kernels: P460 to P482. File names are below ck_tile/ops/fmha/."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_kind, split_triples
from tilewright.ops.fmha.resources import gradient_distribution
from tilewright.ops.fmha.rules.examples import CONVERT, DOT, GRADIENT, GRADIENT_DECODE, GRADIENT_TRLOAD
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import examples

_TRLOAD_PIPELINES = ("trload_kr_ktr_vr", "trload_qr_qtr_dor")
_ALL = TileRules({"family": "dq_dk_dv"})
_GRADIENTS = TileRules({"family": "dq_dk_dv"}, GRADIENT)
_TRLOAD = TileRules({"family": "dq_dk_dv", "pipeline": _TRLOAD_PIPELINES}, GRADIENT_TRLOAD, "gfx950")
# One work-group processes all keys of a head, and has all queries in one tile.
_DECODE = TileRules({"family": "dq_dk_dv", "pipeline": "trload_qr_qtr_dor"}, GRADIENT_DECODE, "gfx950")
_DOT = TileRules({"family": "dot_do_o"}, DOT)
_CONVERT = TileRules({"family": "convert_dq"}, CONVERT)


@examples(good={"dtype": "bf16"}, bad={"dtype": "fp8"})
@_GRADIENTS.rule("P460", "gradient-types", "device", ("pipeline", "dtype"))
def check_gradient_types(config: Config, arch: Arch) -> Rejection | None:
    """Gradients support fp16, bf16 and fp32; trload pipelines support only the former two.

    Why: scores stay in registers between matrix instructions, four per lane (PTFromGemm0CToGemm1A in
    pipeline/block_fmha_bwd_pipeline_default_policy.hpp). No instruction takes four 8-bit elements per lane: such a
    kernel compiles, and the gradients of keys and values are zero. Transposing LDS reads do not support 32-bit
    elements.
    Fix: use fp16, bf16, or fp32 with kr_ktr_vr."""
    known = ("fp16", "bf16") if config.pipeline in _TRLOAD_PIPELINES else ("fp16", "bf16", "fp32")
    if config.dtype in known:
        return None
    return Rejection(f"{config.pipeline} supports {', '.join(known)}, not {config.dtype}", "dtype", "fp16")


@examples(bad={"block": (32, 128, 32, 32, 64, 32, 32, 64, 64)})
@_GRADIENTS.tile_rule("P461", "head-in-steps", "device", ("waves", "mma"))
def check_head_steps(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """k0 must be hdim_q, and k2 must be hdim_v.

    Why: the pipelines multiply queries with keys, and gradients with values, in one step each. They assert that a step
    is not longer than a head, and ignore the elements beyond a shorter step.
    Fix: use the head sizes for k0 and k2."""
    if (tile.k0, tile.k2) == (tile.hdim_q, tile.hdim_v):
        return None
    message = f"k0 = {tile.k0} and k2 = {tile.k2} must be the head sizes {tile.hdim_q} and {tile.hdim_v}"
    return Rejection(message, "block", tile.replace(k0=tile.hdim_q, k2=tile.hdim_v))


@examples(bad={"block": (32, 128, 64, 16, 64, 16, 32, 64, 64)})
@_GRADIENTS.tile_rule("P462", "queries-in-steps", "compiler", ("waves", "mma"))
def check_query_steps(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """k1 and k3 must be m0.

    Why: the gradients of values and of keys are summed over all queries of a tile in one step (the pipelines assert
    it).
    Fix: use m0 for k1 and k3."""
    if tile.k1 == tile.k3 == tile.m0:
        return None
    message = f"k1 = {tile.k1} and k3 = {tile.k3} must be m0 = {tile.m0}"
    return Rejection(message, "block", tile.replace(k1=tile.m0, k3=tile.m0))


@examples(
    good={"block": (32, 128, 64, 32, 64, 32, 64, 64, 64)},
    bad={"block": (16, 64, 64, 16, 64, 16, 48, 64, 64), "mma": (16, 16, 32, 16, 16, 16, 16, 16, 16)},
)
@_GRADIENTS.tile_rule("P463", "keys-in-steps", "compiler", ("waves", "mma"))
def check_key_steps(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """n0 must be a multiple of k4.

    Why: the query gradient is summed in n0 / k4 equal steps over the keys of a tile, each of which is a slice of the
    registers that hold the keys (get_slice_tile asserts it).
    Fix: use a divisor of n0 for k4."""
    if tile.n0 % tile.k4 == 0:
        return None
    return Rejection(f"n0 = {tile.n0} is not a multiple of k4 = {tile.k4}", "block", tile.replace(k4=tile.n0))


@examples(
    good={"block": (32, 64, 64, 32, 64, 32, 32, 64, 64), "waves": (1, 2, 1, 2, 1, 1, 1, 2, 1)},
    bad={"waves": (2, 2, 1, 2, 2, 1, 2, 2, 1)},
)
@_GRADIENTS.tile_rule("P464", "scores-change-waves", "device", ("waves", "mma"))
def check_score_waves(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """All waves must be along the keys: 1 x n for the first GEMM, n x 1 for the second.

    Why: the first GEMM computes scores as queries x keys, the second takes them as keys x queries. They stay in the
    registers of the wave that computed them.
    Fix: use all waves along n in the first GEMM and along m in the second. The third can have any."""
    m0, n0, _, m1, n1, _, *third = config.waves
    if m0 == n1 == 1 and n0 == m1:
        return None
    message = f"waves are {m0} x {n0}, then {m1} x {n1}: scores would have to move between waves"
    return Rejection(message, "waves", (1, m0 * n0, 1, m0 * n0, 1, 1, *third))


# The mma of the second GEMM by rows of the first one's tiles. trload pipelines can also take twice as many scores of a
# lane.
_TAKES = {16: ((16, 16, 16),), 32: ((32, 32, 16),)}
_TRLOAD_TAKES = {16: ((16, 16, 16), (16, 16, 32))}


@examples(bad={"mma": (16, 16, 32, 16, 16, 32, 16, 16, 32)})
@_GRADIENTS.tile_rule("P465", "scores-change-registers", "device", ("pipeline", "waves", "mma"))
def check_score_registers(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The operand layout of the second GEMM must be the result layout of the first: 16x16x16 after 16 x 16 tiles.

    Why: a lane has four scores of such a tile, which are the four elements that 16x16x16 takes from a lane
    (PTFromGemm0CToGemm1A in pipeline/block_fmha_bwd_pipeline_default_policy.hpp). With others the kernel compiles, and
    the gradients of keys and values are wrong. 32x32x16 takes scores of 32 x 32 tiles, and trload pipelines also
    support 16x16x32.
    Fix: use 16x16x16 for the second GEMM."""
    first, second, _ = split_triples(config.mma)
    takes = _TRLOAD_TAKES if config.pipeline in _TRLOAD_PIPELINES else _TAKES
    if first.m == first.n and tuple(second) in takes.get(first.m, ()):
        return None
    message = f"scores in tiles of {first.m} x {first.n} cannot be operands of {second}"
    return Rejection(message, "mma", (16, 16, first.k, 16, 16, 16, *config.mma[6:]))


@examples(good=GRADIENT_DECODE, bad={**GRADIENT, "max_seqlen_q": 32}, arch="gfx950")
@_ALL.tile_rule("P466", "other-query-limit", "compiler", ("pipeline", "max_seqlen_q"))
def check_query_limit(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """max_seqlen_q must be m0 for trload_qr_qtr_dor, and 0 for the others.

    Why: that pipeline has one query tile and no loop; the others always have a loop over query tiles
    (FmhaBwdDQDKDVKernel in kernel/fmha_bwd_kernel.hpp and TileFmhaBwdShape assert both).
    Fix: use max_seqlen_q = m0 with trload_qr_qtr_dor, else leave it out."""
    limit, wanted = config.max_seqlen_q, tile.m0 if config.pipeline == "trload_qr_qtr_dor" else 0
    if limit == wanted:
        return None
    message = f"{config.pipeline} with m0 = {tile.m0} needs max_seqlen_q {wanted}, not {limit}"
    return Rejection(message, "max_seqlen_q", wanted)


@examples(good=GRADIENT, bad=GRADIENT_TRLOAD)
@_ALL.rule("P467", "gradients-need-transposing-reads", "device", when={"pipeline": _TRLOAD_PIPELINES})
def check_transposing_reads(config: Config, arch: Arch) -> Rejection | None:
    """The trload pipelines need a GPU with transposing LDS reads.

    Why: for another GPU they compile to a kernel that returns at once and writes nothing
    (FmhaBwdDQDKDVKernel::kIsAvailable in kernel/fmha_bwd_kernel.hpp).
    Fix: use the pipeline kr_ktr_vr_iglp."""
    if arch.lds.transpose_read_bytes:
        return None
    message = f"{arch.name} has no transposing LDS reads, which {config.pipeline} needs"
    return Rejection(message, "pipeline", "kr_ktr_vr_iglp")


@examples(good={"dropout": True, "store_randval": True}, bad={"store_randval": True})
@_GRADIENTS.rule("P468", "random-numbers-without-dropout", "compiler", when={"store_randval": True, "dropout": False})
def check_stored_random_numbers(config: Config, arch: Arch) -> Rejection | None:
    """Only a kernel with dropout can store random numbers.

    Why: without dropout there are none, and the kernel has no argument for them.
    Fix: set dropout, or leave store_randval out."""
    return Rejection("store_randval is True without dropout", "dropout", True)


@examples(bad={"deterministic": True})
@_DECODE.rule("P469", "order-without-parts", "tilewright", when={"deterministic": True})
def check_deterministic(config: Config, arch: Arch) -> Rejection | None:
    """trload_qr_qtr_dor must not set `deterministic`: it always is.

    Why: one work-group sums the query gradient over all keys, in one order, without atomic adds. With `deterministic`
    it would be the same kernel under another name, without parts that convert_dq could add.
    Fix: leave deterministic out."""
    return Rejection("trload_qr_qtr_dor has no partial sums", "deterministic", False)


@examples(bad={"waves": (1, 2, 1, 2, 1, 1, 1, 2, 1), "block": (32, 64, 64, 32, 64, 32, 32, 64, 64)})
@_DECODE.rule("P470", "waves-without-barrier", "device", ("waves",))
def check_single_wave(config: Config, arch: Arch) -> Rejection | None:
    """trload_qr_qtr_dor supports only one wave.

    Why: each wave copies a part of the queries to LDS and then reads all of them, without a barrier in between
    (BlockFmhaBwdDQDKDVPipelineTrLoadQRQTRDOR::run in pipeline/).
    Fix: use waves 1x1x1 for each GEMM."""
    if set(config.waves) <= {1}:
        return None
    given = "x".join(map(str, config.waves))
    return Rejection(f"trload_qr_qtr_dor does not support waves {given}", "waves", (1,) * 9)


@examples(bad={"block": (48, 128, 64, 48, 64, 48, 32, 64, 64)})
@_GRADIENTS.tile_rule("P475", "tile-not-shared", "compiler", ("dtype", "pipeline", "waves", "mma", "bias"))
def check_tile_sharing(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The threads must share each tile evenly: queries, keys, values, the output gradient and the bias.

    Why: CK Tile gives each thread the same number of vectors of a tile, plain and transposed, and requires divisions
    without a remainder (Make...DramTileDistribution and MakeXTLdsBlockDescriptor in
    pipeline/block_fmha_bwd_pipeline_default_policy.hpp).
    Fix: use powers of two for m0, n0 and the head sizes, and fewer waves for small tiles."""
    waves = config.waves[0] * config.waves[1] * config.waves[2]
    size = find_dtype(DTYPES[config.dtype].qkv).storage_bytes
    threads = gradient_distribution.TileThreads(waves, arch.wave_size, size, config.mma[0])
    if config.pipeline.startswith("trload"):
        fault = gradient_distribution.check_trload_tiles(threads, vars(tile))
    else:
        fault = gradient_distribution.check_gradient_tiles(threads, vars(tile), has_bias=config.bias == "elementwise")
    return Rejection(fault, "block") if fault else None


@examples(bad={"block": (32, 256, 64, 32, 64, 32, 32, 64, 64)})
@_DECODE.tile_rule("P476", "scores-beyond-lds", "compiler", ("dtype", "waves", "mma", "bias"))
def check_score_lds(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With trload_qr_qtr_dor the keys, values and scores of a tile must fit into the LDS that CK Tile allocates.

    Why: the pipeline stores scores after keys and values, but GetSmemSize only counts them after queries and gradients.
    With many more keys than queries in a tile they are beyond the end; most such tiles do not compile.
    Fix: use an n0 of at most twice m0."""
    types = DTYPES[config.dtype]
    rows = tile.n0 * (tile.hdim_q + tile.hdim_v) * find_dtype(types.qkv).storage_bytes
    used = rows + tile.m0 * tile.n0 * find_dtype(types.p).storage_bytes
    allocated = find_kind(config).lds_bytes(config, arch)
    if used <= allocated:
        return None
    return Rejection(f"scores end at {used:,} bytes of LDS, but {allocated:,} are allocated", "block")


@examples(bad={"block": (96, 64)})
@_DOT.tile_rule("P477", "rows-not-shared", "compiler", ("dtype",))
def check_dot_rows(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """dot_do_o needs whole waves, and output rows that are a multiple of 16 bytes.

    Why: each thread loads one row in vectors of 16 bytes (MakePreXDramTileDistribution).
    Fix: use a multiple of the wave size for threads, and a multiple of 8 for hdim_v."""
    if tile.threads % arch.wave_size:
        return Rejection(f"{tile.threads} threads are not a multiple of the wave's {arch.wave_size}", "block")
    vector = 16 // find_dtype(DTYPES[config.dtype].o).storage_bytes
    if tile.hdim_v % vector:
        return Rejection(f"hdim_v = {tile.hdim_v} is not a multiple of {vector}", "block")
    return None


@examples(bad={"block": (256, 8, 64, 64)})
@_CONVERT.tile_rule("P478", "sums-not-shared", "compiler")
def check_convert_rows(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """convert_dq needs whole waves, which must share a tile of m0 rows evenly.

    Why: lanes load vectors of 4 sums (MakePostQGradDramTileDistribution).
    Fix: use a larger m0, or fewer threads."""
    if tile.threads % arch.wave_size:
        return Rejection(f"{tile.threads} threads are not a multiple of the wave's {arch.wave_size}", "block")
    fault = gradient_distribution.check_convert_tile(vars(tile), arch.wave_size)
    return Rejection(fault, "block") if fault else None


@examples(bad={"pad_hdim_q": 1})
@_TRLOAD.rule("P479", "copied-heads", "compiler", ("pad_hdim_q", "pad_hdim_v"))
def check_head_padding(config: Config, arch: Arch) -> Rejection | None:
    """The trload pipelines pad heads by 8 or not at all.

    Why: they copy vectors asynchronously, which is not possible for a single element
    (`bytes == 4 || bytes == 12 || bytes == 16` is asserted).
    Fix: use 0 or 8 for pad_hdim_q and pad_hdim_v."""
    for name in ("hdim_q", "hdim_v"):
        if getattr(config, f"pad_{name}") == 1:
            return Rejection(f"{config.pipeline} cannot pad {name} by 1", f"pad_{name}", 8)
    return None


@examples(good={"bias": "alibi"}, bad={"bias": "elementwise"})
@_DECODE.rule("P482", "bias-of-few-queries", "device", when={"bias": "elementwise"})
def check_bias(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline trload_qr_qtr_dor does not support an elementwise bias.

    Why: with more keys than n0 the gradients are wrong. Without a bias, and with ALiBi, they are correct.
    Fix: use the pipeline trload_kr_ktr_vr instead."""
    return Rejection("trload_qr_qtr_dor gives wrong results with an elementwise bias", "pipeline", "trload_kr_ktr_vr")
