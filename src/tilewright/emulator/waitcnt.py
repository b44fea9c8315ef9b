"""Counters of pending memory instructions, and the instructions that wait for them.

Every GPU generation has its own counters, and instructions that wait until a counter is small enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.hardware import generation
from tilewright.emulator.instruction import Instruction

# The counter of each kind of access (ISA manuals for CDNA3, RDNA3 and RDNA4, "Data dependency resolution").
_COUNTERS: Mapping[str, Mapping[str, str]] = {
    "gfx9": {"load": "vm", "store": "vm", "lds": "lgkm", "scalar": "lgkm"},
    "gfx11": {"load": "vm", "store": "vs", "lds": "lgkm", "scalar": "lgkm"},
    "gfx12": {"load": "load", "store": "store", "lds": "ds", "scalar": "km"},
}
# The largest value of each counter. A wave with that many pending accesses stops until the oldest is complete
# (LLVM, AMDGPU::getVmcntBitMask and similar functions: as many ones as the counter has bits).
_CAPACITIES: Mapping[str, Mapping[str, int]] = {
    "gfx9": {"vm": 63, "lgkm": 15},
    "gfx11": {"vm": 63, "vs": 63, "lgkm": 63},
    "gfx12": {"load": 63, "store": 63, "ds": 63, "km": 31},
}
# Counters of operations that are never pending on the emulated device: exports, image samples, ray tracing.
_IDLE = frozenset(("exp", "sample", "bvh"))

# RDNA4 has one wait instruction per counter instead of s_waitcnt. LLVM still encodes s_waitcnt there, and CK Tile's
# kernels have it before their end. Its meaning is not documented, so here it makes nothing visible.
_WITHOUT_LIST = "gfx12"

_LISTED = re.compile(r"(vm|lgkm|exp)cnt\((\d+)\)")
_SINGLE = re.compile(r"s_waitcnt_(vs|vm|lgkm|exp)cnt|s_wait_(load|store|ds|km|exp|sample|bvh)cnt")
_PAIRED = re.compile(r"s_wait_(load|store)cnt_dscnt")
# Bit fields of the number in s_waitcnt: first bit in the number, width, and first bit in the count.
_Pieces = Mapping[str, tuple[tuple[int, int, int], ...]]
_PIECES_GFX9: _Pieces = {"vm": ((0, 4, 0), (14, 2, 4)), "exp": ((4, 3, 0),), "lgkm": ((8, 4, 0),)}
_PIECES_GFX11: _Pieces = {"exp": ((0, 3, 0),), "lgkm": ((4, 6, 0),), "vm": ((10, 6, 0),)}


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until each of these counters is at most its count."""

    counts: Mapping[str, int]

    def __call__(self, group: WaveGroup) -> None:
        for counter, count in self.counts.items():
            group.drain(counter, count)


def find_counters(arch: str) -> Mapping[str, str]:
    """Return the counter of each kind of access on a GPU."""
    return _COUNTERS[generation(arch)]


def find_capacities(arch: str) -> Mapping[str, int]:
    """Return the largest value of each counter of a GPU."""
    return _CAPACITIES[generation(arch)]


def translate(instruction: Instruction, code: LoadedCode) -> Wait | None:
    """Return the wait of an instruction; None if it does not wait for memory."""
    name = instruction.mnemonic
    counts: Mapping[str, int]
    if name == "s_waitcnt":
        counts = _read_counts(instruction, code)
        if generation(code.arch.name) == _WITHOUT_LIST:
            counts = {}
    elif match := _SINGLE.fullmatch(name):
        counts = {match[1] or match[2]: _read_number(instruction, code)}
    elif match := _PAIRED.fullmatch(name):
        # RDNA4: the upper byte is for loads or stores, the lower one for the LDS.
        number = _read_number(instruction, code)
        counts = {match[1]: number >> 8 & 0x3F, "ds": number & 0x3F}
    else:
        return None
    known = {*find_counters(code.arch.name).values(), *_IDLE}
    for counter in counts:
        if counter not in known:
            raise code.unknown(f"the counter '{counter}'", instruction)
    return Wait({counter: count for counter, count in counts.items() if counter not in _IDLE})


def _read_counts(instruction: Instruction, code: LoadedCode) -> dict[str, int]:
    """Return the counts of s_waitcnt: listed by name, or one number if all are zero or out of range."""
    text = instruction.operands[0].name
    if re.fullmatch(r"0x[0-9a-f]+|\d+", text):
        pieces = _PIECES_GFX11 if generation(code.arch.name) == "gfx11" else _PIECES_GFX9
        return {counter: _join_bits(int(text, 0), parts) for counter, parts in pieces.items()}
    parts = text.replace("&", " ").split()
    matches = [_LISTED.fullmatch(part) for part in parts]
    if not parts or not all(matches):
        raise code.unknown(f"the list of counters '{text}'", instruction)
    return {match[1]: int(match[2]) for match in matches if match}


def _join_bits(number: int, pieces: tuple[tuple[int, int, int], ...]) -> int:
    return sum((number >> first & ((1 << width) - 1)) << to for first, width, to in pieces)


def _read_number(instruction: Instruction, code: LoadedCode) -> int:
    last = instruction.operands[-1]
    others = instruction.operands[:-1]
    if last.kind != "const" or not isinstance(last.value, int) or any(item.kind != "none" for item in others):
        raise code.unknown("this form of a wait", instruction)
    return last.value


def drain_all(group: WaveGroup) -> None:
    """Make all pending effects visible, as the end of a program does."""
    for counter in tuple(group.pending):
        group.drain(counter, 0)
