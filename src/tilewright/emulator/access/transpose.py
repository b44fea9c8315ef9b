"""Loads that transpose a matrix: LDS reads of gfx950, and global loads of gfx12.

gfx950: 16 lanes read a matrix of 16 columns row by row: the bytes of a lane are a piece of a row, and the next lane has
the next piece. Each lane then gets one column. The form with 16-bit elements is confirmed by attention kernels with
correct results, and by AMD's simulator (ROCm/rocm-systems, pull request 10175). The 8-bit form agrees with the
addressing of HipKittens (one row per two lanes); the 6-bit and 4-bit forms follow the same rule by analogy.

gfx12 (wave32): 8 lanes load 8 rows of 8 elements, and 8 lanes get one column each. With 16 bits these are the same 8
neighbours; with 8 bits, the rows of lanes 0 to 3 and 8 to 11 go to lanes 0 to 7, those of lanes 4 to 7 and 12 to 15 to
lanes 8 to 15. Mesa's driver loads cooperative matrices so (radv_nir_lower_cooperative_matrix.c, `get_load_tr_row_col`),
AMD's simulator transposes so (ROCm/rocm-systems, emulation/rocjitsu, ds_transpose.h), and programs that printed what
each lane of a gfx1201 gets agree (for 8 bits kmbandy's llama.cpp, global_load_tr_contract.md).

A wave with only some active lanes is rejected: for gfx950 no source documents the result, and gfx12 must not have it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.group import U32

# Bytes per lane and bits per element, by the suffix of the name.
TRANSPOSES = {"b64_tr_b16": (8, 16), "b64_tr_b8": (8, 8), "b64_tr_b4": (8, 4), "b96_tr_b6": (12, 6)}
_COLUMNS = 16
# Of gfx12's global loads.
GLOBAL_TRANSPOSES = {"tr_b128": (16, 16), "tr_b64": (8, 8)}
GLOBAL_TRANSPOSE_LANES = 32
_ROWS = 8


def transpose_loaded(values: Sequence[U32], bits: int) -> list[U32]:
    """Transpose what the lanes of a global load read: each gets one element from each of 8 lanes."""
    elements = _split(np.stack(values, axis=-1), bits)
    lane, row = np.arange(GLOBAL_TRANSPOSE_LANES)[:, None], np.arange(_ROWS)
    sources = {16: lane // 8 * 8 + row, 8: lane // 16 * 16 + lane // 8 % 2 * 4 + row % 4 + row // 4 * 8}
    words = _join(elements[:, sources[bits], lane % 8], bits)
    return [words[..., k] for k in range(len(values))]


def transpose_lanes(values: Sequence[U32], bits: int) -> list[U32]:
    """Transpose registers: lanes that hold pieces of rows become lanes that hold columns."""
    waves, lanes = values[0].shape
    elements = _split(np.stack(values, axis=-1), bits)
    per_lane = elements.shape[-1]
    matrix = elements.reshape(waves, lanes // _COLUMNS, per_lane, _COLUMNS)
    columns = matrix.transpose(0, 1, 3, 2).reshape(waves, lanes, per_lane)
    words = _join(columns, bits)
    return [words[..., k] for k in range(len(values))]


def _split(words: U32, bits: int) -> NDArray[np.generic]:
    """Split dwords [waves, lanes, dwords] into elements; those of 4 and 6 bits become bytes."""
    if bits in (8, 16):
        return words.view(np.dtype(f"u{bits // 8}"))
    single = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    elements: NDArray[np.uint8] = np.packbits(single.reshape(*words.shape[:2], -1, bits), axis=-1, bitorder="little")
    return elements[..., 0]


def _join(elements: NDArray[np.generic], bits: int) -> U32:
    whole = np.ascontiguousarray(elements)
    if bits in (8, 16):
        return whole.view(np.uint32)
    single = np.unpackbits(whole.view(np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits]
    octets = np.packbits(single.reshape(*whole.shape[:2], -1), axis=-1, bitorder="little")
    return octets.view(np.uint32)
