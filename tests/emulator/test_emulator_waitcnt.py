"""Which accesses are over after a wait, on each GPU."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.arch
from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator import control, waitcnt
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.disassembly import parse_line
from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.group import Batch, PendingEffect, WaveGroup, WaveIndices
from tilewright.emulator.instruction import SCALARS
from tilewright.emulator.launch import Counters
from tilewright.emulator.lds import Lds
from tilewright.emulator.memory import Memory


def group(arch: str) -> WaveGroup:
    batch = Batch(
        Memory(4096), Lds(1, 0), Counters(), strict=True, detailed=False,
        counter_of=waitcnt.find_counters(arch), capacity_of=waitcnt.find_capacities(arch),
    )  # fmt: skip
    places = WaveIndices(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint64))
    vgprs, sgprs = np.zeros((1, 1, 64), np.uint32), np.zeros((1, SCALARS), np.uint32)
    return WaveGroup(batch, vgprs, sgprs, np.zeros(1, np.bool_), places, 0xF0)


def code(arch: str) -> LoadedCode:
    return LoadedCode(tilewright.arch.load(arch), "kernel", 64, 0, 0)


def over(arch: str, kinds: str, wait: str) -> str:
    """Which accesses are over, by number: of (l)oads, (s)tores, (d)s and (k)onstants issued in this order."""
    waves = group(arch)
    seen: list[int] = []
    names = {"l": "load", "s": "store", "d": "lds", "k": "scalar"}
    for number, kind in enumerate(kinds):
        effect = PendingEffect(lambda _, n=number: seen.append(n), lambda _: None, in_order=kind != "k")  # type: ignore[misc, arg-type, return-value]
        waves.schedule_effect(names[kind], effect)
    step = control.translate(parse_line(DisassembledLine(0, wait, (0,))), code(arch))
    assert step is not None
    step(waves)
    return "".join(str(number) for number in seen)


@pytest.mark.parametrize(
    ("arch", "kinds", "wait", "expected"),
    [
        ("gfx942", "llll", "s_waitcnt vmcnt(3)", "0"),
        ("gfx942", "llll", "s_waitcnt vmcnt(0)", "0123"),
        ("gfx942", "lsl", "s_waitcnt vmcnt(1)", "01"),
        ("gfx942", "ldl", "s_waitcnt lgkmcnt(0)", "1"),
        ("gfx942", "ldk", "s_waitcnt vmcnt(0) lgkmcnt(0)", "012"),
        ("gfx942", "ldl", "s_waitcnt 0", "021"),
        ("gfx942", "ddd", "s_waitcnt lgkmcnt(15)", ""),
        # Scalar loads come back in any order: only zero tells.
        ("gfx942", "kk", "s_waitcnt lgkmcnt(1)", ""),
        ("gfx942", "kdd", "s_waitcnt lgkmcnt(1)", "1"),
        ("gfx942", "kdd", "s_waitcnt lgkmcnt(0)", "012"),
        # gfx11 counts stores apart, gfx12 everything.
        ("gfx1100", "lsl", "s_waitcnt vmcnt(0)", "02"),
        ("gfx1100", "lss", "s_waitcnt_vscnt null, 0x1", "1"),
        ("gfx1100", "dk", "s_waitcnt expcnt(7) lgkmcnt(0)", "01"),
        ("gfx1201", "lsdk", "s_wait_loadcnt 0x0", "0"),
        ("gfx1201", "lsdk", "s_wait_storecnt 0x0", "1"),
        ("gfx1201", "lsdk", "s_wait_dscnt 0x0", "2"),
        ("gfx1201", "lsdk", "s_wait_kmcnt 0x0", "3"),
        ("gfx1201", "lldd", "s_wait_loadcnt_dscnt 0x100", "023"),
        ("gfx1201", "ssdd", "s_wait_storecnt_dscnt 0x1", "012"),
        ("gfx1201", "lsdk", "s_waitcnt vmcnt(0)", ""),
        ("gfx1201", "lsdk", "s_wait_samplecnt 0x0", ""),
    ],
)
def test_what_a_wait_makes_visible(arch: str, kinds: str, wait: str, expected: str) -> None:
    assert over(arch, kinds, wait) == expected


NO_WAIT = "s_waitcnt expcnt(0)"


@pytest.mark.parametrize(
    ("arch", "kind", "capacity"),
    [
        ("gfx90a", "d", 15), ("gfx942", "l", 63), ("gfx942", "s", 63), ("gfx950", "d", 15),
        ("gfx1100", "d", 63), ("gfx1100", "l", 63), ("gfx1100", "s", 63),
        ("gfx1201", "l", 63), ("gfx1201", "s", 63), ("gfx1201", "d", 63),
    ],
)  # fmt: skip
def test_a_full_counter_lets_the_oldest_end(arch: str, kind: str, capacity: int) -> None:
    idle = "s_wait_expcnt 0x0" if arch == "gfx1201" else NO_WAIT
    assert over(arch, kind * capacity, idle) == ""
    assert over(arch, kind * (capacity + 1), idle) == "0"
    assert over(arch, kind * (capacity + 4), idle) == "0123"


def test_a_full_counter_tells_nothing_about_scalar_loads() -> None:
    assert over("gfx942", "k" * 20, NO_WAIT) == ""
    assert over("gfx1201", "k" * 40, "s_wait_expcnt 0x0") == ""
    # They may all be over, and then the LDS has room for 15.
    assert over("gfx942", "k" * 15 + "d" * 15, NO_WAIT) == ""
    assert over("gfx942", "k" + "d" * 16, NO_WAIT) == "1"
    assert over("gfx942", "k" * 3 + "d" * 2, "s_waitcnt lgkmcnt(0)") == "01234"
    # Other counters are not concerned.
    assert over("gfx942", "l" * 20 + "d" * 15, NO_WAIT) == ""
    assert over("gfx1201", "k" * 20 + "d" * 63, "s_wait_expcnt 0x0") == ""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_every_counter_has_a_capacity(arch: str) -> None:
    assert set(waitcnt.find_capacities(arch)) == set(waitcnt.find_counters(arch).values())


@pytest.mark.parametrize(
    ("arch", "wait"),
    [("gfx942", "s_wait_loadcnt 0x0"), ("gfx1201", "s_waitcnt_vscnt null, 0x0"), ("gfx942", "s_waitcnt xcnt(0)")],
)
def test_counters_of_other_gpus_are_unknown(arch: str, wait: str) -> None:
    with pytest.raises(UnknownInstructionFault, match="counter"):
        over(arch, "l", wait)


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", 0xF0, 0xC0),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 15", 0x00, 0xF0),
        ("s_denorm_mode 12", 0xF0, 0xC0),
        ("s_round_mode 0x0", 0xF0, 0xF0),
    ],
)
def test_the_mode_of_arithmetic_is_set(text: str, before: int, after: int) -> None:
    waves = group("gfx1100")
    waves.float_mode = before
    step = control.translate(parse_line(DisassembledLine(0, text, (0,))), code("gfx1100"))
    assert step is not None
    step(waves)
    assert waves.float_mode == after


@pytest.mark.parametrize(
    ("arch", "register"),
    [
        ("gfx90a", "HW_REG_HW_ID, 8, 8"),
        ("gfx942", "HW_REG_XCC_ID"),
        ("gfx1100", "HW_REG_HW_ID1, 10, 4"),
        ("gfx1201", "HW_REG_WAVE_HW_ID1, 10, 4"),
    ],
)
def test_all_waves_run_on_the_first_compute_unit(arch: str, register: str) -> None:
    waves = group(arch)
    waves.s[0][...] = 7
    step = control.translate(parse_line(DisassembledLine(0, f"s_getreg_b32 s0, hwreg({register})", (0,))), code(arch))
    assert step is not None
    step(waves)
    assert not waves.s[0].any()


@pytest.mark.parametrize(
    "text",
    [
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 1",  # rounding
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 8, 1), 1",  # clamping
        "s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS), 0",
        "s_getreg_b32 s0, hwreg(HW_REG_HW_ID)",
        "s_getreg_b32 s0, hwreg(HW_REG_HW_ID1, 8, 4)",  # also the place in the unit
        "s_round_mode 0x5",
    ],
)
def test_what_is_not_modelled_is_refused(text: str) -> None:
    with pytest.raises(UnknownInstructionFault):
        control.translate(parse_line(DisassembledLine(0, text, (0,))), code("gfx1100"))
