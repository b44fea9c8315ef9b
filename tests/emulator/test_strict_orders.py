"""Strict mode runs the waves of every other work-group from the last to the first, and turned on request.

Turned, copies from memory to LDS arrive at once; else at their wait. On gfx9, atomics without a result and loads are
counted together, and complete in the order in which they began.
"""

from __future__ import annotations

import pytest
from assembled import assemble
from launched import launch

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

# Every wave writes its number to the place of its work-group. Nothing orders them: the last one wins.
RACE = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  s_lshl_b32 s7, s2, 2
  v_lshrrev_b32_e32 v2, 6, v0
  v_mov_b32_e32 v1, s7
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(("turned", "winners"), [(False, [3, 0, 3]), (True, [0, 3, 0])])
def test_both_orders_occur(engine: str, turned: bool, winners: list[int]) -> None:
    outcome = launch(
        assemble(RACE), grid=Extent(3), block=Extent(256), words=3, mode=Mode.STRICT, engine=engine, turned=turned
    )
    assert list(outcome.output) == winners


# Two waves. Each reads the sevens that the other wrote to the LDS, and copies zeros over its own.
COPY = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, 7
  ds_write_b32 v1, v2
  v_readfirstlane_b32 s6, v1
  s_mov_b32 m0, s6
  v_xor_b32_e32 v3, 0x100, v1
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v3
  s_waitcnt lgkmcnt(0)
  {before}
  global_load_lds_dword v1, s[4:5]
  {after}
  s_barrier
  ds_read_b32 v5, v3
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_lshl_add_u32 v4, v5, 4, v4
  global_store_dword v1, v4, s[4:5]
  s_endpgm
"""
BARRIER, WAIT = "s_barrier", "s_waitcnt vmcnt(0)"
RIGHT, LATE, OVERWRITTEN = 0x07, 0x77, 0x00  # 16 times what is read after the copy, and what before it


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(
    ("before", "after", "turned", "results"),
    [
        (BARRIER, WAIT, False, {RIGHT}),
        (BARRIER, WAIT, True, {RIGHT}),
        (BARRIER, "", False, {LATE, RIGHT}),  # the wave that runs first is too early
        (BARRIER, "", True, {RIGHT}),
        ("", WAIT, False, {RIGHT, OVERWRITTEN}),
        ("", WAIT, True, {RIGHT, OVERWRITTEN}),
    ],
)
def test_copies_arrive_at_both_ends_of_their_time(
    engine: str, before: str, after: str, turned: bool, results: set[int]
) -> None:
    outcome = launch(
        assemble(COPY.format(before=before, after=after), lds=512), block=Extent(128), words=128, mode=Mode.STRICT,
        engine=engine, turned=turned,
    )  # fmt: skip
    assert set(outcome.output.tolist()) == results


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_copy_over_what_others_still_read_is_seen_when_turned(engine: str) -> None:
    """The wait stands behind the barrier, so a copy that comes late does no harm."""
    text = COPY.format(before="", after="").replace(
        "  s_barrier\n  ds_read_b32 v5", "  s_barrier\n  s_waitcnt vmcnt(0)\n  s_barrier\n  ds_read_b32 v5"
    )
    seen = {}
    for turned in (False, True):
        outcome = launch(
            assemble(text, lds=512), block=Extent(128), words=128, mode=Mode.STRICT, engine=engine, turned=turned
        )
        seen[turned] = set(outcome.output.tolist())
    assert seen == {False: {RIGHT}, True: {RIGHT, OVERWRITTEN}}


# Four loads, then as many loads and atomics as in a loop whose wait counts both. AMD's text for CDNA3 (4.4): "Memory
# reads and writes return in the order they were issued, including mixing reads and writes."
MIXED = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_load_dwordx2 s[6:7], s[0:1], 0x8
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, 0
  v_mov_b32_e32 v10, 0
  v_mov_b32_e32 v11, 0
  v_mov_b32_e32 v12, 0
  v_mov_b32_e32 v13, 0
  s_waitcnt lgkmcnt(0)
  global_load_dword v10, v1, s[6:7]
  global_load_dword v11, v1, s[6:7]
  global_load_dword v12, v1, s[6:7]
  global_load_dword v13, v1, s[6:7]
  global_load_dword v20, v1, s[6:7]
  global_atomic_add v1, v2, s[4:5]
  global_load_dword v21, v1, s[6:7]
  global_atomic_pk_add_bf16 v1, v2, s[4:5]
  s_waitcnt vmcnt({count})
  v_and_b32_e32 v10, 1, v10
  v_and_b32_e32 v11, 2, v11
  v_and_b32_e32 v12, 4, v12
  v_and_b32_e32 v13, 8, v13
  v_or3_b32 v10, v10, v11, v12
  v_or_b32_e32 v10, v10, v13
  s_waitcnt vmcnt(0)
  global_store_dword v1, v10, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(("count", "arrived"), [(8, 0x0), (7, 0x1), (6, 0x3), (5, 0x7), (4, 0xF), (0, 0xF)])
def test_loads_and_atomics_share_an_order(engine: str, count: int, arrived: int) -> None:
    memory = Memory(1 << 20)
    device = EmulatedDevice(tilewright.arch.load("gfx942"), memory)
    (kernel,) = device.load(assemble(MIXED.format(count=count))).kernels.values()
    output, ones = memory.allocate(256, "output"), memory.allocate(256, "ones")
    memory.write(output, bytes(256))
    memory.write(ones, b"\xff" * 256)
    arguments = output.to_bytes(8, "little") + ones.to_bytes(8, "little")
    device.launch(kernel, Launch(Extent(1), Extent(64), arguments), Mode.STRICT, engine=engine, turned=True)
    assert memory.read(output, 256) == arrived.to_bytes(4, "little") * 64
