"""What only gfx9's scalar unit has: stores and atomics, registers by index, vector instructions that are skipped."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import assemble
from both_engines import run_both
from native_runs import run

from tilewright.emulator.faults import MemoryFault, UnknownInstructionFault
from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile

GPUS = ("gfx90a", "gfx942", "gfx950")
START = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
"""
ENGINES = [("numpy", Mode.FAST), ("numpy", Mode.STRICT), ("native", Mode.FAST), ("native", Mode.STRICT)]


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_stores_and_atomics_reach_memory(arch: str, engine: str, mode: Mode) -> None:
    """Every wave adds 1 to a counter that starts again after 5, and stores what it was; then it stores three dwords."""
    code = assemble(
        START
        + """
  v_and_b32 v0, 0x3ff, v0
  v_readfirstlane_b32 s8, v0
  s_lshl_b32 s9, s2, 8
  s_add_u32 s8, s8, s9
  s_lshr_b32 s8, s8, 6
  s_lshl_b32 s8, s8, 4
  s_mov_b32 s10, 5
  s_atomic_inc s10, s[4:5], 0x400 glc
  s_atomic_add_x2 s[6:7], s[4:5], 0x408
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s12, 0x1234
  s_store_dword s10, s[4:5], s8
  s_add_u32 s8, s8, 4
  s_mov_b32 s13, 0x5678
  s_store_dwordx2 s[12:13], s[4:5], s8
  s_dcache_wb
  s_endpgm
""",
        arch,
    )
    made = run(code, arch, engine, mode)
    assert made.fault is None
    olds = [int(made.output[4 * wave]) for wave in range(8)]
    assert sorted(olds) == sorted([0, 1, 2, 3, 4, 5, 0, 1])
    assert int(made.output[0x100]) == 2
    assert [int(word) for word in made.output[1:3]] == [0x1234, 0x5678]
    assert made.counters is not None
    assert made.counters.atomics == 16


@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_a_scalar_store_outside_of_memory_is_a_fault(engine: str, mode: Mode) -> None:
    code = assemble(START + "s_mov_b64 s[4:5], 0\ns_store_dword s6, s[4:5], 0x10\ns_endpgm", "gfx942")
    made = run(code, "gfx942", engine, mode)
    assert isinstance(made.fault, MemoryFault)


@pytest.mark.parametrize("arch", GPUS)
def test_registers_by_index(arch: str) -> None:
    """v[10 + 3] by source, v[20 + 2] by destination, and one lane of v[30 + 1]; M0 has what is indexed."""
    texts = ["s_mov_b32 m0, 0", "s_mov_b32 s20, 3", "s_mov_b32 s21, 2", "s_mov_b32 s22, 1", "v_mov_b32 v22, 0"]
    texts += ["s_set_gpr_idx_on s20, gpr_idx(SRC0)", "v_mov_b32_e32 v40, v10", "s_set_gpr_idx_off"]
    texts += ["s_set_gpr_idx_on s21, gpr_idx(DST)", "v_add_u32_e32 v20, v10, v11", "s_set_gpr_idx_off"]
    texts += ["s_set_gpr_idx_on s22, gpr_idx(DST)", "v_writelane_b32 v30, 33, 5", "s_set_gpr_idx_off"]
    texts += ["s_set_gpr_idx_on s22, gpr_idx(SRC1,DST)", "s_set_gpr_idx_idx s21", "v_sub_u32_e32 v41, v10, v11"]
    texts += ["s_set_gpr_idx_off", "v_mov_b32 v45, m0", "v_mov_b32 v46, v10"]
    given = {register: np.arange(64) * register for register in (10, 11, 12, 13)} | {31: np.arange(64)}
    copied, total, lane, difference, m0, plain = run_both(arch, texts, given, [40, 22, 31, 43, 45, 46])
    assert np.array_equal(copied, given[13])
    assert np.array_equal(total, np.arange(64) * 21)
    assert np.array_equal(lane, np.where(np.arange(64) == 5, 33, np.arange(64)))
    assert np.array_equal(difference, (np.arange(64) * (10 - 13)).astype(np.uint32))
    assert int(m0[0]) & 0xF0FF == 0xA002
    assert np.array_equal(plain, given[10])


@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_an_index_that_differs_between_waves(engine: str, mode: Mode) -> None:
    code = assemble(
        START
        + """
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  v_readfirstlane_b32 s8, v0
  s_lshr_b32 s8, s8, 6
  v_mov_b32 v10, 100
  v_mov_b32 v11, 101
  v_mov_b32 v12, 102
  v_mov_b32 v13, 103
  s_set_gpr_idx_on s8, gpr_idx(SRC0)
  v_mov_b32_e32 v2, v10
  s_set_gpr_idx_off
  global_store_dword v1, v2, s[4:5]
  s_endpgm
""",
        "gfx942",
    )
    made = run(code, "gfx942", engine, mode, grid=1)
    assert made.fault is None
    assert np.array_equal(made.output[:256], np.repeat([100, 101, 102, 103], 64))


@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_an_index_beyond_the_registers_is_a_fault(engine: str, mode: Mode) -> None:
    text = START + "s_movk_i32 s8, 200\ns_set_gpr_idx_on s8, gpr_idx(SRC0)\nv_mov_b32_e32 v2, v10\ns_set_gpr_idx_off"
    made = run(assemble(text + "\ns_endpgm", "gfx942"), "gfx942", engine, mode)
    assert isinstance(made.fault, UnknownInstructionFault)
    assert "a register index beyond the registers of the kernel" in str(made.fault)


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_waves_skip_vector_instructions(arch: str, engine: str, mode: Mode) -> None:
    """Waves 1 and 3 skip an addition and a store (bit 0 of their number), but no scalar instruction."""
    code = assemble(
        START
        + """
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  v_readfirstlane_b32 s8, v0
  s_lshr_b32 s8, s8, 6
  s_mov_b32 s9, 7
  v_mov_b32 v2, 5
  v_mov_b32 v4, 1
  s_setvskip s8, 0
  v_add_u32 v2, v2, v2
  global_store_dword v1, v4, s[4:5] offset:2048
  s_add_u32 s9, s9, 1
  s_setvskip 0, 0
  v_add_u32 v2, s9, v2
  global_store_dword v1, v2, s[4:5]
  s_endpgm
""",
        arch,
    )
    made = run(code, arch, engine, mode, grid=1)
    assert made.fault is None
    assert np.array_equal(made.output[:256], np.repeat([18, 13, 18, 13], 64))
    assert np.array_equal(made.output[512:768], np.repeat([1, 0, 1, 0], 64))
