"""Whole kernels: the engine in C does and counts what NumPy's does, in both modes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from assembled import assemble
from native_runs import Run, run

import tilewright.arch
from tilewright.base.errors import DeviceError, UnknownValueError
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory
from tilewright.emulator.native.layout import STRUCTURES
from tilewright.emulator.native.library import count_handlers, load_engine
from tilewright.emulator.native.native_engine import prepare_native

pytestmark = pytest.mark.compile

# v0: number of the thread; v1: 4 · the thread's number in the grid; s[6:7] output, s[8:9] input.
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
  s_waitcnt vmcnt(0)
"""
END = """
  global_store_dword v1, v3, s[6:7]
  s_endpgm
"""
RDNA_START = """
  s_load_b128 s[4:7], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_mov_b64 s[8:9], s[6:7]
  s_mov_b64 s[6:7], s[4:5]
  v_and_b32 v0, 0x3ff, v0
  s_lshl_b32 s10, s2, 8
  v_add_nc_u32 v1, s10, v0
  v_lshlrev_b32 v1, 2, v1
  global_load_b32 v2, v1, s[8:9]
  s_waitcnt vmcnt(0)
"""
RDNA_END = """
  global_store_b32 v1, v3, s[6:7]
  s_endpgm
"""

KERNELS = {
    "lds exchange": """
  v_lshlrev_b32 v4, 2, v0
  ds_write_b32 v4, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_xor_b32 v5, 0x3fc, v4
  ds_read_b32 v3, v5
  ds_read2_b32 v[6:7], v5 offset0:0 offset1:1
  ds_read_u16_d16_hi v3, v4 offset:2
  ds_read_i8 v8, v4 offset:1
  s_waitcnt lgkmcnt(0)
  v_add3_u32 v3, v3, v6, v7
  v_add_u32 v3, v3, v8
""",
    "own writes before a wait": """
  v_lshlrev_b32 v4, 2, v0
  ds_write_b32 v4, v2
  ds_write_b16 v4, v0 offset:2
  ds_read_b32 v3, v4
  s_waitcnt lgkmcnt(0)
""",
    "addresses by lane": """
  v_readfirstlane_b32 s12, v0
  s_lshl_b32 s12, s12, 2
  s_or_b32 m0, s12, 0x50000
  ds_write_addtid_b32 v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_mov_b32 v3, v0
  v_cmp_lt_u32 vcc, v0, v2
  s_xor_b32 m0, m0, 0x100
  s_mov_b64 s[14:15], exec
  s_mov_b64 exec, vcc
  ds_write_addtid_b32 v0 offset:1024
  ds_read_addtid_b32 v3 offset:4
  s_waitcnt lgkmcnt(0)
  s_mov_b64 exec, s[14:15]
""",
    "bank conflicts": """
  v_lshlrev_b32 v4, 5, v0
  v_and_b32 v4, 0x3f0, v4
  ds_write_b128 v4, v[0:3]
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b64 v[6:7], v4 offset:8
  s_waitcnt lgkmcnt(0)
  v_xor_b32 v3, v6, v7
""",
    "loop of different lengths": """
  v_and_b32 v4, 15, v2
  v_mov_b32 v3, 0
  s_mov_b64 s[12:13], exec
loop:
  v_add_u32 v3, v3, v4
  v_subrev_u32 v4, 1, v4
  v_cmp_lt_i32 vcc, 0, v4
  s_and_b64 exec, exec, vcc
  s_cbranch_execnz loop
  s_mov_b64 exec, s[12:13]
""",
    "waves part": """
  v_readfirstlane_b32 s12, v0
  s_bitcmp1_b32 s12, 6
  s_cbranch_scc1 odd
  v_mov_b32 v3, 7
  s_branch both
odd:
  v_mul_lo_u32 v3, v0, v2
both:
  s_barrier
""",
    "lanes move": """
  v_mov_b32 v3, 0
  v_mov_b32_dpp v3, v2 row_shr:3 row_mask:0xf bank_mask:0xf
  v_add_u32_dpp v3, v2, v3 quad_perm:[1,0,3,2] row_mask:0x5 bank_mask:0xf bound_ctrl:0
  v_cmp_gt_u32 vcc, 40, v0
  s_and_saveexec_b64 s[12:13], vcc
  v_add_u32_dpp v3, v2, v3 row_ror:5 row_mask:0xf bank_mask:0xf
  s_mov_b64 exec, s[12:13]
  v_lshlrev_b32 v4, 3, v0
  ds_bpermute_b32 v5, v4, v2
  ds_swizzle_b32 v6, v2 offset:swizzle(BITMASK_PERM, "01pi0")
  s_waitcnt lgkmcnt(0)
  v_xor_b32 v3, v3, v5
  v_add_u32 v3, v3, v6
  v_mbcnt_lo_u32_b32 v7, -1, v3
  v_mbcnt_hi_u32_b32 v3, -1, v7
  v_readlane_b32 s12, v2, 17
  v_writelane_b32 v3, s12, 5
""",
    "parts of registers": """
  v_add_u32_sdwa v3, v2, v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:WORD_0
  v_mul_f32_e64 v4, -|v2|, v0 clamp mul:2
  v_pk_add_f16 v5, v2, v0 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0]
  v_pk_fma_f32 v[6:7], v[2:3], v[4:5], v[0:1] op_sel_hi:[0,1,1]
  v_fma_mix_f32 v8, v2, v5, v0 op_sel:[1,0,0] op_sel_hi:[1,1,0]
  v_fma_mixhi_f16 v5, v2, v5, v0 op_sel_hi:[1,1,0]
  v_cvt_f16_f32 v9, v8
  v_mad_u64_u32 v[10:11], vcc, v2, v0, v[4:5]
  v_cndmask_b32 v12, v2, v0, vcc
  v_xor_b32 v3, v3, v5
  v_xor_b32 v3, v3, v6
  v_xor_b32 v3, v3, v10
  v_xor_b32 v3, v3, v12
""",
    "rows of elements": """
  v_lshlrev_b32 v4, 1, v1
  v_mul_u32_u24 v5, 3, v1
  v_lshlrev_b32 v6, 2, v1
  global_load_dwordx2 v[8:9], v4, s[8:9]
  global_load_dwordx3 v[10:12], v5, s[8:9]
  global_load_dwordx4 v[14:17], v6, s[8:9]
  s_waitcnt vmcnt(0)
  global_store_dwordx4 v6, v[14:17], s[6:7] offset:2048
  v_add3_u32 v3, v8, v9, v10
  v_add3_u32 v3, v3, v11, v12
""",
    "rows with a gap": """
  v_and_b32 v7, 63, v0
  v_cmp_eq_u32 vcc, 62, v7
  v_mov_b32 v8, 0
  v_cndmask_b32 v4, v1, v8, vcc
  v_lshlrev_b32 v5, 2, v4
  global_load_dword v3, v4, s[8:9]
  global_load_dwordx4 v[10:13], v5, s[8:9]
  s_waitcnt vmcnt(0)
  v_add_u32 v5, 16, v5
  v_cmp_ne_u32 vcc, 62, v7
  s_and_saveexec_b64 s[12:13], vcc
  global_store_dwordx4 v5, v[10:13], s[6:7] offset:2048
  s_mov_b64 exec, s[12:13]
  v_add_u32 v3, v3, v12
""",
    "offsets that wrap around": """
  s_mov_b32 s12, s8
  s_mov_b32 s13, s9
  s_movk_i32 s14, 0x1000
  s_mov_b32 s15, 0x00020000
  v_add_u32 v4, 0xffffff00, v1
  buffer_load_dword v3, v4, s[12:15], 0 offen offset:384
  s_waitcnt vmcnt(0)
""",
    "buffer bounds": """
  s_mov_b32 s12, s8
  s_and_b32 s13, s9, 0xffff
  s_movk_i32 s14, 0x3f2
  s_mov_b32 s15, 0x20000
  buffer_load_dwordx4 v[4:7], v1, s[12:15], 0 offen offset:4
  buffer_load_ushort v8, v1, s[12:15], 0 offen
  s_waitcnt vmcnt(0)
  v_add3_u32 v3, v4, v5, v6
  v_add3_u32 v3, v3, v7, v8
  s_buffer_load_dwordx2 s[16:17], s[12:15], 0x3ec
  s_waitcnt lgkmcnt(0)
  v_add_u32 v3, s16, v3
  v_add_u32 v3, s17, v3
""",
    "matrices": """
  v_mov_b32 v4, v0
  v_and_b32 v4, 0x00010001, v2
  v_and_b32 v5, 0x00030001, v2
  v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[4:5], 0
  s_nop 15
  v_mfma_f32_32x32x8_f16 v[16:31], v[4:5], v[4:5], v[16:31]
  v_mfma_i32_16x16x32_i8 v[8:11], v[2:3], v[4:5], 0
  s_nop 15
  v_mov_b32 v3, v23
  v_xor_b32 v3, v3, v9
""",
    "private memory": """
  scratch_store_dwordx2 off, v[0:1], off offset:8
  v_mov_b32 v4, 4
  scratch_load_dwordx2 v[6:7], v4, off offset:4
  s_waitcnt vmcnt(0)
  v_add_u32 v3, v6, v7
""",
    "a call": """
  s_getpc_b64 s[12:13]
after:
  s_add_u32 s12, s12, square-after
  s_addc_u32 s13, s13, 0
  s_swappc_b64 s[14:15], s[12:13]
  s_branch behind
square:
  v_mul_lo_u32 v3, v2, v2
  s_setpc_b64 s[14:15]
behind:
""",
}
RDNA = {
    "pairs": """
  v_dual_mov_b32 v3, v2 :: v_dual_lshlrev_b32 v4, 3, v2
  v_dual_add_f32 v4, v2, v3 :: v_dual_mul_f32 v3, v4, v2
  v_dual_mov_b32 v3, v4 :: v_dual_mov_b32 v4, v3
  v_xor_b32 v3, v3, v4
""",
    "lanes": """
  s_mov_b32 s13, 0x3a5c1f70
  v_permlanex16_b32 v3, v2, s13, s10
  v_cmp_gt_u32 vcc_lo, 20, v0
  s_and_saveexec_b32 s12, vcc_lo
  v_add_nc_u32_dpp v3, v2, v3 row_xmask:3 row_mask:0xf bank_mask:0xf
  s_mov_b32 exec_lo, s12
""",
}


def compare(body: str, arch: str, mode: Mode, **settings: int) -> None:
    code = assemble(body, arch, vgprs=32, lds=4096, private=32)
    numpy, native = (run(code, arch, engine, mode, **settings) for engine in ("numpy", "native"))
    assert numpy.fault is None, numpy.fault
    assert native.fault is None, native.fault
    assert np.array_equal(numpy.output, native.output)
    assert native.output.any()
    assert numpy.counters == native.counters


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", KERNELS)
def test_gfx942(name: str, mode: Mode) -> None:
    # NumPy counts the cache lines of all waves of a step dword by dword when the bounds cut one of them.
    settings = {"grid": 1, "block": 64} if name == "buffer bounds" else {}
    compare(START + KERNELS[name] + END, "gfx942", mode, **settings)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", RDNA)
def test_gfx1100(name: str, mode: Mode) -> None:
    compare(RDNA_START + RDNA[name] + RDNA_END, "gfx1100", mode)


@pytest.mark.parametrize("mode", Mode)
def test_atomics(mode: Mode) -> None:
    body = """
  v_and_b32 v4, 12, v1
  v_mov_b32 v3, 0
  global_atomic_add v4, v0, s[6:7] offset:64
  global_atomic_umax v5, v4, v2, s[6:7] offset:128 sc0
  ds_add_u32 v4, v0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_barrier
  ds_read_b32 v3, v4
  s_waitcnt lgkmcnt(0)
  v_add_u32 v1, 0x400, v1
"""
    # LDS is not zero in strict mode: written first.
    first = "  v_lshlrev_b32 v4, 2, v0\n  v_mov_b32 v3, 0\n  ds_write_b32 v4, v3\n  s_waitcnt lgkmcnt(0)\n  s_barrier\n"
    compare(START + first + body + END, "gfx942", mode)


def test_work_groups_that_wait_for_later_ones() -> None:
    """Every work-group but the last spins until the last has written."""
    body = """
  s_cmp_eq_u32 s2, 3
  s_cbranch_scc0 wait
  v_mov_b32 v4, 0x1000
  v_mov_b32 v5, 1
  global_store_dword v4, v5, s[6:7]
wait:
  v_mov_b32 v4, 0x1000
again:
  global_load_dword v3, v4, s[6:7] sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s12, v3
  s_cmp_eq_u32 s12, 0
  s_cbranch_scc1 again
"""
    code = assemble(START + body + END, "gfx942", vgprs=32)
    done = run(code, "gfx942", "native", Mode.STRICT, grid=4, words=8192, limit=1 << 30)
    assert done.fault is None, done.fault
    assert (done.output[:1024] == 1).all()


def test_the_clock_goes_forward() -> None:
    body = """
  s_memtime s[12:13]
  s_waitcnt lgkmcnt(0)
  s_nop 0
  s_memtime s[14:15]
  s_waitcnt lgkmcnt(0)
  s_sub_u32 s14, s14, s12
  v_mov_b32 v3, s14
"""
    done = run(assemble(START + body + END, "gfx942", vgprs=32), "gfx942", "native", Mode.STRICT)
    assert (done.output[:512] == 3).all()


@pytest.mark.parametrize("gpu", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_the_clock_of_later_gpus_answers_a_message(gpu: str, engine: str) -> None:
    message = "  s_sendmsg_rtn_b64 s[{}:{}], sendmsg(MSG_RTN_GET_{})\n"
    first, second = (f"{message.format(at, at + 1, 'REALTIME')}  s_waitcnt lgkmcnt(0)\n" for at in (12, 14))
    body = f"{first}  s_branch next\nnext:\n{second}  s_sub_u32 s14, s14, s12\n  v_mov_b32 v3, s14\n"

    def run_body(body: str) -> Run:
        text = RDNA_START + body + RDNA_END
        if gpu == "gfx1201":
            others = {"s_waitcnt lgkmcnt(0)": "s_wait_kmcnt 0x0", "s_waitcnt vmcnt(0)": "s_wait_loadcnt 0x0"}
            for old, new in {**others, "s10, s2,": "s10, ttmp9,"}.items():
                text = text.replace(old, new)
        return run(assemble(text, gpu, vgprs=32), gpu, engine, Mode.STRICT)

    done = run_body(body)
    assert done.fault is None, done.fault
    assert (done.output[:256] > 0).all() and (done.output[:256] < 100).all()
    assert "the message" in str(run_body(message.format(12, 13, "TMA")).fault)


def test_structures_are_those_of_the_library() -> None:
    compiled = load_engine()
    assert compiled is not None
    sizes = (ctypes.c_uint32 * (len(STRUCTURES) + 1))()
    compiled.handle.tilewright_sizes(sizes)
    assert list(sizes) == [*(ctypes.sizeof(structure) for structure in STRUCTURES), count_handlers()]


def test_what_only_numpy_runs() -> None:
    """Chosen by itself, NumPy runs it; asked for, the native engine says what it cannot."""
    body = "  v_dot2_f32_f16 v3, v2, v2, v2 neg_lo:[1,0,0]\n"
    memory = Memory(1 << 24)
    device = EmulatedDevice(tilewright.arch.load("gfx942"), memory)
    (kernel,) = device.load(assemble(START + body + END, "gfx942")).kernels.values()
    parts = kernel.program, kernel.code, kernel.descriptor
    assert prepare_native(*parts, "auto") is None
    with pytest.raises(DeviceError, match="v_dot2_f32_f16"):
        prepare_native(*parts, "native")
    with pytest.raises(UnknownValueError, match="engine"):
        device.launch(kernel, Launch(Extent(1), Extent(64), bytes(16)), engine="cuda")
