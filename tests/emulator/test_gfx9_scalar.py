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


# s[8:11] describe 24 bytes of the output, from byte 512 on.
BUFFER = (
    START
    + """
  s_add_u32 s8, s4, 512
  s_addc_u32 s9, s5, 0
  s_movk_i32 s10, 24
  s_mov_b32 s11, 0x20000
  s_mov_b32 s16, 11
  s_mov_b32 s17, 12
  s_mov_b32 s18, 13
  s_mov_b32 s19, 14
"""
)


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_stores_to_a_buffer_stay_inside(arch: str, engine: str, mode: Mode) -> None:
    """Of four dwords at byte 16, two are inside. A register of the offset adds to the number."""
    text = (
        BUFFER
        + """
  s_mov_b32 s20, 4
  s_buffer_store_dword s19, s[8:11], 0x0
  s_buffer_store_dwordx2 s[16:17], s[8:11], s20
  s_buffer_store_dwordx4 s[16:19], s[8:11], 0x10
  s_buffer_store_dword s18, s[8:11], 0x18
  s_dcache_wb
  s_dcache_wb_vol
  s_dcache_inv_vol
  s_dcache_discard s[4:5], 0x40
  s_dcache_discard_x2 s[4:5], s20
  s_endpgm
"""
    )
    made = run(assemble(text, arch), arch, engine, mode, grid=1, block=64)
    assert made.fault is None
    assert made.output[128:136].tolist() == [14, 11, 12, 0, 11, 12, 0, 0]
    assert made.counters is not None
    assert made.counters.global_write_bytes == 4 * 5


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_atomics_on_a_buffer(arch: str, engine: str, mode: Mode) -> None:
    """Four waves: each adds 11, and exchanges a number of 64 bits; outside, nothing happens."""
    text = (
        BUFFER
        + """
  s_mov_b32 s20, 0
  s_mov_b32 s21, 0
  s_mov_b64 s[24:25], s[18:19]
  s_mov_b64 s[26:27], 0
  s_buffer_atomic_add s16, s[8:11], 0x8
  s_buffer_atomic_cmpswap s[20:21], s[8:11], 0x0
  s_buffer_atomic_cmpswap_x2 s[24:27], s[8:11], 0x10 glc
  s_buffer_atomic_umax s18, s[8:11], 0x18
  s_buffer_atomic_add_x2 s[16:17], s[8:11], 0x14
  s_waitcnt lgkmcnt(0)
  s_store_dwordx2 s[24:25], s[4:5], 0x400
  s_endpgm
"""
    )
    made = run(assemble(text, arch), arch, engine, mode, grid=1, block=256)
    assert made.fault is None
    assert made.output[128:136].tolist() == [0, 0, 44, 0, 13, 14, 0, 0]
    assert made.output[256:258].tolist() == [13, 14]  # what the last wave found
    assert made.counters is not None
    assert made.counters.atomics == 12


@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_what_an_atomic_outside_of_a_buffer_returns_is_unknown(engine: str, mode: Mode) -> None:
    text = BUFFER + "s_buffer_atomic_swap s16, s[8:11], 0x18 glc\n  s_waitcnt lgkmcnt(0)\n  s_endpgm"
    made = run(assemble(text, "gfx942"), "gfx942", engine, mode, grid=1, block=64)
    assert isinstance(made.fault, UnknownInstructionFault)
    assert "outside of its buffer" in str(made.fault)


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_scratch_offsets_count_64_bytes(arch: str, engine: str, mode: Mode) -> None:
    """A register stands for 64 bytes each, a number for single bytes."""
    text = (
        BUFFER
        + """
  s_mov_b32 s20, 3
  s_scratch_store_dword s16, s[4:5], s20
  s_scratch_store_dwordx2 s[18:19], s[4:5], 0x8
  s_scratch_store_dwordx4 s[16:19], s[4:5], s20 offset:0x20
  s_dcache_wb
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s20, 1
  s_scratch_load_dword s24, s[6:7], s20
  s_scratch_load_dwordx2 s[26:27], s[6:7], 0x8
  s_scratch_load_dwordx4 s[28:31], s[6:7], s20 offset:0x10
  s_waitcnt lgkmcnt(0)
  s_store_dword s24, s[4:5], 0x400
  s_store_dwordx2 s[26:27], s[4:5], 0x404
  s_store_dwordx4 s[28:31], s[4:5], 0x410
  s_endpgm
"""
    )
    made = run(assemble(text, arch), arch, engine, mode, grid=1, block=64)
    assert made.fault is None
    assert made.output[48] == 11
    assert made.output[2:4].tolist() == [13, 14]
    assert made.output[56:60].tolist() == [11, 12, 13, 14]
    given = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
    assert made.output[256:259].tolist() == given[[16, 2, 3]].tolist()
    assert made.output[260:264].tolist() == given[20:24].tolist()


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
