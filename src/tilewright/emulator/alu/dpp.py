"""DPP: sources whose lanes are permuted before an instruction uses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.group import Mask, WaveGroup
from tilewright.emulator.isa.operation import Array

Lanes = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LaneMap:
    """The source lane of each lane. A source lane is unusable if it does not exist, or if exec disables it and
    `fetch_inactive` is false. Then the lane reads 0 (`zero`), or it is not written."""

    source: Lanes
    exists: Mask
    enabled: Mask  # lanes that row_mask and bank_mask allow to write
    zero: bool
    fetch_inactive: bool

    def move_lanes(self, group: WaveGroup, values: Array) -> Array:
        """Return the permuted source. Lanes that are not written have undefined values."""
        spread = np.broadcast_to(values, (group.waves, group.lanes))[:, self.source]
        usable = self._find_usable_lanes(group) if self.zero else None
        return spread if usable is None else np.where(usable, spread, spread.dtype.type(0))

    def find_written_lanes(self, group: WaveGroup) -> Mask | None:
        """Return the lanes that may be written, without regard to exec; None for all."""
        usable = None if self.zero else self._find_usable_lanes(group)
        if usable is None:
            return None if self.enabled.all() else self.enabled
        return usable & self.enabled

    def _find_usable_lanes(self, group: WaveGroup) -> Mask | None:
        if self.fetch_inactive or group.full:
            return None if self.exists.all() else self.exists
        return self.exists & group.exec_mask[:, self.source]


def read_lane_map(site: InstructionContext) -> LaneMap | None:
    """Return how an instruction permutes the lanes of its first source; None if it does not."""
    encoding = site.instruction.encoding
    modifiers = site.instruction.modifiers
    lanes = np.arange(site.code.lanes)
    fetch = site.get_number("fi") != 0
    if "dpp8" in modifiers:
        picks = _read_picks(site, "dpp8", 8)
        everywhere = np.ones(site.code.lanes, np.bool_)
        # Without bound_ctrl: unusable lanes read 0.
        return LaneMap((lanes & ~7) | picks[lanes & 7], everywhere, everywhere, True, fetch)
    if "dpp" not in encoding and "quad_perm" not in modifiers:
        return None
    source, exists = _find_sources(site, lanes)
    rows, banks = site.get_number("row_mask", 0xF), site.get_number("bank_mask", 0xF)
    enabled = ((rows >> (lanes // 16)) & (banks >> (lanes // 4 % 4)) & 1).astype(np.bool_)
    return LaneMap(source, exists, enabled, site.get_number("bound_ctrl") != 0, fetch)


def _read_picks(site: InstructionContext, name: str, count: int) -> Lanes:
    value = site.instruction.modifiers[name]
    if not isinstance(value, tuple) or len(value) != count or not all(0 <= pick < count for pick in value):
        raise site.unknown(f"the value {value!r} of the modifier '{name}'")
    return np.array(value)


def _find_sources(site: InstructionContext, lanes: Lanes) -> tuple[Lanes, Mask]:
    """Return the source lane of every lane, and whether it exists."""
    everywhere = np.ones(len(lanes), np.bool_)
    if "quad_perm" in site.instruction.modifiers:
        return (lanes & ~3) | _read_picks(site, "quad_perm", 4)[lanes & 3], everywhere
    found = [name for name in _CONTROLS if name in site.instruction.modifiers]
    if len(found) != 1:
        raise site.unknown(f"the lane movement of {site.instruction.mnemonic}")
    source = _CONTROLS[found[0]](lanes, site.get_number(found[0]))
    exists = (source >= 0) & (source < len(lanes))
    return np.where(exists, source, lanes), exists


def _map_in_row(lanes: Lanes, place: Lanes) -> Lanes:
    """Return the lane at an index in the lane's row of 16, or -1 if it is outside."""
    return np.where((place >= 0) & (place < 16), (lanes & ~15) + place, -1)


def _broadcast(lanes: Lanes, last: int) -> Lanes:
    """row_bcast: lanes after the first row (15) or half (31) read the last lane of the previous one."""
    width = last + 1
    return np.where(lanes >= width, (lanes & ~(width - 1)) - 1, -1)


_CONTROLS: dict[str, Callable[[Lanes, int], Lanes]] = {
    "row_shl": lambda lanes, n: _map_in_row(lanes, (lanes & 15) + n),
    "row_shr": lambda lanes, n: _map_in_row(lanes, (lanes & 15) - n),
    "row_ror": lambda lanes, n: (lanes & ~15) + (((lanes & 15) - n) & 15),
    "row_newbcast": lambda lanes, n: (lanes & ~15) + n,
    "row_share": lambda lanes, n: (lanes & ~15) + n,
    "row_xmask": lambda lanes, n: (lanes & ~15) + ((lanes & 15) ^ n),
    "row_bcast": _broadcast,
    "row_mirror": lambda lanes, _: lanes ^ 15,
    "row_half_mirror": lambda lanes, _: lanes ^ 7,
    "wave_shl": lambda lanes, _: np.where(lanes + 1 < len(lanes), lanes + 1, -1),
    "wave_shr": lambda lanes, _: lanes - 1,
    "wave_rol": lambda lanes, _: (lanes + 1) % len(lanes),
    "wave_ror": lambda lanes, _: (lanes - 1) % len(lanes),
}
