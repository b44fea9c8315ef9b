"""The barrier of a whole grid, in a cooperative launch, on both engines."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import assemble

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.faults import BarrierFault, EndlessLoopFault, UnknownInstructionFault
from tilewright.emulator.launch import Counters, Extent, Launch, Mode
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

BLOCKS = 300  # more waves than a batch of the NumPy engine has
# Each work-group of one wave writes its number; after the barrier it reads that of its mirror image.
MIRROR = """
  s_load_dwordx2 s[6:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v1, s2
  v_lshlrev_b32 v2, 2, v1
  global_store_dword v2, v1, s[6:7]
  s_waitcnt vmcnt(0)
  v_mov_b32 v6, {last}
  s_mov_b32 m0, 0
  ds_gws_barrier v6 {offset}gds
  s_waitcnt lgkmcnt(0)
  v_sub_u32 v4, {edge}, v1
  v_lshlrev_b32 v4, 2, v4
  global_load_dword v5, v4, s[6:7]
  s_waitcnt vmcnt(0)
  global_store_dword v2, v5, s[6:7] offset:{half}
  s_endpgm
"""


def run(engine: str, mode: Mode, last: int, offset: str = "") -> tuple[np.ndarray, Counters]:
    memory = Memory(1 << 24)
    device = EmulatedDevice(tilewright.arch.load("gfx942"), memory)
    body = MIRROR.format(last=last, offset=offset, edge=hex(BLOCKS - 1), half=4 * BLOCKS)
    (kernel,) = device.load(assemble(body)).kernels.values()
    output = memory.allocate(8 * BLOCKS, "output")
    asked = Launch(Extent(BLOCKS), Extent(64), output.to_bytes(8, "little") + bytes(8), cooperative=True)
    counters = device.launch(kernel, asked, mode, engine=engine, limit=1_000_000)
    return np.frombuffer(memory.read(output, 8 * BLOCKS), np.uint32), counters


@pytest.mark.parametrize("mode", Mode)
def test_all_work_groups_wait_for_each_other(mode: Mode) -> None:
    (ours, counted), (theirs, counted_too) = (run(engine, mode, BLOCKS - 1) for engine in ("native", "numpy"))
    assert (ours[BLOCKS:] == np.arange(BLOCKS)[::-1]).all()
    assert (ours == theirs).all()
    assert counted.instructions == counted_too.instructions


def test_a_barrier_that_never_completes() -> None:
    with pytest.raises(BarrierFault, match="300 waves wait at a barrier"):
        run("numpy", Mode.FAST, BLOCKS)
    with pytest.raises(EndlessLoopFault):
        run("native", Mode.FAST, BLOCKS)


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_another_barrier_is_unknown(engine: str) -> None:
    with pytest.raises(UnknownInstructionFault, match="a barrier of the grid other than the first"):
        run(engine, Mode.FAST, BLOCKS - 1, "offset:1 ")
