"""Watched launches of hand-written kernels find needed barriers and waits: see tests/proof/mutating."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from assembled import assemble

import tilewright.arch
from tests.proof.mutating.changes import NOP, Mutation
from tests.proof.mutating.races import RaceDetector
from tests.proof.mutating.reasons import WATCHES, WatchedWait
from tilewright.emulator.device import DeviceKernel, EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

TWO_WAVES = Extent(128)
# Two waves. Each writes its place of the LDS, reads that of the other one, and writes its own again.
SHARED = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_xor_b32_e32 v3, 0x100, v1
  ds_write_b32 v1, v0
  {wait}
  {first}
  ds_read_b32 v2, v3
  s_waitcnt lgkmcnt(0)
  {second}
  {third}
  ds_write_b32 v1, v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""
BARRIERS = dict.fromkeys(("first", "second", "third"), "s_barrier")
WAIT = "s_waitcnt lgkmcnt(0)"


class Launched:
    """A kernel on a device of its own."""

    def __init__(self, body: str) -> None:
        self._memory = Memory(1 << 24)
        self._device = EmulatedDevice(tilewright.arch.load("gfx942"), self._memory)
        (self.kernel,) = self._device.load(assemble(body, lds=512)).kernels.values()
        self._output = self._memory.allocate(512, "output")

    def addresses(self, text: str) -> list[int]:
        return [at for at, line in sorted(self.kernel.program.lines.items()) if line.text.startswith(text)]

    def run(self, kernel: DeviceKernel, turned: bool = False) -> bytes:
        self._memory.write(self._output, bytes(512))
        asked = Launch(Extent(1), TWO_WAVES, self._output.to_bytes(8, "little") + bytes(8))
        self._device.launch(kernel, asked, Mode.STRICT, engine="numpy", turned=turned)
        return bytes(self._memory.read(self._output, 512))


def races_without(body: str, barrier: int | None) -> RaceDetector:
    """What is found when the barrier with this number is not counted on."""
    launched = Launched(body)
    races = RaceDetector(None if barrier is None else launched.addresses("s_barrier")[barrier])
    program = launched.kernel.program.replace_instruction(launched.addresses("s_endpgm")[0], "s_endpgm")
    races.watch_program(program)
    with races.watch_accesses():
        launched.run(dataclasses.replace(launched.kernel, program=program))
    return races


@pytest.mark.parametrize(("barrier", "conflict"), [(None, False), (0, True), (1, False), (2, False)])
def test_one_of_two_barriers_with_nothing_between_is_not_needed(barrier: int | None, conflict: bool) -> None:
    assert bool(races_without(SHARED.format(wait=WAIT, **BARRIERS), barrier).conflict) == conflict


def test_the_last_barrier_before_a_second_write_is_needed() -> None:
    body = SHARED.format(wait=WAIT, **{**BARRIERS, "third": ""})
    assert "of the LDS" in races_without(body, 1).conflict


def test_a_write_that_nobody_waits_for_goes_on_behind_the_barrier() -> None:
    assert not races_without(SHARED.format(wait=WAIT, **BARRIERS), None).conflict
    assert races_without(SHARED.format(wait="", **BARRIERS), None).conflict


# Two waves that write to the same place of the LDS, and read it.
TWICE = """
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v0, 2, v0
  v_and_b32_e32 v1, 0xfc, v0
  v_and_b32_e32 v2, {kept}, v0
  ds_write_b32 v1, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v3, v1
  s_waitcnt lgkmcnt(0)
  s_endpgm
"""


def test_waves_that_write_the_same_need_no_order() -> None:
    assert not races_without(TWICE.format(kept=0xFC), 0).conflict
    assert races_without(TWICE.format(kept=0x1FC), 0).conflict


# Two waves. Each stores its numbers, and loads those of the other one.
THROUGH_MEMORY = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_xor_b32_e32 v3, {other}, v1
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v0, s[4:5]
  s_waitcnt vmcnt(0)
  s_barrier
  global_load_dword v2, v3, s[4:5]
  s_waitcnt vmcnt(0)
  s_barrier
  s_endpgm
"""


def test_waves_that_exchange_numbers_through_memory() -> None:
    body = THROUGH_MEMORY.format(other=0x100)
    found = races_without(body, 1)
    assert found.exchanged and not found.conflict
    assert races_without(body, 0).conflict == "two waves at the same byte of memory"
    alone = races_without(THROUGH_MEMORY.format(other=4), 0)
    assert not alone.exchanged and not alone.conflict


# A load into v2, with what happens to it before the next wait, and what is stored.
LOADED = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, 0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  {use}
  s_waitcnt vmcnt(0)
  global_store_dword v1, {stored}, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize(
    ("use", "stored", "needed"),
    [
        ("v_mov_b32_e32 v3, 7", "v2", False),  # the other wait is early enough
        ("v_mov_b32_e32 v3, v2", "v3", True),
        ("v_add_u32_e32 v2, 0, v2", "v2", True),
        ("v_mov_b32_e32 v2, 7", "v2", True),
        ("v_and_b32_e32 v3, 0, v2", "v3", False),  # nothing of it is used
    ],
)
def test_a_wait_is_needed_if_garbage_makes_a_difference(use: str, stored: str, needed: bool) -> None:
    """The value loaded is that in the register before: without garbage none of these shows."""
    launched = Launched(LOADED.format(use=use, stored=stored))
    line = launched.kernel.program.lines[launched.addresses("s_waitcnt vmcnt(0)")[0]]
    right = launched.run(launched.kernel)
    differs = []
    for garbage, turned in WATCHES:
        watched = WatchedWait(Mutation(line, NOP), garbage)
        with watched.races.watch_accesses():
            differs.append(launched.run(watched.exchange(launched.kernel), turned) != right)
        assert watched.due and not watched.is_needed
    assert any(differs) == needed
    assert np.frombuffer(right, np.uint32).max() in (0, 7)
