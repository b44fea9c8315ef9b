"""Profiles of launches: both engines count the same for each instruction, and the sums are the launch's counters."""

from __future__ import annotations

import pytest
from assembled import assemble

import tilewright.arch
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Counters, Extent, Launch, Mode
from tilewright.emulator.memory import Memory
from tilewright.emulator.profile import TRAFFIC, KernelProfile, ProfileRecorder, list_instructions, sum_lines
from tilewright.emulator.source_lines import LineTable, SourceLine
from tilewright.emulator.wave_paths import PathRecorder

pytestmark = pytest.mark.compile

# Three rounds: lanes below 16 write to LDS with a stride of 32 dwords, then every lane stores to memory.
LOOP = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_lshlrev_b32_e32 v2, 7, v0
  s_mov_b32 s6, 3
  s_waitcnt lgkmcnt(0)
again:
  v_cmp_gt_u32_e32 vcc, 16, v0
  s_and_saveexec_b64 s[8:9], vcc
  ds_write_b32 v2, v0
  s_mov_b64 exec, s[8:9]
  s_waitcnt lgkmcnt(0)
  s_barrier
  global_store_dword v1, v0, s[4:5]
  s_sub_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 again
  s_endpgm
"""
NO_LINES = LineTable((), ())


def profiled(engine: str, mode: Mode, table: LineTable = NO_LINES) -> tuple[KernelProfile, Counters]:
    memory = Memory(1 << 24)
    device = EmulatedDevice(tilewright.arch.load("gfx942"), memory)
    (kernel,) = device.load(assemble(LOOP, lds=2048)).kernels.values()
    launch = Launch(Extent(2), Extent(64), memory.allocate(256, "output").to_bytes(8, "little") + bytes(8))
    recorder = ProfileRecorder()
    counters = device.launch(kernel, launch, mode, engine=engine, profile=recorder)
    instructions = list_instructions(recorder, kernel.program.lines, table.find)
    paths = recorder.paths.list_paths(1)
    made = KernelProfile(
        "loop", "gfx942", 64, launch.grid, launch.block, counters.waves, 8, 2048, 8, instructions, paths=paths
    )
    return made, counters


@pytest.mark.parametrize("mode", Mode)
def test_engines_agree_and_sums_are_the_counters(mode: Mode) -> None:
    (one, counters), (other, _) = profiled("numpy", mode), profiled("native", mode)
    assert one == other
    assert one.executed == sum(counters.instructions.values()) == 2 * (6 + 3 * 10 + 1)
    assert one.count_classes() == dict(sorted(counters.instructions.items(), key=lambda item: -item[1]))
    for name in TRAFFIC:
        assert sum(getattr(each.counts, name) for each in one.instructions) == getattr(counters, name), name


def test_counts_of_one_instruction() -> None:
    profile, _ = profiled("native", Mode.FAST)
    found = {each.text.split()[0]: each.counts for each in profile.instructions}
    write, store = found["ds_write_b32"], found["global_store_dword"]
    assert (write.executed, write.lanes, write.lds_write_bytes) == (6, 6 * 16, 6 * 16 * 4)
    assert write.bank_conflict_cycles == 6 * 15  # 16 lanes in one bank
    assert (store.lanes, store.global_write_bytes, store.cache_lines) == (6 * 64, 6 * 64 * 4, 6 * 2)
    assert found["s_barrier"].lanes == 0  # does not depend on lanes


def test_paths_have_a_run_per_round() -> None:
    profile, _ = profiled("native", Mode.FAST)
    (one,), (other,) = profile.paths
    assert one == other and one.executed == profile.executed // 2 and not one.cut
    loop = next(each.address for each in profile.instructions if each.text.startswith("v_cmp"))
    assert one.runs == ((profile.instructions[0].address, 16), (loop, 10), (loop, 11))


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_long_paths_are_cut(engine: str) -> None:
    device = EmulatedDevice(tilewright.arch.load("gfx942"), Memory(1 << 24))
    (kernel,) = device.load(assemble(LOOP, lds=2048)).kernels.values()
    output = device.memory.allocate(256, "output").to_bytes(8, "little")
    recorder = ProfileRecorder(paths=PathRecorder(blocks=1, most_runs=2))
    device.launch(kernel, Launch(Extent(2), Extent(64), output + bytes(8)), engine=engine, profile=recorder)
    ((path,),) = recorder.paths.list_paths(1)
    assert path.cut and [count for _, count in path.runs] == [16, 10]


def test_lines_are_summed_and_launches_merged() -> None:
    profile, _ = profiled("native", Mode.FAST)
    first = profile.instructions[0].address
    loop = next(each.address for each in profile.instructions if each.text.startswith("v_cmp"))
    table = LineTable((first, loop), (SourceLine("a.hip", 3, 1), SourceLine("a.hip", 7, 0)))
    lined, _ = profiled("native", Mode.FAST, table)
    hot, cold = sum_lines(lined)
    assert (hot.line, cold.line) == (("a.hip", 7), ("a.hip", 3))
    assert (hot.counts.executed, cold.counts.executed) == (2 * (3 * 10 + 1), 2 * 6)
    assert hot.active_lanes == (6 * 64 + 6 * 16 + 6 * 64) / 18
    assert hot.lines_per_access == 2
    assert (cold.active_lanes, cold.lines_per_access) == (64, None)
    both = profile.merge(profile)
    assert (both.launches, both.executed, both.waves) == (2, 2 * profile.executed, 4)
    assert KernelProfile.from_json(both.to_json()) == both
    assert profile.executed == sum_lines(profile)[0].counts.executed  # merging changes neither
