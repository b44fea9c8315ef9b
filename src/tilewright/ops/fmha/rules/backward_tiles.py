"""The tiles of gradient kernels: P475 to P478. File names are below ck_tile/ops/fmha/.

Functions that return a text or None repeat the integer arithmetic of CK Tile's policies: how the threads of a
work-group share the tiles that they load. Where a division has a remainder, a part of a tile has no thread, and an
assertion or a division by zero stops the compiler. Names are those of block_fmha_bwd_pipeline_default_policy.hpp and of
the policy of trload.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_kind
from tilewright.ops.fmha.rules.examples import CONVERT, DOT, GRADIENT, GRADIENT_DECODE
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import examples

_VECTOR, _WORD = 16, 4  # bytes of the widest load, and of the narrowest that is used
_LDS_ROW = 128  # bytes in one row of all LDS banks: 32 of 4 bytes
_ELEMENT = 2  # bytes of an element, which MakeXTLdsBlockDescriptor assumes for all types
_ODD_STEP, _ODD_LANES, _ODD_PACK = 32, 16, 2  # heads that are not powers of two: elements, lanes, elements per lane
_TRLOAD_ROW = 128  # bytes of a row that a wave copies to LDS at once
_GRADIENTS = TileRules({"family": "dq_dk_dv"}, GRADIENT)
_DECODE = TileRules({"family": "dq_dk_dv", "pipeline": "trload_qr_qtr_dor"}, GRADIENT_DECODE, "gfx950")


@examples(bad={"block": (48, 128, 64, 48, 64, 48, 32, 64, 64)})
@_GRADIENTS.tile_rule("P475", "tile-not-shared", "compiler", ("dtype", "pipeline", "waves", "mma", "bias"))
def check_tile_sharing(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The threads must share each tile evenly: queries, keys, values, the output gradient and the bias.

    Why: CK Tile gives each thread the same number of vectors of a tile, plain and transposed, and requires divisions
    without a remainder (Make...DramTileDistribution and MakeXTLdsBlockDescriptor in
    pipeline/block_fmha_bwd_pipeline_default_policy.hpp).
    Fix: use powers of two for m0, n0 and the head sizes, and fewer waves for small tiles.
    """
    waves = config.waves[0] * config.waves[1] * config.waves[2]
    size = find_dtype(DTYPES[config.dtype].qkv).storage_bytes
    threads = TileThreads(waves, arch.wave_size, size, config.mma[0])
    if config.pipeline.startswith("trload"):
        fault = _check_trload_tiles(threads, tile)
    else:
        fault = _check_gradient_tiles(threads, tile, has_bias=config.bias == "elementwise")
    return Rejection(fault, "block") if fault else None


@examples(bad={"block": (32, 256, 64, 32, 64, 32, 32, 64, 64)})
@_DECODE.tile_rule("P476", "scores-beyond-lds", "compiler", ("dtype", "waves", "mma", "bias"))
def check_score_lds(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With trload_qr_qtr_dor the keys, values and scores of a tile must fit into the LDS that CK Tile allocates.

    Why: the pipeline stores scores after keys and values, but GetSmemSize only counts them after queries and gradients.
    With many more keys than queries in a tile they are beyond the end; most such tiles do not compile.
    Fix: use an n0 of at most twice m0.
    """
    types = DTYPES[config.dtype]
    rows = tile.n0 * (tile.hdim_q + tile.hdim_v) * find_dtype(types.qkv).storage_bytes
    used = rows + tile.m0 * tile.n0 * find_dtype(types.p).storage_bytes
    allocated = find_kind(config).lds_bytes(config, arch)
    if used <= allocated:
        return None
    return Rejection(f"scores end at {used:,} bytes of LDS, but {allocated:,} are allocated", "block")


@examples(bad={"block": (96, 64)})
@TileRules({"family": "dot_do_o"}, DOT).tile_rule("P477", "rows-not-shared", "compiler", ("dtype",))
def check_dot_rows(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """dot_do_o needs whole waves, and output rows that are a multiple of 16 bytes.

    Why: each thread loads one row in vectors of 16 bytes (MakePreXDramTileDistribution).
    Fix: use a multiple of the wave size for threads, and a multiple of 8 for hdim_v.
    """
    if tile.threads % arch.wave_size:
        return Rejection(f"{tile.threads} threads are not a multiple of the wave's {arch.wave_size}", "block")
    vector = _VECTOR // find_dtype(DTYPES[config.dtype].o).storage_bytes
    if tile.hdim_v % vector:
        return Rejection(f"hdim_v = {tile.hdim_v} is not a multiple of {vector}", "block")
    return None


@examples(bad={"block": (256, 8, 64, 64)})
@TileRules({"family": "convert_dq"}, CONVERT).tile_rule("P478", "sums-not-shared", "compiler")
def check_convert_rows(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """convert_dq needs whole waves, which must share a tile of m0 rows evenly.

    Why: lanes load vectors of 4 sums (MakePostQGradDramTileDistribution).
    Fix: use a larger m0, or fewer threads.
    """
    if tile.threads % arch.wave_size:
        return Rejection(f"{tile.threads} threads are not a multiple of the wave's {arch.wave_size}", "block")
    fault = _check_convert_tile(tile, arch.wave_size)
    return Rejection(fault, "block") if fault else None


@dataclass(frozen=True, slots=True)
class TileThreads:
    """The threads that share a tile."""

    waves: int
    wave_size: int
    size: int  # bytes of an element
    mma_m: int  # rows of the first GEMM's instruction

    @property
    def count(self) -> int:
        return self.waves * self.wave_size


def _check_gradient_tiles(threads: TileThreads, tile: Tile, *, has_bias: bool) -> str | None:
    """Check the tiles of pipelines that load through registers."""
    m0, n0, hdim_q, hdim_v = tile.m0, tile.n0, tile.hdim_q, tile.hdim_v
    turned = [("queries", m0, hdim_q), ("output gradients", m0, hdim_v), ("keys", n0, hdim_q)]
    for name, rows, columns in (*turned, ("the bias", m0, n0)) if has_bias else turned:
        fault = _check_transposed_tile(threads, rows, columns, may_be_odd=name != "the bias")
        if fault:
            return f"{name}, {rows} x {columns}: {fault}"
    fault = _check_plain_tile(threads, n0, hdim_v)
    if fault:
        return f"values, {n0} x {hdim_v}: {fault}"
    if threads.wave_size % m0 and m0 % threads.wave_size:  # LSE and d: MakeLSEDDramTileDistribution
        return f"m0 = {m0} and a wave's {threads.wave_size} lanes do not divide each other"
    return None


def _check_trload_tiles(threads: TileThreads, tile: Tile) -> str | None:
    """Check the tiles of pipelines that copy to LDS asynchronously."""
    for rows, columns in itertools.product((tile.m0, tile.n0), (tile.hdim_q, tile.hdim_v)):
        fault = _check_copied_tile(threads, rows, columns)
        if fault:
            return f"a tile of {rows} x {columns}: {fault}"
    if threads.wave_size % tile.m0:
        return f"a wave's {threads.wave_size} lanes are not a multiple of m0 = {tile.m0}"
    return None


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _check_transposed_tile(threads: TileThreads, rows: int, columns: int, *, may_be_odd: bool) -> str | None:
    """Check a tile stored plain and transposed: Make{Q,K,OGrad}DramTileDistribution, MakeBiasTileDistribution."""
    if may_be_odd and not _is_power_of_two(columns):
        if columns % _ODD_STEP:
            return f"a head size of {columns} is neither a power of two nor a multiple of {_ODD_STEP}"
        each, rest = divmod(rows, threads.wave_size // _ODD_LANES * threads.waves)
        if rest or not each:
            return f"{threads.waves} waves cannot share {rows} rows evenly"
        return _check_transposed_lds(threads, rows, _ODD_STEP, _ODD_PACK, each)
    pixels, rest = divmod(rows * columns, threads.count)
    widest, least = _VECTOR // threads.size, _WORD // threads.size
    vector = widest if pixels // widest >= least else pixels // least
    if rest or vector == 0 or pixels % vector or columns % vector:
        return f"{threads.count} threads cannot share {rows * columns} elements evenly in vectors"
    lanes = columns // vector
    if threads.wave_size % lanes:
        return f"a row takes {lanes} lanes, which does not divide the wave's {threads.wave_size}"
    return _check_transposed_lds(threads, rows, columns, vector, pixels // vector)


def _check_transposed_lds(threads: TileThreads, rows: int, columns: int, pack: int, turned_pack: int) -> str | None:
    """Check a transposed tile in LDS: MakeXTLdsBlockDescriptor."""
    vectors = columns // pack
    writers, readers = threads.count // vectors, threads.wave_size // threads.mma_m
    packs = rows // turned_pack
    written, read = (packs // writers, packs // readers) if writers and readers else (0, 0)
    if not written or not read:
        return f"{packs} transposed vectors of {turned_pack} are too few for {threads.count} threads"
    line = turned_pack * vectors * _ELEMENT
    fold = 1 if line > _LDS_ROW else _LDS_ROW // line
    ratio = fold * written // read
    together = readers // ratio if ratio > 1 else readers
    groups = writers // fold // together if together else 0
    if together * groups * fold * written * turned_pack != rows:
        return f"transposed vectors of {turned_pack} do not fill whole LDS rows"
    return None


def _check_plain_tile(threads: TileThreads, rows: int, columns: int) -> str | None:
    """Check a tile that is stored plain: MakeVDramTileDistribution."""
    if not _is_power_of_two(columns):
        return _check_transposed_tile(threads, rows, columns, may_be_odd=True)
    pixels, rest = divmod(rows * columns, threads.count)
    vector = min(_VECTOR // threads.size, pixels)
    if rest or not vector or columns % vector or threads.wave_size % (columns // vector):
        return f"{threads.count} threads cannot share {rows * columns} elements evenly"
    at_once = threads.wave_size // (columns // vector) * threads.waves
    return f"the waves load {at_once} rows at once, which does not divide {rows}" if rows % at_once else None


def _check_copied_tile(threads: TileThreads, rows: int, columns: int) -> str | None:
    """Check a tile of trload: MakeXDramTileDistribution."""
    pieces, rest = divmod(columns * threads.size, _TRLOAD_ROW)
    if rest or not pieces:
        return f"a row of {columns * threads.size} bytes is not a multiple of {_TRLOAD_ROW}"
    along = min(threads.waves, pieces)
    across = max(1, threads.waves // along)
    if pieces % along or along * across != threads.waves:
        return f"{threads.waves} waves cannot share {pieces} pieces of a row evenly"
    at_once = across * threads.wave_size // (_TRLOAD_ROW // _VECTOR)
    return f"the waves copy {at_once} rows at once, which does not divide {rows}" if rows % at_once else None


def _check_convert_tile(tile: Tile, wave_size: int) -> str | None:
    """Check the tile of convert_dq: MakePostQGradDramTileDistribution."""
    vectors, rest = divmod(tile.hdim_q, _VECTOR // 4)  # of fp32
    lanes = min(vectors, wave_size)
    if rest or not vectors or vectors % lanes or wave_size % lanes:
        return f"{wave_size} lanes cannot share a row of {tile.hdim_q} elements evenly"
    at_once = tile.threads // wave_size * (wave_size // lanes)
    if tile.m0 % at_once:
        return f"{tile.threads} threads convert {at_once} rows at once, which does not divide m0 = {tile.m0}"
    return None
