"""The tile distributions of forward pipelines: how the threads of a work-group share the tiles that they load.

Each check returns an error message or None. They repeat the integer arithmetic of CK Tile's policies: where a division
has a remainder, a part of a tile has no thread, and the compiler stops at one of many locations. Names are those of
block_fmha_pipeline_qx_ks_vs_custom_policy.hpp.
"""

from __future__ import annotations

from tilewright.ops.fmha.resources.forward import ForwardSizes, v_pack, v_pixels

# Possible numbers of elements in one load.
_LOADS = (1, 2, 4, 8, 16)


def check_row_tile(facts: ForwardSizes, name: str, rows: int, width: int) -> str | None:
    """Check a tile that is loaded row by row: MakeKDramTileDistribution, MakeQDramTileDistribution."""
    each, rest = divmod(rows * width, facts.threads)
    if rest or each == 0:
        return f"{facts.threads} threads cannot share {name} tile of {rows} x {width} elements evenly"
    vector = min(facts.pack, each)
    if vector not in _LOADS or width % vector or width % facts.pack:
        return f"each thread loads {each} elements of {name} tile, which cannot be vectors that divide a row of {width}"
    lanes = width // vector
    if facts.wave_size % lanes:
        return f"{lanes} lanes load a row of {name} tile, which does not divide the wave's {facts.wave_size}"
    at_once = facts.wave_size // lanes * facts.waves_in_block
    if rows % at_once:
        return f"the waves load {at_once} rows of {name} tile at once, which does not divide its {rows}"
    return None


def check_copied_tile(facts: ForwardSizes, what: str, rows: int, width: int) -> str | None:
    """Check a tile that is copied asynchronously in whole copies of whole rows: MakeKLdsStoreBlockDescriptor."""
    vector = facts.direct // facts.size
    in_wave = facts.wave_size * vector
    if in_wave % width or width % facts.pack:
        return f"a wave copies {in_wave} elements at once, which is not a multiple of a row of {width}"
    at_once = in_wave // width * facts.waves_in_block
    if rows % at_once:
        return f"the waves copy {at_once} rows at once, which does not divide the {rows} of a tile of {what}"
    return None


def check_async_keys(facts: ForwardSizes) -> str | None:
    """Check the key tile of qr_async, n0 × k1."""
    return check_copied_tile(facts, "keys", facts.tile["n0"], facts.tile["k1"])


# block_fmha_pipeline_qx_ks_vs_custom_policy.hpp, LdsBufferSequence: the explicitly listed orders, by the numbers of
# steps over a head and over the keys of a tile.
_ORDERS = {
    **{(4, 4): (1, 2, 0, 1, 0, 1, 2, 0), (4, 2): (1, 2, 0, 1, 2, 0), (2, 4): (1, 2, 0, 1, 2, 0)},
    **{(3, 3): (1, 2, 0, 1, 2, 0), (3, 4): (1, 2, 0, 0, 1, 2, 0), (2, 2): (1, 2, 1, 0)},
}


def list_buffer_order(k_steps: int, v_steps: int) -> tuple[int, ...]:
    """Return which of qr_async's three buffers holds each step's keys, then each step's values."""
    last = (v_steps - 1) // 3 * 3 - (v_steps - 1)
    general = (*(i % 3 for i in range(k_steps)), *((2 + i + last) % 3 for i in range(v_steps)))
    return _ORDERS.get((k_steps, v_steps), general)


def check_value_tile(facts: ForwardSizes, *, row_major: bool, other_orders: bool) -> str | None:
    """Check the value tile n1 × k1: GetSmemKPackV, MakeVLdsBlockDescriptor and MakeVDramTileDistribution.

    `other_orders`: the policy has a second distribution for tiles that the first one does not support.
    """
    n1, k1 = facts.tile["n1"], facts.tile["k1"]
    pixels, rest = divmod(n1 * k1, facts.threads)
    if rest or pixels == 0:
        return f"{facts.threads} threads cannot share a value tile of {n1} x {k1} elements evenly"
    pack, line = v_pack(facts), facts.banks * 4 // facts.size
    if line % pack or n1 % (line // pack) or n1 % (line // facts.pack) or k1 % pack or k1 % facts.pack:
        return f"each thread has {pixels} values: packs of {pack} in lines of {line} do not fill a tile of {n1} x {k1}"
    if row_major:
        return _check_row_major_values(facts, pixels, pack, other_orders=other_orders)
    return _check_column_major_values(facts, pack, other_orders=other_orders)


def v_vector_size(facts: ForwardSizes) -> int:
    """Elements that a thread loads at once from values that are laid out like keys: GetAlignmentV."""
    pixels, pack = v_pixels(facts), v_pack(facts)
    fewest = max(1, 4 // facts.size)
    return pack if pixels // pack >= fewest else pixels // fewest


def _check_row_major_values(facts: ForwardSizes, pixels: int, pack: int, *, other_orders: bool) -> str | None:
    n1, k1, waves, wave_size = facts.tile["n1"], facts.tile["k1"], facts.waves_in_block, facts.wave_size
    vector = v_vector_size(facts)
    if vector == 0:
        return f"each thread has {pixels} values of the tile, fewer than one load"
    rows = pixels // vector
    if pixels % vector or pack % rows:
        if not other_orders or n1 % 16:
            return f"each thread has {pixels} values and loads {vector} at once, which does not suit packs of {pack}"
        wide = 32 if n1 % 32 == 0 else 16
        lanes = wave_size // (wide // 2)
        return None if k1 % (lanes * waves) == 0 else f"{lanes} x {waves} rows are loaded at once, but k1 is {k1}"
    if vector not in _LOADS or n1 % vector:
        return f"each thread would load {vector} values at once, which is not possible"
    across, packed = n1 // vector, pack // rows
    lanes = packed * across
    if wave_size % lanes == 0:
        covered = waves * (wave_size // lanes) * packed * rows
    elif lanes % wave_size == 0 and packed % (lanes // wave_size) == 0 and waves % (lanes // wave_size) == 0:
        # Several waves share a row and count once along k1.
        covered = waves // (lanes // wave_size) * packed * rows
    else:
        return f"{lanes} lanes load a row of {n1} values, which does not suit waves of {wave_size}"
    return None if covered == k1 else f"the waves load {covered} rows of values at once, but k1 is {k1}"


def _check_column_major_values(facts: ForwardSizes, pack: int, *, other_orders: bool) -> str | None:
    n1, k1, waves, wave_size = facts.tile["n1"], facts.tile["k1"], facts.waves_in_block, facts.wave_size
    lanes = k1 // pack
    lines = wave_size // lanes if lanes else 0
    if lines and n1 % (lines * waves) == 0 and wave_size % lanes == 0:
        return None
    if not lines or n1 // (lines * waves) == 0 or not other_orders or k1 % 16:
        return f"{lanes} lanes load a line of values, a wave {lines} lines, which does not suit the tile's {n1}"
    lines = wave_size // ((32 if k1 % 32 == 0 else 16) // 2)
    return None if n1 % (lines * waves) == 0 else f"the waves load {lines * waves} lines of values, but n1 is {n1}"
