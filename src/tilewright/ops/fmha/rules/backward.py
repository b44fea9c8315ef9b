"""The pipelines of gradient kernels: P460 to P470, P479 and P482. File names are below ck_tile/ops/fmha/.

Rules for the distribution of their tiles among threads are in backward_tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import CONVERT_DQ, DOT_DO_O, DQ_DK_DV, FAMILIES, get_tile
from tilewright.ops.fmha.kind import split_triples
from tilewright.ops.fmha.rules.all_families import DQ_DK_DV_EXAMPLE
from tilewright.ops.rule import Rejection, rule

GRADIENTS = (DOT_DO_O, DQ_DK_DV, CONVERT_DQ)
_TILES = ("family", "block", "waves", "mma")
_DTYPES = ("fp16", "bf16", "fp32")
_TRLOAD = ("trload_kr_ktr_vr", "trload_qr_qtr_dor")
# One work-group processes all keys of a head, and has all queries in one tile.
WHOLE_HEAD = "trload_qr_qtr_dor"
TRLOAD: Mapping[str, Any] = {**DQ_DK_DV_EXAMPLE, "pipeline": "trload_kr_ktr_vr"}
DECODE: Mapping[str, Any] = {
    **{**TRLOAD, "pipeline": WHOLE_HEAD, "block": (32, 32, 64, 32, 64, 32, 32, 64, 64), "max_seqlen_q": 32},
    "waves": (1,) * 9,
}


def get_gradient_tile(config: Config) -> dict[str, int]:
    """Return the block of a dq_dk_dv kernel by name; empty for other families and for lists of other lengths."""
    if config.family != DQ_DK_DV or len(config.waves) != 9 or len(config.mma) != 9:  # three GEMMs with three integers
        return {}
    return get_tile(config)


def replace_numbers(config: Config, **numbers: int) -> tuple[int, ...]:
    """Return the block with some integers replaced."""
    return tuple({**get_tile(config), **numbers}[label] for label in FAMILIES[config.family].block)


@rule(
    "P460",
    "gradient-types",
    reads=("family", "pipeline", "dtype"),
    enforced_by="device",
    good={**DQ_DK_DV_EXAMPLE, "dtype": "bf16"},
    bad={**DQ_DK_DV_EXAMPLE, "dtype": "fp8"},
)
def check_gradient_types(config: Config, arch: Arch) -> Rejection | None:
    """Gradients support fp16, bf16 and fp32; trload pipelines support only the former two.

    Why: scores stay in registers between matrix instructions, four per lane (PTFromGemm0CToGemm1A in
    pipeline/block_fmha_bwd_pipeline_default_policy.hpp). No instruction takes four 8-bit elements per lane: such a
    kernel compiles, and the gradients of keys and values are zero. Transposing LDS reads do not support 32-bit
    elements.

    Fix: use fp16, bf16, or fp32 with kr_ktr_vr.
    """
    known = _DTYPES[:2] if config.pipeline in _TRLOAD else _DTYPES
    if config.family != DQ_DK_DV or config.dtype in known:
        return None
    return Rejection(f"{config.pipeline} supports {', '.join(known)}, not {config.dtype}", "dtype", "fp16")


@rule(
    "P461",
    "head-in-steps",
    reads=_TILES,
    enforced_by="device",
    good=DQ_DK_DV_EXAMPLE,
    bad={**DQ_DK_DV_EXAMPLE, "block": (32, 128, 32, 32, 64, 32, 32, 64, 64)},
)
def check_head_steps(config: Config, arch: Arch) -> Rejection | None:
    """k0 must be hdim_q, and k2 must be hdim_v.

    Why: the pipelines multiply queries with keys, and gradients with values, in one step each. They assert that a step
    is not longer than a head, and ignore the elements beyond a shorter step.

    Fix: use the head sizes for k0 and k2.
    """
    tile = get_gradient_tile(config)
    if not tile or (tile["k0"], tile["k2"]) == (tile["hdim_q"], tile["hdim_v"]):
        return None
    return Rejection(
        f"k0 = {tile['k0']} and k2 = {tile['k2']} must be the head sizes {tile['hdim_q']} and {tile['hdim_v']}",
        "block",
        replace_numbers(config, k0=tile["hdim_q"], k2=tile["hdim_v"]),
    )


@rule(
    "P462",
    "queries-in-steps",
    reads=_TILES,
    enforced_by="compiler",
    good=DQ_DK_DV_EXAMPLE,
    bad={**DQ_DK_DV_EXAMPLE, "block": (32, 128, 64, 16, 64, 16, 32, 64, 64)},
)
def check_query_steps(config: Config, arch: Arch) -> Rejection | None:
    """k1 and k3 must be m0.

    Why: the gradients of values and of keys are summed over all queries of a tile in one step (the pipelines assert
    it).

    Fix: use m0 for k1 and k3.
    """
    tile = get_gradient_tile(config)
    if not tile or tile["k1"] == tile["k3"] == tile["m0"]:
        return None
    return Rejection(
        f"k1 = {tile['k1']} and k3 = {tile['k3']} must be m0 = {tile['m0']}",
        "block",
        replace_numbers(config, k1=tile["m0"], k3=tile["m0"]),
    )


@rule(
    "P463",
    "keys-in-steps",
    reads=_TILES,
    enforced_by="compiler",
    good={**DQ_DK_DV_EXAMPLE, "block": (32, 128, 64, 32, 64, 32, 64, 64, 64)},
    bad={
        **{**DQ_DK_DV_EXAMPLE, "block": (16, 64, 64, 16, 64, 16, 48, 64, 64)},
        "mma": (16, 16, 32, 16, 16, 16, 16, 16, 16),
    },
)
def check_key_steps(config: Config, arch: Arch) -> Rejection | None:
    """n0 must be a multiple of k4.

    Why: the query gradient is summed in n0 / k4 equal steps over the keys of a tile, each of which is a slice of the
    registers that hold the keys (get_slice_tile asserts it).

    Fix: use a divisor of n0 for k4.
    """
    tile = get_gradient_tile(config)
    if not tile or tile["n0"] % tile["k4"] == 0:
        return None
    return Rejection(
        f"n0 = {tile['n0']} is not a multiple of k4 = {tile['k4']}", "block", replace_numbers(config, k4=tile["n0"])
    )


@rule(
    "P464",
    "scores-change-waves",
    reads=_TILES,
    enforced_by="device",
    good={
        **{**DQ_DK_DV_EXAMPLE, "block": (32, 64, 64, 32, 64, 32, 32, 64, 64)},
        "waves": (1, 2, 1, 2, 1, 1, 1, 2, 1),
    },
    bad={**DQ_DK_DV_EXAMPLE, "waves": (2, 2, 1, 2, 2, 1, 2, 2, 1)},
)
def check_score_waves(config: Config, arch: Arch) -> Rejection | None:
    """All waves must be along the keys: 1 x n for the first GEMM, n x 1 for the second.

    Why: the first GEMM computes scores as queries x keys, the second takes them as keys x queries. They stay in the
    registers of the wave that computed them.

    Fix: use all waves along n in the first GEMM and along m in the second. The third can have any.
    """
    if not get_gradient_tile(config):
        return None
    first, second, _ = split_triples(config.waves)
    if first.m == second.n == 1 and first.n == second.m:
        return None
    count = first.m * first.n
    return Rejection(
        f"waves are {first.m} x {first.n}, then {second.m} x {second.n}: scores would have to move between waves",
        "waves",
        (1, count, 1, count, 1, 1, *config.waves[6:]),
    )


# The mma of the second GEMM by rows of the first one's tiles. trload pipelines can also take twice as many scores of a
# lane.
_TAKES = {16: ((16, 16, 16),), 32: ((32, 32, 16),)}
_TRLOAD_TAKES = {16: ((16, 16, 16), (16, 16, 32))}


@rule(
    "P465",
    "scores-change-registers",
    reads=(*_TILES, "pipeline"),
    enforced_by="device",
    good=DQ_DK_DV_EXAMPLE,
    bad={**DQ_DK_DV_EXAMPLE, "mma": (16, 16, 32, 16, 16, 32, 16, 16, 32)},
)
def check_score_registers(config: Config, arch: Arch) -> Rejection | None:
    """The operand layout of the second GEMM must be the result layout of the first: 16x16x16 after 16 x 16 tiles.

    Why: a lane has four scores of such a tile, which are the four elements that 16x16x16 takes from a lane
    (PTFromGemm0CToGemm1A in pipeline/block_fmha_bwd_pipeline_default_policy.hpp). With others the kernel compiles, and
    the gradients of keys and values are wrong. 32x32x16 takes scores of 32 x 32 tiles, and trload pipelines also
    support 16x16x32.

    Fix: use 16x16x16 for the second GEMM.
    """
    if not get_gradient_tile(config):
        return None
    first, second, _ = split_triples(config.mma)
    takes = _TRLOAD_TAKES if config.pipeline in _TRLOAD else _TAKES
    taken = takes.get(first.m, ()) if first.m == first.n else ()
    if tuple(second) in taken:
        return None
    return Rejection(
        f"scores in tiles of {first.m} x {first.n} cannot be operands of {second.m}x{second.n}x{second.k}",
        "mma",
        (16, 16, first.k, 16, 16, 16, *config.mma[6:]),
    )


@rule(
    "P466",
    "other-query-limit",
    reads=("family", "pipeline", "block", "max_seqlen_q"),
    enforced_by="compiler",
    good=DECODE,
    bad={**DQ_DK_DV_EXAMPLE, "max_seqlen_q": 32},
    arch="gfx950",
)
def check_query_limit(config: Config, arch: Arch) -> Rejection | None:
    """max_seqlen_q must be m0 for trload_qr_qtr_dor, and 0 for the others.

    Why: that pipeline has one query tile and no loop; the others always have a loop over query tiles
    (FmhaBwdDQDKDVKernel in kernel/fmha_bwd_kernel.hpp and TileFmhaBwdShape assert both).

    Fix: use max_seqlen_q = m0 with trload_qr_qtr_dor, else leave it out.
    """
    tile = get_tile(config)
    if config.family != DQ_DK_DV or not tile:
        return None
    wanted = tile["m0"] if config.pipeline == WHOLE_HEAD else 0
    if config.max_seqlen_q == wanted:
        return None
    return Rejection(
        f"{config.pipeline} with m0 = {tile['m0']} needs max_seqlen_q {wanted}, not {config.max_seqlen_q}",
        "max_seqlen_q",
        wanted,
    )


@rule(
    "P467",
    "gradients-need-transposing-reads",
    reads=("family", "pipeline"),
    enforced_by="device",
    good=DQ_DK_DV_EXAMPLE,
    bad=TRLOAD,
)
def check_transposing_reads(config: Config, arch: Arch) -> Rejection | None:
    """The trload pipelines need a GPU with transposing LDS reads.

    Why: for another GPU they compile to a kernel that returns at once and writes nothing
    (FmhaBwdDQDKDVKernel::kIsAvailable in kernel/fmha_bwd_kernel.hpp).

    Fix: use the pipeline kr_ktr_vr_iglp.
    """
    if config.family != DQ_DK_DV or config.pipeline not in _TRLOAD or arch.lds.transpose_read_bytes:
        return None
    return Rejection(
        f"{arch.name} has no transposing LDS reads, which {config.pipeline} needs", "pipeline", "kr_ktr_vr_iglp"
    )


@rule(
    "P479",
    "copied-heads",
    reads=("family", "pipeline", "pad_hdim_q", "pad_hdim_v"),
    enforced_by="compiler",
    good={**TRLOAD, "pad_hdim_q": 8, "pad_hdim_v": 8},
    bad={**TRLOAD, "pad_hdim_q": 1},
    arch="gfx950",
)
def check_head_padding(config: Config, arch: Arch) -> Rejection | None:
    """The trload pipelines pad heads by 8 or not at all.

    Why: they copy vectors asynchronously, which is not possible for a single element
    (`bytes == 4 || bytes == 12 || bytes == 16` is asserted).

    Fix: use 0 or 8 for pad_hdim_q and pad_hdim_v.
    """
    if config.family != DQ_DK_DV or config.pipeline not in _TRLOAD:
        return None
    for name in ("pad_hdim_q", "pad_hdim_v"):
        if getattr(config, name) == 1:
            return Rejection(f"{config.pipeline} cannot pad {name.removeprefix('pad_')} by 1", name, 8)
    return None


@rule(
    "P482",
    "bias-of-few-queries",
    reads=("family", "pipeline", "bias"),
    enforced_by="device",
    good={**DECODE, "bias": "alibi"},
    bad={**DECODE, "bias": "elementwise"},
    arch="gfx950",
)
def check_bias(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline trload_qr_qtr_dor does not support an elementwise bias.

    Why: with more keys than n0 the gradients are wrong. Without a bias, and with ALiBi, they are correct.

    Fix: use the pipeline trload_kr_ktr_vr instead.
    """
    if config.family != DQ_DK_DV or config.pipeline != "trload_qr_qtr_dor" or config.bias != "elementwise":
        return None
    return Rejection("trload_qr_qtr_dor gives wrong results with an elementwise bias", "pipeline", "trload_kr_ktr_vr")


@rule(
    "P468",
    "random-numbers-without-dropout",
    reads=("family", "dropout", "store_randval"),
    enforced_by="compiler",
    good={**DQ_DK_DV_EXAMPLE, "dropout": True, "store_randval": True},
    bad={**DQ_DK_DV_EXAMPLE, "store_randval": True},
)
def check_stored_random_numbers(config: Config, arch: Arch) -> Rejection | None:
    """Only a kernel with dropout can store random numbers.

    Why: without dropout there are none, and the kernel has no argument for them.

    Fix: set dropout, or leave store_randval out.
    """
    if config.family != DQ_DK_DV or config.dropout or not config.store_randval:
        return None
    return Rejection(f"store_randval is {config.store_randval} without dropout", "dropout", True)


@rule(
    "P470",
    "waves-without-barrier",
    reads=("family", "pipeline", "waves"),
    enforced_by="device",
    good=DECODE,
    bad={**DECODE, "waves": (1, 2, 1, 2, 1, 1, 1, 2, 1), "block": (32, 64, 64, 32, 64, 32, 32, 64, 64)},
    arch="gfx950",
)
def check_single_wave(config: Config, arch: Arch) -> Rejection | None:
    """trload_qr_qtr_dor supports only one wave.

    Why: each wave copies a part of the queries to LDS and then reads all of them, without a barrier in between
    (BlockFmhaBwdDQDKDVPipelineTrLoadQRQTRDOR::run in pipeline/).

    Fix: use waves 1x1x1 for each GEMM.
    """
    if config.family != DQ_DK_DV or config.pipeline != WHOLE_HEAD or set(config.waves) <= {1}:
        return None
    return Rejection(f"{WHOLE_HEAD} does not support waves {'x'.join(map(str, config.waves))}", "waves", (1,) * 9)


@rule(
    "P469",
    "order-without-parts",
    reads=("family", "pipeline", "deterministic"),
    enforced_by="tilewright",
    good=DECODE,
    bad={**DECODE, "deterministic": True},
    arch="gfx950",
)
def check_deterministic(config: Config, arch: Arch) -> Rejection | None:
    """trload_qr_qtr_dor must not set `deterministic`: it always is.

    Why: one work-group sums the query gradient over all keys, in one order, without atomic adds. With `deterministic`
    it would be the same kernel under another name, without parts that convert_dq could add.

    Fix: leave deterministic out.
    """
    if config.family != DQ_DK_DV or config.pipeline != WHOLE_HEAD or not config.deterministic:
        return None
    return Rejection(f"{WHOLE_HEAD} has no partial sums", "deterministic", False)
