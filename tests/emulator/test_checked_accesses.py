"""The checks of the sanitizer on rare instructions: counters in the LDS, exchanges, blocks of registers."""

from __future__ import annotations

import pytest
from assembled import LANES, assemble

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory
from tilewright.emulator.sanitizer.findings import Finding

pytestmark = pytest.mark.compile

# Four waves. v3 is 0 in all lanes, and s8 the number of the first lane.
START = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_mov_b32 m0, 0
  v_and_b32 v0, 0x3ff, v0
  v_mov_b32 v3, 0
  v_readfirstlane_b32 s8, v0
  s_cmp_eq_u32 s8, 0
"""
INIT = """
  s_cselect_b64 exec, 1, 0
  ds_write_b32 v3, v3
  s_waitcnt lgkmcnt(0)
  s_mov_b64 exec, -1
  s_barrier
"""
PLAIN = """
  s_cmp_eq_u32 s8, 64
  s_cselect_b64 exec, 3, 0
  v_lshlrev_b32 v4, 2, v0
  v_and_b32 v4, 0xff, v4
  ds_write_b32 v4, v0
  s_mov_b64 exec, -1
"""
CHANGES = {
    "append": "ds_append v5",
    "exchange": "s_mov_b64 exec, 1\n  ds_wrxchg2_rtn_b32 v[6:7], v3, v0, v0 offset1:1\n  s_mov_b64 exec, -1",
}
END = "\n  s_waitcnt lgkmcnt(0)\n  s_endpgm"


def find(body: str, arch: str, checks: str, block: int, mode: Mode = Mode.FAST) -> list[Finding]:
    memory = Memory(1 << 22)
    memory.track_writes()
    device = EmulatedDevice(tilewright.arch.load(arch), memory)
    (kernel,) = device.load(assemble(body, arch, vgprs=80, lds=64)).kernels.values()
    given = memory.allocate(256, "given")
    memory.fill(given, 0, 64)
    found: list[Finding] = []
    arguments = given.to_bytes(8, "little") + bytes(8)
    device.launch(kernel, Launch(Extent(1), Extent(block), arguments), mode, checks=checks, found=found.append)
    return found


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_an_element_do_not_race_with_each_other(change: str, mode: Mode) -> None:
    made = find(START + INIT + CHANGES[change] + END, "gfx942", "races", 256, mode)
    assert not made, made[0]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("change", CHANGES)
def test_a_store_races_with_a_change(change: str, mode: Mode) -> None:
    made = find(START + INIT + PLAIN + CHANGES[change] + END, "gfx942", "races", 256, mode)
    assert {finding.name for finding in made} == {"race"}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reads_what_was_there(change: str) -> None:
    made = find(START + CHANGES[change] + END, "gfx942", "uninitialized", 64)
    assert {finding.name for finding in made} == {"uninitialized-read"}
    written = START + "ds_write2_b32 v3, v3, v3 offset1:1\n  s_waitcnt lgkmcnt(0)\n  " + CHANGES[change] + END
    assert not find(written, "gfx942", "uninitialized", 64)


@pytest.mark.parametrize(("mask", "count"), [(0x8001, 0), (0x18001, 1)])
def test_a_block_reads_only_selected_dwords(mask: int, count: int) -> None:
    """The first 64 bytes were written: dwords 0 to 15."""
    body = f"""
  s_load_b64 s[4:5], s[0:1], 0x0
  s_mov_b32 m0, {mask:#x}
  v_mov_b32 v1, 0
  s_wait_kmcnt 0x0
  global_load_block v[40:71], v1, s[4:5]
  s_wait_loadcnt 0x0
  s_endpgm
"""
    assert len(find(body, "gfx1201", "uninitialized", LANES["gfx1201"])) == count
