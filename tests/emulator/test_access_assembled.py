"""Spellings of the assembler, and compiled code that reaches memory in every way."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from assembled import assemble
from hand_made import code_for
from launched import launch

from tilewright.arch.load import load
from tilewright.emulator import access
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.disassembly import disassemble, parse_line
from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.launch import Extent, Launch, Mode
from tilewright.emulator.memory import Memory

pytestmark = pytest.mark.compile

GFX9 = """
s_load_dword s8, s[2:3], 0x10
s_load_dwordx16 s[8:23], s[2:3], s4
s_load_dwordx4 s[8:11], s[2:3], s4 offset:0x20
s_buffer_load_dwordx8 s[8:15], s[4:7], 0x20 glc
buffer_load_dwordx3 v[0:2], v4, s[4:7], 0 offen offset:4095
buffer_load_ubyte v0, off, s[4:7], s9 offset:4
buffer_load_sbyte_d16_hi v0, v4, s[4:7], m0 idxen
buffer_load_short_d16 v0, v[4:5], s[4:7], 0 idxen offen
buffer_store_byte_d16_hi v0, v4, s[4:7], -1 offen
buffer_load_dword v4, s[4:7], 0 offen offset:8 lds
buffer_load_ushort off, s[4:7], 0 lds
buffer_atomic_add_f32 v0, v4, s[4:7], 0 offen
buffer_atomic_cmpswap_x2 v[0:3], v4, s[4:7], 0 offen
global_load_dwordx4 v[0:3], v[4:5], off offset:-4096
global_load_sshort v0, v4, s[2:3]
global_store_short_d16_hi v4, v0, s[2:3] offset:4095
global_atomic_pk_add_f16 v[4:5], v0, off
global_atomic_umax_x2 v4, v[0:1], s[2:3] offset:8
flat_load_dwordx3 v[0:2], v[4:5] offset:12
flat_store_byte v[4:5], v0
flat_atomic_swap_x2 v[4:5], v[0:1]
ds_read_b96 v[0:2], v4 offset:65535
ds_read_u16_d16_hi v0, v4
ds_read2st64_b64 v[0:3], v4 offset0:1 offset1:255
ds_write2_b32 v4, v0, v1 offset1:3
ds_write_b16_d16_hi v4, v0
ds_read_addtid_b32 v0 offset:4
ds_add_rtn_f32 v0, v4, v1
ds_cmpst_rtn_b64 v[0:1], v4, v[6:7], v[8:9]
ds_mskor_b32 v4, v0, v1
ds_wrxchg_rtn_b32 v0, v4, v1
ds_rsub_u64 v4, v[0:1]
ds_swizzle_b32 v0, v1 offset:swizzle(BITMASK_PERM,"01pip")
ds_bpermute_b32 v0, v1, v2 offset:4
ds_append v0 offset:4
ds_nop
ds_cmpst_rtn_f64 v[0:1], v4, v[6:7], v[8:9]
ds_condxchg32_rtn_b64 v[0:1], v4, v[6:7] offset:8
ds_wrap_rtn_b32 v0, v4, v1, v2
ds_wrxchg2_rtn_b64 v[0:3], v4, v[6:7], v[8:9] offset1:1
ds_wrxchg2st64_rtn_b32 v[0:1], v4, v6, v7 offset0:1
s_scratch_load_dwordx2 s[8:9], s[2:3], s4 offset:0x20
s_scratch_store_dwordx4 s[8:11], s[2:3], 0x20
s_buffer_store_dwordx2 s[8:9], s[4:7], s3 glc
s_buffer_atomic_cmpswap_x2 s[8:11], s[4:7], 0x8
"""
GFX940 = """
buffer_load_dwordx4 v[0:3], v4, s[4:7], 0 offen sc0 nt sc1
global_load_dword a3, v[4:5], off sc1
global_load_lds_dword v[4:5], off offset:16
global_load_lds_ubyte v4, s[2:3] sc0
global_atomic_add_f64 v[0:1], v4, v[6:7], s[2:3] sc0
global_atomic_pk_add_bf16 v[4:5], v0, off
buffer_atomic_pk_add_f16 v0, v4, s[4:7], 0 offen sc0
flat_atomic_add v0, v[4:5], v1 sc0
scratch_load_dwordx2 v[0:1], v4, s8 offset:-4
scratch_store_dword off, v0, s33 offset:16
scratch_store_short v4, v0, off
scratch_load_lds_ushort v4, off offset:-4
scratch_load_lds_dword off, s8
ds_pk_add_rtn_bf16 v0, v4, v1
ds_write_b128 v4, a[0:3]
buffer_wbl2 sc0 sc1
buffer_inv sc1
"""
SPELLINGS = {
    "gfx90a": GFX9
    + """
buffer_atomic_add_f64 v[0:1], v4, s[4:7], 0 offen glc
buffer_wbinvl1_vol
buffer_invl2
global_load_dword v0, v[4:5], off glc slc
""",
    "gfx942": GFX9 + GFX940,
    "gfx950": GFX9
    + GFX940
    + """
buffer_load_dwordx4 v4, s[4:7], 0 offen lds
global_load_lds_dwordx3 v[4:5], off
ds_read_b64_tr_b16 v[0:1], v4 offset:8
ds_read_b64_tr_b8 v[0:1], v4
ds_read_b64_tr_b4 v[0:1], v4
ds_read_b96_tr_b6 v[0:2], v4
buffer_atomic_pk_add_bf16 v0, v4, s[4:7], 0 offen
""",
    "gfx1100": """
s_load_b512 s[8:23], s[2:3], null
s_load_b64 s[8:9], s[2:3], s4 offset:0x10
s_buffer_load_b256 s[8:15], s[4:7], s3 glc dlc
buffer_load_b96 v[0:2], v4, s[4:7], null offen offset:4095 slc
buffer_load_d16_hi_i8 v0, off, s[4:7], s9
buffer_load_u16 v0, v4, s[4:7], 0 idxen
buffer_store_d16_hi_b16 v0, v4, s[4:7], 0 offen
buffer_atomic_add_f32 v0, v4, s[4:7], 0 offen glc
global_load_d16_b16 v0, v[4:5], off offset:-4096
global_store_b8 v4, v0, s[2:3]
global_atomic_min_i64 v[0:1], v4, v[6:7], s[2:3] glc
global_atomic_cmpswap_b32 v0, v[4:5], v[6:7], off glc
global_atomic_csub_u32 v0, v[4:5], v1, off glc
flat_load_b128 v[0:3], v[4:5]
flat_atomic_max_f32 v[4:5], v0
scratch_load_b64 v[0:1], v4, s8 offset:8
scratch_store_d16_hi_b8 off, v0, s33
ds_load_b128 v[0:3], v4 offset:16
ds_load_2addr_stride64_b64 v[0:3], v4 offset0:1 offset1:2
ds_store_2addr_b32 v4, v0, v1 offset1:1
ds_load_u8_d16_hi v0, v4
ds_storexchg_rtn_b64 v[0:1], v4, v[6:7]
ds_cmpstore_rtn_b32 v0, v4, v1, v2
ds_load_addtid_b32 v0
ds_storexchg_2addr_rtn_b64 v[0:3], v4, v[6:7], v[8:9] offset1:1
ds_cmpstore_rtn_f64 v[0:1], v4, v[6:7], v[8:9]
ds_consume v0 offset:4
global_load_addtid_b32 v0, s[2:3] offset:16
global_store_addtid_b32 v0, s[2:3] offset:16
global_atomic_cmpswap_f32 v0, v[4:5], v[6:7], off glc
buffer_gl0_inv
buffer_gl1_inv
""",
    "gfx1201": """
s_load_b96 s[8:10], s[2:3], 0x10
s_load_u8 s8, s[2:3], null
s_buffer_load_i16 s8, s[4:7], s3 offset:0x10
s_load_b32 s8, s[2:3], s4 offset:0x10 th:TH_LOAD_NT scope:SCOPE_SYS
buffer_load_b128 v[0:3], v4, s[4:7], null offen offset:8388607 th:TH_LOAD_NT
buffer_load_b32 v0, v4, s[4:7], s9 offen scope:SCOPE_DEV
buffer_store_b16 v0, v4, s[4:7], null offen
buffer_atomic_pk_add_bf16 v0, v4, s[4:7], null offen
global_load_b64 v[0:1], v[4:5], off offset:-8388608
global_atomic_add_u64 v[0:1], v4, v[6:7], s[2:3] th:TH_ATOMIC_RETURN scope:SCOPE_DEV
global_atomic_min_num_f32 v[4:5], v0, off
global_atomic_sub_clamp_u32 v0, v[4:5], v1, off th:TH_ATOMIC_RETURN
global_atomic_cond_sub_u32 v0, v[4:5], v1, off th:TH_ATOMIC_RETURN
scratch_load_b96 v[0:2], off, off offset:4
ds_max_num_rtn_f64 v[0:1], v4, v[6:7]
ds_pk_add_f16 v4, v0
ds_cond_sub_u32 v4, v0
ds_sub_clamp_rtn_u32 v0, v4, v1
ds_bpermute_fi_b32 v0, v1, v2 offset:4
ds_storexchg_2addr_stride64_rtn_b32 v[0:1], v4, v6, v7 offset0:1
global_inv scope:SCOPE_DEV
global_wb scope:SCOPE_SYS
""",
}
REFUSED = {
    "gfx90a": ("buffer_load_format_x v0, off, s[4:7], 0", "buffer_store_lds_dword s[4:7], s9 lds"),
    "gfx942": ("tbuffer_load_format_x v0, off, s[4:7], 0 format:22", "ds_gws_barrier v0 gds"),
    "gfx1100": ("buffer_load_b32 v[0:1], off, s[4:7], 0 tfe", "ds_add_gs_reg_rtn v[0:1], v2 gds"),
    "gfx1201": (
        "global_atomic_ordered_add_b64 v[4:5], v[0:1], off",
        "ds_bvh_stack_push4_pop1_rtn_b32 v1, v0, v1, v[2:5]",
    ),
}


@pytest.mark.parametrize("arch", SPELLINGS)
def test_every_spelling_is_known(arch: str) -> None:
    lines = disassemble(assemble(f"{SPELLINGS[arch]}\ns_endpgm", arch), load(arch))
    texts = [text for text in SPELLINGS[arch].splitlines() if text]
    assert len(lines) > len(texts)
    for line, text in zip(lines, texts, strict=False):
        assert access.translate(parse_line(line), code_for(arch)) is not None, text


@pytest.mark.parametrize(("arch", "text"), [(arch, text) for arch, texts in REFUSED.items() for text in texts])
def test_what_is_not_emulated_is_refused(arch: str, text: str) -> None:
    line = disassemble(assemble(f"{text}\ns_endpgm", arch), load(arch))[0]
    try:
        assert access.translate(parse_line(line), code_for(arch)) is None  # then no other part takes it
    except UnknownInstructionFault:
        return
    assert text.startswith("tbuffer")


# Arrays in private memory, calls with a stack, and pointers to three kinds of memory in one instruction.
SOURCE = """
__attribute__((noinline)) int weighed(__private int *a, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += a[i] * (i + 1);
  return s;
}
__attribute__((noinline)) int replaced(int *p, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += p[i];
  p[0] = s;
  return s;
}
__attribute__((noinline)) int deeper(int *p, int n, int d) {
  volatile int own[8];
  for (int i = 0; i < 8; i++) own[i] = i * d + n;
  int s = replaced(p, n);
  return s + own[n & 7];
}
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel_of_pointers(__global int *out, __global int *in) {
  __local int shared[64];
  int l = __builtin_amdgcn_workitem_id_x(), b = __builtin_amdgcn_workgroup_id_x();
  int a[16];
  for (int i = 0; i < 16; i++) a[i] = in[b * 64 + ((l + i) & 63)];
  int n = in[0] & 15;
  a[n] = l;
  shared[l] = l * 3 + b;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  int r = weighed(a, n + 1);
  int *p = (l & 1) ? (int *)&shared[l & ~3] : (int *)a;
  if ((l & 3) == 2) p = (int *)(in + b * 64 + l);
  int s = (l & 3) == 3 ? 0 : deeper(p, 3, l);
  out[b * 64 + l] = r + s * 7 + a[0];
}
"""


def expected(numbers: list[int], blocks: int) -> list[int]:
    results = []
    for b in range(blocks):
        for lane in range(64):
            a = [numbers[b * 64 + (lane + i & 63)] for i in range(16)]
            n = numbers[0] & 15
            a[n] = lane
            total = sum(a[i] * (i + 1) for i in range(n + 1))
            s = 0
            if lane & 3 == 2:
                s = sum(numbers[b * 64 + lane : b * 64 + lane + 3])
            elif lane & 3 == 1:
                s = sum((lane & ~3) * 3 + 3 * i + b for i in range(3))
            elif lane & 3 == 0:
                s = a[0] = sum(a[:3])
            results.append(total + 7 * (s + (3 * lane + 3 if lane & 3 != 3 else 0)) + a[0])
    return results


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("arch", SPELLINGS)
def test_compiled_pointers_on_both_engines(arch: str, mode: Mode, tmp_path: Path) -> None:
    source, built = tmp_path / "kernel.cl", tmp_path / "kernel.co"
    source.write_text(SOURCE)
    command = ["clang-22", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-O2", "-nogpulib", "-cl-std=CL2.0", "-w"]
    subprocess.run([*command, str(source), "-o", str(built)], check=True)
    blocks = 4
    numbers = [37, *np.random.default_rng(0).integers(0, 1000, blocks * 64 - 1).tolist(), 0, 0]
    for engine in ("numpy", "native"):
        memory = Memory(1 << 26)
        device = EmulatedDevice(load(arch), memory)
        kernel = device.load(built.read_bytes()).kernels["kernel_of_pointers"]
        given, result = memory.allocate(len(numbers) * 4, "in"), memory.allocate(blocks * 256, "out")
        memory.write(given, np.array(numbers, np.int32).tobytes())
        asked = Launch(Extent(blocks), Extent(64), struct.pack("<QQ", result, given))
        device.launch(kernel, asked, mode=mode, engine=engine)
        found = np.frombuffer(memory.read(result, blocks * 256), np.int32)
        assert found.tolist() == expected(numbers, blocks), engine


# The output's address, the thread's byte offset in v1, 0x33 in all of the LDS but its first dwords, and v4 below zero.
BELOW_ZERO = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v3, 0x33
  ds_write_b32 v1, v3 offset:8
  v_mov_b32_e32 v4, -16
  s_waitcnt lgkmcnt(0)
  ds_read2_b32 v[2:3], v4 offset0:6 offset1:7
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("mode", Mode)
def test_lds_addresses_wrap_on_both_engines(mode: Mode, engine: str) -> None:
    assert (launch(assemble(BELOW_ZERO, lds=1024), mode=mode, engine=engine).output == 0x33).all()
