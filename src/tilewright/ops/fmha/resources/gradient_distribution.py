"""The tile distributions of gradient pipelines: how the threads of a work-group share the tiles that they load.

Each check returns an error message or None. They repeat the integer arithmetic of CK Tile's policies: where a division
has a remainder, a part of a tile has no thread, and an assertion or a division by zero stops the compiler. Names are
those of block_fmha_bwd_pipeline_default_policy.hpp and of the policy of trload.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

_VECTOR, _WORD = 16, 4  # bytes of the widest load, and of the narrowest that is used
_LDS_ROW = 128  # bytes in one row of all LDS banks: 32 of 4 bytes
_ELEMENT = 2  # bytes of an element, which MakeXTLdsBlockDescriptor assumes for all types
_ODD_STEP, _ODD_LANES, _ODD_PACK = 32, 16, 2  # heads that are not powers of two: elements, lanes, elements per lane
_TRLOAD_ROW = 128  # bytes of a row that a wave copies to LDS at once


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


def check_gradient_tiles(threads: TileThreads, tile: Mapping[str, int], *, has_bias: bool) -> str | None:
    """Check the tiles of pipelines that load through registers."""
    m0, n0, hdim_q, hdim_v = (tile[name] for name in ("m0", "n0", "hdim_q", "hdim_v"))
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


def check_trload_tiles(threads: TileThreads, tile: Mapping[str, int]) -> str | None:
    """Check the tiles of pipelines that copy to LDS asynchronously."""
    m0, n0, hdim_q, hdim_v = (tile[name] for name in ("m0", "n0", "hdim_q", "hdim_v"))
    for rows, columns in itertools.product((m0, n0), (hdim_q, hdim_v)):
        fault = _check_copied_tile(threads, rows, columns)
        if fault:
            return f"a tile of {rows} x {columns}: {fault}"
    if threads.wave_size % m0:
        return f"a wave's {threads.wave_size} lanes are not a multiple of m0 = {m0}"
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


def check_convert_tile(tile: Mapping[str, int], wave_size: int) -> str | None:
    """Check the tile of convert_dq: MakePostQGradDramTileDistribution."""
    threads, m0, hdim_q = tile["threads"], tile["m0"], tile["hdim_q"]
    vectors, rest = divmod(hdim_q, _VECTOR // 4)  # of fp32
    lanes = min(vectors, wave_size)
    if rest or not vectors or vectors % lanes or wave_size % lanes:
        return f"{wave_size} lanes cannot share a row of {hdim_q} elements evenly"
    at_once = threads // wave_size * (wave_size // lanes)
    if m0 % at_once:
        return f"{threads} threads convert {at_once} rows at once, which does not divide m0 = {m0}"
    return None
