"""The tiles of forward kernels: P411 to P424. File names are below ck_tile/ops/fmha/pipeline/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import FORWARD, tile_of
from tilewright.ops.fmha.resources.forward import Facts, facts_of
from tilewright.ops.fmha.resources.spread import buffers, direct_fault, spread_fault, values_fault
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.rule import Fault, rule

TILES = ("family", "pipeline", "block", "waves", "mma")
# Pipelines with the policy of block_fmha_pipeline_qx_ks_vs_custom_policy.hpp, or one made of it.
_CLASSIC = ("qr", "qr_async", "qr_whole_k", "qs")
# tile_fmha_shape.hpp, ceil_to_qualified_tile_length: besides powers of two.
_ODD_HEADS = (48, 96, 160, 192)
_LARGEST_HEAD = 256
# k of the instruction that a matrix tile of m rows is made of, by bits of an element: gemm/warp/warp_gemm.hpp.
_HARDWARE_K = {(16, 32): 8, (16, 16): 16, (8, 32): 16, (8, 16): 32, (32, 16): 4}
_ASYNC: Mapping[str, Any] = {"pipeline": "qr_async", "pad_hdim_q": 8, "pad_hdim_v": 8}
_SMALL: Mapping[str, Any] = {"block": (64, 64, 16, 32, 16, 32), "mma": (16, 16, 16, 16, 16, 16)}


def tile_for(config: Any) -> dict[str, int]:
    """The block of a forward config by name; nothing for other families and for lists of other lengths."""
    if config.family != FORWARD or len(config.waves) != 6 or len(config.mma) != 6:
        return {}
    return {} if 0 in (*config.block, *config.waves, *config.mma) else tile_of(config)


def facts_for(config: Any, arch: Arch, *pipelines: str, dropout: bool = False) -> Facts | None:
    """What formulas read, for configs of these pipelines that they can be asked about."""
    return facts_of(config, arch, dropout=dropout) if tile_for(config) and config.pipeline in pipelines else None


@rule(
    "P411",
    "head-size-unknown",
    reads=("family", "block"),
    enforced_by="compiler",
    good={"block": (128, 128, 32, 128, 32, 96)},
    bad={"block": (128, 128, 16, 128, 32, 80)},
)
def head_size_unknown(config: Any, arch: Arch) -> Fault | None:
    """The tile's hdim_q is a power of two, 48, 96, 160 or 192, at most 256.

    Why: ceil_to_qualified_tile_length in tile_fmha_shape.hpp knows no other, and pipelines assert 256.

    Fix: the next larger one, and pad_hdim_q.
    """
    hdim = tile_of(config).get("hdim_q", 0) if config.family == FORWARD else 0
    known = hdim in _ODD_HEADS or hdim & (hdim - 1) == 0
    if known and hdim <= _LARGEST_HEAD:
        return None
    return Fault(f"hdim_q = {hdim} is no power of two, 48, 96, 160 or 192 of at most {_LARGEST_HEAD}", "block")


@rule(
    "P412",
    "head-not-stepped",
    reads=("family", "block"),
    enforced_by="compiler",
    good={"block": (128, 128, 32, 128, 32, 96)},
    bad={"block": (128, 128, 64, 128, 32, 160)},
)
def head_not_stepped(config: Any, arch: Arch) -> Fault | None:
    """hdim_q is a multiple of k0.

    Why: the first GEMM goes over the head in steps of k0 (tile_fmha_shape.hpp asserts it).

    Fix: a k0 that divides hdim_q.
    """
    tile = tile_of(config) if config.family == FORWARD else {}
    if not tile or not tile["k0"] or tile["hdim_q"] % tile["k0"] == 0:
        return None
    return Fault(f"hdim_q = {tile['hdim_q']} is no multiple of k0 = {tile['k0']}", "block")


@rule(
    "P413",
    "keys-not-stepped",
    reads=("family", "block"),
    enforced_by="compiler",
    good={"block": (128, 128, 32, 128, 64, 128)},
    bad={"block": (128, 64, 32, 128, 128, 128)},
)
def keys_not_stepped(config: Any, arch: Arch) -> Fault | None:
    """n0 is a multiple of k1.

    Why: the second GEMM goes over a tile's keys in steps of k1; each pipeline asserts at least one.

    Fix: a k1 that divides n0.
    """
    tile = tile_of(config) if config.family == FORWARD else {}
    if not tile or not tile["k1"] or tile["n0"] % tile["k1"] == 0:
        return None
    return Fault(f"n0 = {tile['n0']} is no multiple of k1 = {tile['k1']}", "block")


@rule(
    "P414",
    "few-steps",
    reads=("family", "pipeline", "block"),
    enforced_by="compiler",
    good={"block": (128, 128, 64, 128, 32, 128)},
    bad={"block": (128, 128, 128, 128, 32, 128)},
)
def few_steps(config: Any, arch: Arch) -> Fault | None:
    """The pipelines qr, qs and qr_whole_k take at least two steps over a head, the last one also over a tile's keys.

    Why: while they compute one step they load the next, and have no code for a single one (they assert it).

    Fix: a smaller k0, or k1.
    """
    tile = tile_of(config) if config.family == FORWARD and config.pipeline in ("qr", "qs", "qr_whole_k") else {}
    if not tile or not tile["k0"] or not tile["k1"]:
        return None
    if tile["hdim_q"] // tile["k0"] < 2:
        return Fault(f"{config.pipeline} takes two steps over hdim_q = {tile['hdim_q']}, k0 is {tile['k0']}", "block")
    if config.pipeline == "qr_whole_k" and tile["n0"] // tile["k1"] < 2:
        return Fault(f"qr_whole_k takes two steps over n0 = {tile['n0']}, k1 is {tile['k1']}", "block")
    return None


@rule(
    "P415",
    "schedule-not-whole",
    reads=TILES,
    enforced_by="compiler",
    good={"block": (128, 128, 32, 256, 32, 256)},
    bad={"block": (128, 64, 16, 256, 32, 256)},
)
def schedule_not_whole(config: Any, arch: Arch) -> Fault | None:
    """With hdim_q 256, a wave of the pipeline qr has a multiple of 8 matrix instructions in one step.

    Why: the pipeline orders them in groups of 8 for such heads (schedule_gemm0 in block_fmha_pipeline_qr_ks_vs.hpp
    asserts it). Only where waves have 64 lanes.

    Fix: a larger n0 or k0.
    """
    tile = tile_for(config)
    if not tile or config.pipeline != "qr" or tile["hdim_q"] != _LARGEST_HEAD or arch.wave_size != 64:
        return None
    count = _instructions(config, tile, arch)
    if count % 8 == 0:
        return None
    return Fault(f"a wave has {count} matrix instructions in one step over k0, no multiple of 8", "block")


def _instructions(config: Any, tile: Mapping[str, int], arch: Arch) -> int:
    """Matrix instructions of a wave in one step: CK Tile's matrix tile may be several of them along k."""
    m, n, k = config.mma[:3]
    size = dtype(DTYPES[config.dtype].qkv).bits
    single = _HARDWARE_K.get((size, m), k)
    if size == 16 and arch.lds.transpose_read_bytes:  # gfx950, whose instructions are twice as long
        single = k
    waves = config.waves[0] * config.waves[1]
    count: int = tile["m0"] // m * (tile["n0"] // n) * (tile["k0"] // min(k, single)) // waves
    return count


@rule(
    "P416",
    "waves-along-n",
    reads=("family", "pipeline", "waves"),
    enforced_by="device",
    good={},
    bad={"waves": (1, 4, 1, 4, 1, 1)},
)
def waves_along_n(config: Any, arch: Arch) -> Fault | None:
    """Both GEMMs have all their waves along m.

    Why: a row's largest score and sum are found within one wave (block_tile_reduce_sync), and a wave's probabilities
    are its own operand of the second GEMM. CK Tile copies registers without a look at whose they are; some of these
    configs do not compile, others compute nonsense.

    Fix: the same number of waves along m for both, 1 along n.
    """
    if config.family != FORWARD or config.pipeline == "qr_async_trload" or len(config.waves) != 6:
        return None
    m0, n0, _, m1, n1, _ = config.waves
    if (n0, n1) == (1, 1) and m0 == m1:
        return None
    return Fault(f"waves along n are {n0} and {n1}, along m {m0} and {m1}", "waves", (m0, 1, 1, m0, 1, 1))


@rule(
    "P417",
    "other-layout",
    reads=("family", "pipeline", "dtype", "mma"),
    enforced_by="device",
    good={"mma": (32, 32, 8, 32, 32, 16)},
    bad={"mma": (32, 32, 16, 32, 32, 8)},
)
def other_layout(config: Any, arch: Arch) -> Fault | None:
    """The second GEMM's matrix tile takes probabilities as the first one's leaves them.

    Why: they stay in their registers. A lane has so many neighbouring scores of a row: 4 with 16 × 16 tiles, 8 with
    32 × 32 ones, 16 with those for fp8; the second GEMM must want as many. CK Tile copies registers without a look at
    what they hold (BlockGemmARegBSmemCRegV2 in gemm/block/).

    Fix: a second mma of the same m and n whose k is 16 for 16-bit types and fp32, and 32 for fp8.
    """
    if config.family != FORWARD or config.pipeline not in _CLASSIC or len(config.mma) != 6:
        return None
    first, second = config.mma[:3], config.mma[3:]
    if first[:2] != second[:2]:
        return Fault(f"mma {by(first)} and {by(second)} must have the same m and n", "mma")
    eight = DTYPES[config.dtype].qkv in ("fp8", "bf8")
    wanted = 32 if eight and arch.wave_size == 64 and first[0] == 32 else 16
    if second[2] == wanted:
        return None
    fixed = (*first, first[0], first[1], wanted)
    return Fault(f"the second mma has k = {second[2]}; scores lie as one of k = {wanted} takes them", "mma", fixed)


def by(numbers: tuple[int, ...]) -> str:
    """Numbers as they are read."""
    return " x ".join(map(str, numbers))


@rule(
    "P418",
    "eight-bit-mma",
    reads=("family", "pipeline", "dtype", "mma"),
    enforced_by="compiler",
    good={"dtype": "fp8bf16", "mma": (32, 32, 32, 32, 32, 32)},
    bad={"dtype": "fp8bf16", "mma": (32, 32, 16, 32, 32, 32)},
)
def eight_bit_mma(config: Any, arch: Arch) -> Fault | None:
    """fp8 has the matrix tile 32 × 32 × 32 where waves have 64 lanes, and bf8 none.

    Why: GetQKBlockGemm and GetKVBlockGemm in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp are written for this one,
    and WarpGemmDispatcher in gemm/warp/ has none for bf8 whose result lies as the second GEMM takes it.

    Fix: mma 32x32x32 for both GEMMs, or another type.
    """
    qkv = DTYPES[config.dtype].qkv
    if config.family != FORWARD or config.pipeline not in _CLASSIC or arch.wave_size != 64:
        return None
    if qkv == "bf8":
        return Fault(f"{arch.name} has no matrix tile for attention with bf8", "dtype", "fp8")
    if qkv != "fp8" or config.mma == (32,) * 6:
        return None
    return Fault(f"mma {by(config.mma)}, fp8 has 32 x 32 x 32 twice", "mma", (32,) * 6)


@rule(
    "P421",
    "keys-not-spread",
    reads=("dtype", *TILES),
    enforced_by="compiler",
    good=_SMALL,
    bad={**_SMALL, "block": (64, 48, 16, 32, 16, 32)},
)
def keys_not_spread(config: Any, arch: Arch) -> Fault | None:
    """The threads of a work-group share a tile of keys (of qs: of queries, too) evenly, in whole vectors.

    Why: each thread loads the same number of elements of a row at once (MakeKDramTileDistribution in the policies).

    Fix: powers of two for n0 and k0, a larger k0, or fewer waves.
    """
    facts = facts_for(config, arch, "qr", "qs", "qr_whole_k")
    if facts is None:
        return None
    fault = spread_fault(facts, "the keys'", facts.tile["n0"], facts.tile["k0"])
    if fault is None and config.pipeline == "qs":
        fault = spread_fault(facts, "the queries'", facts.tile["m0"], facts.tile["k0"])
    each = facts.tile["n0"] * facts.tile["k0"] // facts.threads
    if fault is None and config.pipeline == "qr_whole_k" and min(facts.pack, each) % (8 // facts.size):
        fault = f"a thread loads {each} elements of the keys' tile, fewer than the {8 // facts.size} of a pack in LDS"
    return None if fault is None else Fault(fault, "block")


@rule(
    "P422",
    "copies-split",
    reads=("dtype", *TILES),
    enforced_by="compiler",
    good=_ASYNC,
    bad={**_ASYNC, "block": (64, 16, 16, 128, 16, 128), "mma": (16, 16, 16, 16, 16, 16)},
)
def copies_split(config: Any, arch: Arch) -> Fault | None:
    """The waves of qr_async copy a tile of keys, n0 × k1, in whole copies of whole rows.

    Why: in a copy past registers each lane brings 4 bytes (16 on gfx950) to a place that follows its neighbour's
    (MakeKLdsStoreBlockDescriptor in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp asserts both).

    Fix: a larger n0 or k1, or fewer waves.
    """
    facts = facts_for(config, arch, "qr_async")
    fault = None if facts is None else direct_fault(facts)
    return None if fault is None else Fault(fault, "block")


@rule(
    "P423",
    "buffers-taken",
    reads=("family", "pipeline", "block"),
    enforced_by="device",
    good=_ASYNC,
    bad={**_ASYNC, "block": (128, 128, 32, 128, 32, 96)},
)
def other_steps(config: Any, arch: Arch) -> Fault | None:
    """With qr_async, k0 is at most k1, and the first values have another LDS buffer than the last keys.

    Why: keys and values share three buffers that are k1 wide, while the loop over a head goes on by k0. Nothing waits
    between the last keys and the first values (block_fmha_pipeline_qr_ks_vs_async.hpp): in the same buffer
    (LdsBufferSequence in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp) a fast wave overwrites keys that a slow one
    has yet to read. The compiler does not mind either.

    Fix: a k0 that is no larger than k1; another n0, such as 64 for heads of 96.
    """
    tile = tile_of(config) if config.family == FORWARD and config.pipeline == "qr_async" else {}
    if not tile or not tile["k0"] or not tile["k1"]:
        return None
    if tile["k0"] > tile["k1"]:
        return Fault(f"k0 = {tile['k0']} is above k1 = {tile['k1']}, the width of the buffers of qr_async", "block")
    over_head, over_keys = tile["hdim_q"] // tile["k0"], tile["n0"] // tile["k1"]
    order = buffers(over_head, over_keys)
    if not over_head or not over_keys or order[over_head - 1] != order[over_head]:
        return None
    return Fault(
        f"with {over_head} steps over a head and {over_keys} over keys, the last keys are overwritten", "block"
    )


@rule(
    "P424",
    "values-not-spread",
    reads=("dtype", "v_layout", *TILES),
    enforced_by="compiler",
    good={"block": (128, 128, 32, 160, 32, 128)},
    bad={"block": (128, 128, 32, 96, 32, 96)},
)
def values_not_spread(config: Any, arch: Arch) -> Fault | None:
    """The threads of a work-group share a tile of values, n1 × k1, evenly, and its lines in LDS are whole.

    Why: threads load vectors of a row and put packs of a column into lines as wide as all LDS banks
    (MakeVDramTileDistribution and MakeVLdsBlockDescriptor in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp).

    Fix: a power of two for n1 with pad_hdim_v, another k1, or fewer waves.
    """
    facts = facts_for(config, arch, *_CLASSIC)
    if facts is None:
        return None
    whole_k = config.pipeline == "qr_whole_k"
    fault = values_fault(facts, row_major=config.v_layout == "row", other_orders=not whole_k)
    return None if fault is None else Fault(fault, "block")
