"""The tiles of forward kernels: P411 to P424, P483. File names are below ck_tile/ops/fmha/pipeline/."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import get_tile
from tilewright.ops.fmha.resources import tile_distribution
from tilewright.ops.fmha.resources.forward import get_sizes
from tilewright.ops.fmha.rules.examples import ASYNC, MMA_16
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import divides, examples, until

_FORWARD = TileRules({"family": "forward"})
_ASYNC = TileRules({"family": "forward", "pipeline": "qr_async"}, ASYNC)
# Pipelines with the policy of block_fmha_pipeline_qx_ks_vs_custom_policy.hpp, or one derived from it.
_CLASSIC = TileRules({"family": "forward", "pipeline": ("qr", "qr_async", "qr_whole_k", "qs")})
# Of these, the pipelines without asynchronous copies.
_PLAIN = TileRules({"family": "forward", "pipeline": ("qr", "qr_whole_k", "qs")})
# tile_fmha_shape.hpp, ceil_to_qualified_tile_length: the sizes that are not powers of two.
_NEWER_HEAD = 80
_ODD_HEADS = (48, _NEWER_HEAD, 96, 160, 192)
_LARGEST_HEAD = 256
# k of the instruction of a matrix tile, by bits of an element and rows m: gemm/warp/warp_gemm.hpp.
_HARDWARE_K = {(16, 32): 8, (16, 16): 16, (8, 32): 16, (8, 16): 32, (32, 16): 4}


@examples(good={"block": (128, 128, 32, 128, 32, 96)}, bad={"block": (128, 128, 16, 128, 32, 112)})
@_FORWARD.tile_rule("P411", "head-size-unknown", "compiler")
def check_head_size(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The tile's hdim_q must be a power of two up to 256, or 48, 80, 96, 160 or 192.

    Why: ceil_to_qualified_tile_length in tile_fmha_shape.hpp supports no others, and pipelines assert the limit of 256.
    Fix: use the next larger size, with pad_hdim_q."""
    hdim = tile.hdim_q
    if hdim in _ODD_HEADS or (hdim & (hdim - 1) == 0 and hdim <= _LARGEST_HEAD):
        return None
    return Rejection(f"hdim_q = {hdim} is not a power of two up to {_LARGEST_HEAD}, or 48, 80, 96, 160 or 192", "block")


@until("2026-06")
@examples(good={"block": (128, 128, 32, 128, 32, 96)}, bad={"block": (128, 128, 16, 128, 32, 80)})
@_FORWARD.tile_rule("P483", "head-of-80", "compiler")
def check_head_of_80(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """Tiles with hdim_q = 80 are supported since CK 2026-06 only.

    Why: ceil_to_qualified_tile_length in tile_fmha_shape.hpp has no such size before.
    Fix: use 96, with pad_hdim_q."""
    if tile.hdim_q != _NEWER_HEAD:
        return None
    return Rejection(f"hdim_q = {tile.hdim_q} is supported since CK 2026-06 only", "block", tile.replace(hdim_q=96))


check_head_steps = divides(
    "P412",
    "head-not-stepped",
    "k0",
    "hdim_q",
    numbers=get_tile,
    reads=("block",),
    when=_FORWARD.when,
    enforced_by="compiler",
    good={"block": (128, 128, 32, 128, 32, 96)},
    bad={"block": (128, 128, 64, 128, 32, 160)},
    why="the first GEMM goes over the head in steps of k0 (tile_fmha_shape.hpp asserts it).",
    fix="use a k0 that divides hdim_q.",
)
check_key_steps = divides(
    "P413",
    "keys-not-stepped",
    "k1",
    "n0",
    numbers=get_tile,
    reads=("block",),
    when=_FORWARD.when,
    enforced_by="compiler",
    good={"block": (128, 128, 32, 128, 64, 128)},
    bad={"block": (128, 64, 32, 128, 128, 128)},
    why="the second GEMM goes over a tile's keys in steps of k1; each pipeline asserts at least one step.",
    fix="use a k1 that divides n0.",
)


@examples(good={"block": (128, 128, 64, 128, 32, 128)}, bad={"block": (128, 128, 128, 128, 32, 128)})
@_PLAIN.tile_rule("P414", "few-steps", "compiler")
def check_step_count(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The pipelines qr, qs and qr_whole_k need at least two steps over a head, qr_whole_k also over a tile's keys.

    Why: they load the next step while they compute one, and have no code for a single step (they assert it).
    Fix: use a smaller k0 or k1."""
    if tile.hdim_q // tile.k0 < 2:
        return Rejection(f"{config.pipeline} needs two steps over hdim_q = {tile.hdim_q}, k0 is {tile.k0}", "block")
    if config.pipeline == "qr_whole_k" and tile.n0 // tile.k1 < 2:
        return Rejection(f"qr_whole_k needs two steps over n0 = {tile.n0}, k1 is {tile.k1}", "block")
    return None


@examples(good={"block": (128, 128, 32, 256, 32, 256)}, bad={"block": (128, 64, 16, 256, 32, 256)})
@_FORWARD.tile_rule("P415", "schedule-not-whole", "compiler", ("dtype", "waves", "mma"), when={"pipeline": "qr"})
def check_schedule(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With hdim_q 256, the matrix instructions of a qr wave in one step must be a multiple of 8.

    Why: the pipeline schedules them in groups of 8 for such heads (schedule_gemm0 in block_fmha_pipeline_qr_ks_vs.hpp
    asserts it), if waves have 64 lanes.
    Fix: use a larger n0 or k0."""
    if tile.hdim_q != _LARGEST_HEAD or arch.wave_size != 64:
        return None
    count = _count_instructions(config, tile, arch)
    if count % 8 == 0:
        return None
    return Rejection(f"a wave has {count} matrix instructions in one step over k0, not a multiple of 8", "block")


def _count_instructions(config: Config, tile: Tile, arch: Arch) -> int:
    """Return a wave's matrix instructions in one step: CK Tile's matrix tile may consist of several along k."""
    m, n, k = config.mma[:3]
    size = find_dtype(DTYPES[config.dtype].qkv).bits
    single = _HARDWARE_K.get((size, m), k)
    if size == 16 and arch.lds.transpose_read_bytes:  # gfx950, whose instructions are twice as long
        single = k
    waves = config.waves[0] * config.waves[1]
    return tile.m0 // m * (tile.n0 // n) * (tile.k0 // min(k, single)) // waves


@examples(bad={"waves": (1, 4, 1, 4, 1, 1)})
@_FORWARD.rule("P416", "waves-along-n", "device", ("pipeline", "waves"))
def check_waves_along_n(config: Config, arch: Arch) -> Rejection | None:
    """Both GEMMs must have all their waves along m, the same number.

    Why: the maximum and the sum of a row are computed within one wave (block_tile_reduce_sync), and a wave uses its own
    probabilities as operand of the second GEMM. CK Tile copies registers without checking this; some of these configs
    do not compile, others compute wrong results.
    Fix: use the same number of waves along m for both, and 1 along n."""
    if config.pipeline == "qr_async_trload" or len(config.waves) != 6:
        return None
    m0, n0, _, m1, n1, _ = config.waves
    if (n0, n1) == (1, 1) and m0 == m1:
        return None
    message = f"the GEMMs have {n0} and {n1} waves along n, {m0} and {m1} along m"
    return Rejection(message, "waves", (m0, 1, 1, m0, 1, 1))


@examples(good={"mma": (32, 32, 8, 32, 32, 16)}, bad={"mma": (32, 32, 16, 32, 32, 8)})
@_CLASSIC.rule("P417", "other-layout", "device", ("dtype", "mma"))
def check_register_layout(config: Config, arch: Arch) -> Rejection | None:
    """The operand layout of the second GEMM's matrix tile must equal the result layout of the first one's.

    Why: probabilities stay in their registers. A lane has 4 neighbouring scores of a row with 16 × 16 tiles, 8 with
    32 × 32 tiles, and 16 with those for fp8; the second GEMM must take as many. CK Tile copies registers without
    checking this (BlockGemmARegBSmemCRegV2 in gemm/block/).
    Fix: use a second mma with the same m and n, and k = 16 for 16-bit types and fp32, or k = 32 for fp8."""
    if len(config.mma) != 6:
        return None
    first, second = config.mma[:3], config.mma[3:]
    if first[:2] != second[:2]:
        return Rejection(f"mma {format_numbers(first)} and {format_numbers(second)} must have the same m and n", "mma")
    eight_bits = DTYPES[config.dtype].qkv in ("fp8", "bf8")
    wanted = 32 if eight_bits and arch.wave_size == 64 and first[0] == 32 else 16
    if second[2] == wanted:
        return None
    message = f"the second mma has k = {second[2]}, but the layout of the scores needs k = {wanted}"
    return Rejection(message, "mma", (*first, first[0], first[1], wanted))


def format_numbers(numbers: tuple[int, ...]) -> str:
    """Format integers as `16 x 16 x 32`."""
    return " x ".join(map(str, numbers))


@examples(
    good={"dtype": "fp8bf16", "mma": (32, 32, 32, 32, 32, 32)},
    bad={"dtype": "fp8bf16", "mma": (32, 32, 16, 32, 32, 32)},
)
@_CLASSIC.rule("P418", "eight-bit-mma", "compiler", ("dtype", "mma"))
def check_eight_bit_mma(config: Config, arch: Arch) -> Rejection | None:
    """With waves of 64 lanes, fp8 needs the matrix tile 32 × 32 × 32, and bf8 has none.

    Why: GetQKBlockGemm and GetKVBlockGemm in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp are written for this one,
    and WarpGemmDispatcher in gemm/warp/ has none for bf8 with a result layout that the second GEMM takes.
    Fix: use mma 32x32x32 for both GEMMs, or another type."""
    qkv = DTYPES[config.dtype].qkv
    if arch.wave_size != 64 or qkv not in ("fp8", "bf8"):
        return None
    if qkv == "bf8":
        return Rejection(f"{arch.name} has no matrix tile for attention with bf8", "dtype", "fp8")
    if config.mma == (32,) * 6:
        return None
    return Rejection(f"mma is {format_numbers(config.mma)}, but fp8 needs 32 x 32 x 32 twice", "mma", (32,) * 6)


@examples(
    good={"block": (64, 64, 16, 32, 16, 32), "mma": MMA_16}, bad={"block": (64, 48, 16, 32, 16, 32), "mma": MMA_16}
)
@_PLAIN.tile_rule("P421", "keys-not-spread", "compiler", ("dtype", "waves", "mma"))
def check_key_sharing(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The threads of a work-group must share a key tile (with qs, also a query tile) evenly, in whole vectors.

    Why: each thread loads the same number of elements of a row at once (MakeKDramTileDistribution in the policies).
    Fix: use powers of two for n0 and k0, a larger k0, or fewer waves."""
    facts = get_sizes(config, arch)
    fault = tile_distribution.check_row_tile(facts, "the key", tile.n0, tile.k0)
    if fault is None and config.pipeline == "qs":
        fault = tile_distribution.check_row_tile(facts, "the query", tile.m0, tile.k0)
    each, packed = tile.n0 * tile.k0 // facts.threads, 8 // facts.size
    if fault is None and config.pipeline == "qr_whole_k" and min(facts.pack, each) % packed:
        fault = f"each thread loads {each} elements of the key tile, fewer than the {packed} of a pack in LDS"
    return Rejection(fault, "block") if fault else None


@examples(bad={"block": (64, 16, 16, 128, 16, 128), "mma": MMA_16})
@_ASYNC.tile_rule("P422", "copies-split", "compiler", ("dtype", "waves", "mma"))
def check_async_copies(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The waves of qr_async must copy a key tile, n0 × k1, in whole copies of whole rows.

    Why: in an asynchronous copy, each lane writes 4 bytes (16 on gfx950) to the address after its neighbour's
    (MakeKLdsStoreBlockDescriptor in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp asserts both).
    Fix: use a larger n0 or k1, or fewer waves."""
    fault = tile_distribution.check_async_keys(get_sizes(config, arch))
    return Rejection(fault, "block") if fault else None


@examples(bad={"block": (128, 128, 32, 128, 32, 96)})
@_ASYNC.tile_rule("P423", "buffers-taken", "device")
def check_buffer_order(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With qr_async, k0 must be at most k1, and the first values need another LDS buffer than the last keys.

    Why: keys and values share three buffers of width k1, while the loop over a head has steps of k0. The pipeline does
    not wait between the last keys and the first values (block_fmha_pipeline_qr_ks_vs_async.hpp): in the same buffer
    (LdsBufferSequence in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp) a fast wave overwrites keys that a slow one
    has not read yet. The compiler checks neither.
    Fix: use a k0 of at most k1, or another n0, such as 64 for heads of 96."""
    if tile.k0 > tile.k1:
        return Rejection(f"k0 = {tile.k0} is above k1 = {tile.k1}, the buffer width of qr_async", "block")
    over_head, over_keys = tile.hdim_q // tile.k0, tile.n0 // tile.k1
    order = tile_distribution.list_buffer_order(over_head, over_keys)
    if not over_head or not over_keys or order[over_head - 1] != order[over_head]:
        return None
    message = f"with {over_head} steps over a head and {over_keys} over keys, the last keys are overwritten"
    return Rejection(message, "block")


@examples(good={"block": (128, 128, 32, 160, 32, 128)}, bad={"block": (128, 128, 32, 96, 32, 96)})
@_CLASSIC.tile_rule("P424", "values-not-spread", "compiler", ("dtype", "v_layout", "waves", "mma"))
def check_value_sharing(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The threads of a work-group must share a value tile, n1 × k1, evenly, in whole LDS rows.

    Why: threads load vectors of a row and write packs of a column to rows across all LDS banks
    (MakeVDramTileDistribution and MakeVLdsBlockDescriptor in block_fmha_pipeline_qx_ks_vs_custom_policy.hpp).
    Fix: use a power of two for n1 with pad_hdim_v, another k1, or fewer waves."""
    row_major, other_orders = config.v_layout == "row", config.pipeline != "qr_whole_k"
    fault = tile_distribution.check_value_tile(get_sizes(config, arch), row_major=row_major, other_orders=other_orders)
    return Rejection(fault, "block") if fault else None
