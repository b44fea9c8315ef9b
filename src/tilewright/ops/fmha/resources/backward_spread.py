"""How the threads of a work-group share the tiles that the kernels of gradients load.

Each function says what is wrong, or gives nothing. They repeat the arithmetic of CK Tile's policies, which divide whole
numbers: where a division leaves a rest, a part of a tile has no thread, and an assertion or a division by zero stops
the compiler. Names are those of block_fmha_bwd_pipeline_default_policy.hpp and of the one of trload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import tile_of
from tilewright.ops.fmha.types import DTYPES

_VECTOR, _WORD = 16, 4  # bytes of the widest load, and of the narrowest that counts
_LDS_ROW = 128  # bytes that all banks of LDS have: 32 of 4 bytes
_ELEMENT = 2  # bytes of an element, as MakeXTLdsBlockDescriptor takes it for all types
_ODD_STEP, _ODD_LANES, _ODD_PACK = 32, 16, 2  # heads that are no power of two: elements, lanes and elements of a lane
_TRLOAD_ROW = 128  # bytes of a row that a wave copies to LDS at once


@dataclass(frozen=True, slots=True)
class Threads:
    """Who shares a tile."""

    waves: int
    wave_size: int
    size: int  # bytes of an element
    mma_m: int  # rows of the first GEMM's instruction

    @property
    def count(self) -> int:
        return self.waves * self.wave_size


def threads_of(config: Any, arch: Arch) -> Threads:
    """Those of a dq_dk_dv kernel."""
    waves = config.waves[0] * config.waves[1] * config.waves[2]
    return Threads(waves, arch.wave_size, dtype(DTYPES[config.dtype].qkv).storage_bytes, config.mma[0])


def gradients_fault(config: Any, arch: Arch) -> str | None:
    """The tiles of pipelines that go through registers."""
    tile, threads = tile_of(config), threads_of(config, arch)
    m0, n0, hdim_q, hdim_v = (tile[name] for name in ("m0", "n0", "hdim_q", "hdim_v"))
    turned = [("queries", m0, hdim_q), ("output gradients", m0, hdim_v), ("keys", n0, hdim_q)]
    if config.bias == "elementwise":
        turned.append(("the bias", m0, n0))
    for name, rows, columns in turned:
        fault = _turned_fault(threads, rows, columns, may_be_odd=name != "the bias")
        if fault:
            return f"{name}, {rows} x {columns}: {fault}"
    fault = _plain_fault(threads, n0, hdim_v)
    return f"values, {n0} x {hdim_v}: {fault}" if fault else rows_fault(threads, m0)


def trload_fault(config: Any, arch: Arch) -> str | None:
    """The tiles of pipelines that copy to LDS past registers."""
    tile, threads = tile_of(config), threads_of(config, arch)
    m0, n0 = tile["m0"], tile["n0"]
    for rows in (m0, n0):
        for columns in (tile["hdim_q"], tile["hdim_v"]):
            fault = _copied_fault(threads, rows, columns)
            if fault:
                return f"a tile of {rows} x {columns}: {fault}"
    if threads.wave_size % m0:
        return f"a wave's {threads.wave_size} lanes are no multiple of m0 = {m0}"
    return None


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _turned_fault(threads: Threads, rows: int, columns: int, *, may_be_odd: bool) -> str | None:
    """A tile that is kept as it is and transposed: Make{Q,K,OGrad}DramTileDistribution, MakeBiasTileDistribution."""
    if may_be_odd and not _power_of_two(columns):
        if columns % _ODD_STEP:
            return f"a head of {columns} is no power of two and no multiple of {_ODD_STEP}"
        each, rest = divmod(rows, threads.wave_size // _ODD_LANES * threads.waves)
        if rest or not each:
            return f"{threads.waves} waves do not share {rows} rows"
        return _transposed_fault(threads, rows, _ODD_STEP, _ODD_PACK, each)
    pixels, rest = divmod(rows * columns, threads.count)
    widest, least = _VECTOR // threads.size, _WORD // threads.size
    vector = widest if pixels // widest >= least else pixels // least
    if rest or vector == 0 or pixels % vector or columns % vector:
        return f"{threads.count} threads do not share {rows * columns} elements in vectors"
    lanes = columns // vector
    if threads.wave_size % lanes:
        return f"a row takes {lanes} lanes, a wave has {threads.wave_size}"
    return _transposed_fault(threads, rows, columns, vector, pixels // vector)


def _transposed_fault(threads: Threads, rows: int, columns: int, pack: int, turned_pack: int) -> str | None:
    """MakeXTLdsBlockDescriptor."""
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
        return f"transposed vectors of {turned_pack} do not fill lines of LDS"
    return None


def _plain_fault(threads: Threads, rows: int, columns: int) -> str | None:
    """MakeVDramTileDistribution."""
    if not _power_of_two(columns):
        return _turned_fault(threads, rows, columns, may_be_odd=True)
    pixels, rest = divmod(rows * columns, threads.count)
    vector = min(_VECTOR // threads.size, pixels)
    if rest or not vector or columns % vector or threads.wave_size % (columns // vector):
        return f"{threads.count} threads do not share {rows * columns} elements"
    at_once = threads.wave_size // (columns // vector) * threads.waves
    return f"the waves load {at_once} rows at once" if rows % at_once else None


def rows_fault(threads: Threads, m0: int) -> str | None:
    """LSE and d: MakeLSEDDramTileDistribution."""
    if threads.wave_size % m0 and m0 % threads.wave_size:
        return f"m0 = {m0} and a wave's {threads.wave_size} lanes do not divide each other"
    return None


def _copied_fault(threads: Threads, rows: int, columns: int) -> str | None:
    """MakeXDramTileDistribution of trload."""
    pieces, rest = divmod(columns * threads.size, _TRLOAD_ROW)
    if rest or not pieces:
        return f"a row of {columns * threads.size} bytes is no multiple of {_TRLOAD_ROW}"
    along = min(threads.waves, pieces)
    across = max(1, threads.waves // along)
    if pieces % along or along * across != threads.waves:
        return f"{threads.waves} waves do not share {pieces} pieces of a row"
    at_once = across * threads.wave_size // (_TRLOAD_ROW // _VECTOR)
    return f"the waves copy {at_once} rows at once" if rows % at_once else None


def convert_fault(config: Any, arch: Arch) -> str | None:
    """The tile of convert_dq: MakePostQGradDramTileDistribution."""
    tile = tile_of(config)
    vectors, rest = divmod(tile["hdim_q"], _VECTOR // 4)  # of fp32
    lanes = min(vectors, arch.wave_size)
    if rest or not vectors or vectors % lanes or arch.wave_size % lanes:
        return f"a row of {tile['hdim_q']} elements is not shared evenly by {arch.wave_size} lanes"
    at_once = tile["threads"] // arch.wave_size * (arch.wave_size // lanes)
    if tile["m0"] % at_once:
        return f"{tile['threads']} threads convert {at_once} rows at once, m0 = {tile['m0']} is no multiple"
    return None
