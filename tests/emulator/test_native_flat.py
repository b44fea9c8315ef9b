"""flat_… on the engine in C: lanes of one instruction in memory, in LDS and in private memory."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import assemble
from native_runs import Run, run

from tilewright.emulator.faults import AlignmentFault, Fault, LdsFault, MemoryFault
from tilewright.emulator.hardware import PRIVATE_BASE, SHARED_BASE
from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile

# s[6:7] output, s[8:9] input, v0 number of the thread, v1 4 times it in the grid, v2 a word of the input.
# v[4:5]: in the input for lanes 0, 3, 6 …, in the LDS for lanes 1, 4, 7 …, in private memory for the others.
START = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_mov_b64 s[8:9], s[6:7]
  s_mov_b64 s[6:7], s[4:5]
  v_and_b32 v0, 0x3ff, v0
  s_lshl_b32 s10, s2, 8
  v_add_u32 v1, s10, v0
  v_lshlrev_b32 v1, 2, v1
  global_load_dword v2, v1, s[8:9]
  s_mov_b64 s[12:13], src_shared_base
  s_mov_b64 s[14:15], src_private_base
  v_lshlrev_b32 v6, 2, v0
  s_mov_b32 s16, 0x55555556
  v_mul_hi_u32 v7, v0, s16
  v_mul_u32_u24 v7, 3, v7
  v_sub_u32 v7, v0, v7
  v_mov_b32 v5, s9
  v_add_co_u32 v4, vcc, s8, v1
  v_addc_co_u32 v5, vcc, 0, v5, vcc
  v_mov_b32 v8, s13
  v_cmp_eq_u32 vcc, 1, v7
  v_cndmask_b32 v4, v4, v6, vcc
  v_cndmask_b32 v5, v5, v8, vcc
  v_mov_b32 v8, s15
  v_mov_b32 v9, 8
  v_cmp_eq_u32 vcc, 2, v7
  v_cndmask_b32 v4, v4, v9, vcc
  v_cndmask_b32 v5, v5, v8, vcc
  s_waitcnt vmcnt(0)
"""
END = """
  global_store_dword v1, v3, s[6:7]
  s_endpgm
"""
KERNELS = {
    "all three kinds of memory": """
  ds_write_b32 v6, v1
  s_waitcnt lgkmcnt(0)
  s_barrier
  flat_store_dword v[4:5], v2
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_barrier
  flat_load_ushort v8, v[4:5] offset:2
  flat_load_sbyte v9, v[4:5] offset:1
  v_mov_b32 v10, 0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  flat_load_short_d16_hi v10, v[4:5]
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_add3_u32 v3, v8, v9, v10
""",
    "some lanes": """
  v_mov_b32 v3, v2
  v_cmp_gt_u32 vcc, 40, v2
  ds_write_b32 v6, v0
  s_waitcnt lgkmcnt(0)
  flat_store_short_d16_hi v[4:5], v2
  s_and_saveexec_b64 s[16:17], vcc
  flat_load_dword v3, v[4:5]
  s_mov_b64 exec, 0
  flat_load_dword v3, v[4:5]
  flat_store_dword v[4:5], v3
  flat_atomic_add v[4:5], v3
  s_mov_b64 exec, s[16:17]
  s_waitcnt vmcnt(0) lgkmcnt(0)
""",
    "own LDS writes before a wait": """
  ds_write_b32 v6, v2
  flat_store_byte v[4:5], v0
  flat_load_dword v3, v[4:5]
  ds_read_b32 v8, v6
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_add_u32 v3, v3, v8
""",
    "waits for some": """
  global_load_dword v8, v1, s[8:9] offset:4
  flat_load_dword v3, v[4:5]
  global_load_dword v9, v1, s[8:9] offset:8
  v_mov_b32 v10, v3
  s_waitcnt vmcnt(1) lgkmcnt(1)
  v_xor_b32 v10, v10, v8
  v_xor_b32 v10, v10, v9
  v_xor_b32 v10, v10, v3
  s_waitcnt vmcnt(0)
  v_xor_b32 v3, v3, v10
  s_waitcnt lgkmcnt(0)
""",
    "a register written too early": """
  flat_load_dword v3, v[4:5]
  v_mov_b32 v3, 7
  v_add_u32 v8, v3, v0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_add_u32 v3, v3, v8
""",
    "atomics": """
  v_mov_b32 v10, 1
  ds_write_b32 v6, v10
  flat_store_dword v[4:5], v10
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_barrier
  flat_atomic_add v8, v[4:5], v0 sc0
  flat_atomic_umax v[4:5], v2
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_barrier
  flat_load_dword v9, v[4:5]
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_xor_b32 v3, v8, v9
""",
    "atomics of 64 bits": """
  v_and_b32 v4, -8, v4
  v_mov_b32 v10, 0
  v_mov_b32 v11, 1.0
  v_and_b32 v6, -8, v6
  ds_write_b64 v6, v[10:11]
  flat_store_dwordx2 v[4:5], v[10:11]
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_barrier
  flat_atomic_add_f64 v[4:5], v[10:11]
  flat_atomic_add_x2 v[8:9], v[4:5], v[0:1] sc0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_barrier
  flat_load_dwordx2 v[10:11], v[4:5]
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_xor_b32 v3, v10, v11
""",
}
# A kernel with a register of each kind of place that a flat access must not reach.
FAULTS = {
    "memory": ("v_mov_b32 v4, 0", MemoryFault, "4 bytes at"),
    "lds": ("v_or_b32 v4, 0x10000, v4", LdsFault, "4 bytes at 0x1"),
    "private": ("v_add_u32 v4, 24, v4", MemoryFault, "of the private memory of a lane, which has 32"),
    "atomic": ("v_add_u32 v4, 2, v4", AlignmentFault, "2 past a multiple"),
}


def both(body: str, mode: Mode) -> tuple[Run, Run]:
    code = assemble(START + body + END, "gfx942", vgprs=32, lds=4096, private=32)
    numpy, native = (run(code, "gfx942", engine, mode) for engine in ("numpy", "native"))
    return numpy, native


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", KERNELS)
def test_as_numpy(name: str, mode: Mode) -> None:
    numpy, native = both(KERNELS[name], mode)
    assert numpy.fault is None, numpy.fault
    assert native.fault is None, native.fault
    assert np.array_equal(numpy.output, native.output)
    assert native.output.any()
    assert numpy.counters == native.counters


def test_values_come_from_where_the_address_says() -> None:
    """Each lane gets back the word that it stored, through its own kind of memory."""
    _, native = both(
        "flat_store_dword v[4:5], v2\n s_waitcnt vmcnt(0) lgkmcnt(0)\n s_barrier\n"
        "flat_load_dword v3, v[4:5]\n s_waitcnt vmcnt(0) lgkmcnt(0)\n",
        Mode.STRICT,
    )
    given = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
    assert np.array_equal(native.output[:512], given[:512])


@pytest.mark.parametrize("name", FAULTS)
def test_faults_as_numpy(name: str) -> None:
    """The lanes of one kind alone, at a place that they must not touch."""
    change, kind, text = FAULTS[name]
    lanes = {"memory": 0, "lds": 1, "private": 2, "atomic": 1}[name]
    access = "flat_atomic_add v[4:5], v0" if name == "atomic" else "flat_load_dword v3, v[4:5]"
    body = f"v_cmp_eq_u32 vcc, {lanes}, v7\n s_and_b64 exec, exec, vcc\n {change}\n {access}\n"
    faults: list[Fault | None] = [each.fault for each in both(body, Mode.FAST)]
    for fault in faults:
        assert isinstance(fault, kind), fault
        assert text in str(fault)
    assert faults[0].place == faults[1].place  # type: ignore[union-attr]


def test_the_apertures_are_those_of_the_engine_in_c() -> None:
    """flat.h has them as numbers: a kernel that makes such addresses itself reaches the same places."""
    body = f"""
  ds_write_b32 v6, v2
  v_mov_b32 v4, v6
  v_mov_b32 v5, {SHARED_BASE >> 32:#x}
  flat_load_dword v3, v[4:5]
  v_mov_b32 v8, 4
  v_mov_b32 v9, {PRIVATE_BASE >> 32:#x}
  flat_store_dword v[8:9], v0
  flat_load_dword v10, v[8:9]
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_xor_b32 v3, v3, v10
"""
    for done in both(body, Mode.FAST):
        assert done.fault is None
        given = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
        assert np.array_equal(done.output[:512], given[:512] ^ np.tile(np.arange(256, dtype=np.uint32), 2))
