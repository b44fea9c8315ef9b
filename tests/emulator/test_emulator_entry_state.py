"""What a kernel finds in its registers when it begins."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import LANES, assemble
from launched import launch

from tilewright.emulator.group import POISON
from tilewright.emulator.launch import Extent, Mode

pytestmark = pytest.mark.compile

# Stores four words per thread: v0, and the numbers of the work-group.
CDNA = """
  s_load_dwordx2 s[6:7], s[0:1], 0x0
  v_mov_b32_e32 v4, v0
  v_mov_b32_e32 v5, s2
  v_mov_b32_e32 v6, s3
  v_mov_b32_e32 v7, s4
  s_waitcnt lgkmcnt(0)
"""
GFX11 = CDNA.replace("s_load_dwordx2", "s_load_b64")
GFX12 = """
  s_load_b64 s[6:7], s[0:1], 0x0
  v_mov_b32_e32 v4, v0
  v_mov_b32_e32 v5, ttmp9
  s_and_b32 s10, ttmp7, 0xffff
  v_mov_b32_e32 v6, s10
  s_lshr_b32 s10, ttmp7, 16
  v_mov_b32_e32 v7, s10
  s_wait_kmcnt 0x0
"""


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("arch", LANES)
def test_numbers_of_work_items_and_work_groups(arch: str, mode: Mode) -> None:
    """One wave per work-group, so that the lane is the thread."""
    begin = GFX12 if arch == "gfx1201" else GFX11 if arch == "gfx1100" else CDNA
    store = "global_store_b128" if arch.startswith("gfx1") else "global_store_dwordx4"
    lane = "v_mbcnt_lo_u32_b32 v8, -1, 0\n" if LANES[arch] == 32 else (
        "v_mbcnt_lo_u32_b32 v8, -1, 0\nv_mbcnt_hi_u32_b32 v8, -1, v8\n")  # fmt: skip
    # Number of the work-group in the grid of 3 x 2 x 2, times 32 threads.
    place = """
  v_lshlrev_b32_e32 v9, 1, v7
  v_or_b32_e32 v9, v9, v6
  v_mul_u32_u24_e32 v9, 3, v9
  v_lshlrev_b32_e32 v10, 5, v9
  v_lshlrev_b32_e32 v9, 5, v5
  v_or_b32_e32 v8, v8, v9
"""
    add = "v_add_nc_u32_e32" if arch.startswith("gfx1") else "v_add_u32_e32"
    place = place.replace("v_or_b32_e32 v8, v8, v9", f"{add} v8, v8, v9\n{add} v8, v8, v10")
    finish = f"v_lshlrev_b32_e32 v8, 4, v8\n{store} v8, v[4:7], s[6:7]\ns_endpgm"
    code = assemble(begin + lane + place + finish, arch)
    block, grid = Extent(4, 4, 2), Extent(3, 2, 2)
    found = launch(code, arch, grid=grid, block=block, words=4 * 32 * 12, mode=mode).output.reshape(12, 32, 4)
    number, thread = np.arange(12), np.arange(32)
    packed = thread % 4 | (thread // 4 % 4) << 10 | (thread // 16) << 20
    assert (found[:, :, 0] == packed).all()
    assert (found[:, 0, 1] == number % 3).all()
    assert (found[:, 0, 2] == number // 3 % 2).all()
    assert (found[:, 0, 3] == number // 6).all()


STORE_ALL = """
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, {source}
  global_store_dword v1, v2, s[{output}]
  s_endpgm
"""


def test_registers_that_nobody_set_are_poisoned_in_strict_mode() -> None:
    for source in ("v9", "s50", "vcc_lo"):
        body = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
        code = assemble(body + STORE_ALL.format(source=source, output="4:5"))
        assert (launch(code).output == 0).all()
        assert (launch(code, mode=Mode.STRICT).output == POISON).all()


def test_lanes_past_the_block_are_off() -> None:
    body = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
    code = assemble(body + STORE_ALL.format(source="1", output="4:5"))
    assert launch(code, block=Extent(100), words=128).output.sum() == 100


@pytest.mark.parametrize("mode", Mode)
def test_arguments_are_preloaded(mode: Mode) -> None:
    more = "  .amdhsa_user_sgpr_kernarg_preload_length 3\n  .amdhsa_user_sgpr_kernarg_preload_offset 0"
    code = assemble(STORE_ALL.format(source="s4", output="2:3"), directives=more)
    assert (launch(code, more=(77).to_bytes(8, "little"), mode=mode).output == 77).all()


def test_the_dispatch_packet_tells_sizes() -> None:
    body = """
  s_load_dwordx2 s[8:9], s[2:3], 0x0
  s_load_dword s10, s[0:1], 0x4
  s_load_dword s11, s[0:1], 0x10
  s_waitcnt lgkmcnt(0)
  s_and_b32 s10, s10, 0xffff
  s_lshl_b32 s11, s11, 16
  s_or_b32 s10, s10, s11
""" + STORE_ALL.format(source="s10", output="8:9")
    code = assemble(body, directives="  .amdhsa_user_sgpr_dispatch_ptr 1")
    found = launch(code, grid=Extent(5, 3), block=Extent(32, 2)).output[0]
    assert found == 32 | 3 * 2 << 16


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_number_of_the_wave_on_gfx12(engine: str) -> None:
    """Each wave of 2 work-groups of 3 writes its number, from ttmp8."""
    body = """
  s_load_b64 s[6:7], s[0:1], 0x0
  s_bfe_u32 s10, ttmp8, 0x50019
  v_mov_b32_e32 v1, s10
  v_lshlrev_b32_e32 v0, 2, v0
  s_mul_i32 s11, ttmp9, 384
  v_add_nc_u32_e32 v0, s11, v0
  s_wait_kmcnt 0x0
  global_store_b32 v0, v1, s[6:7]
  s_endpgm
"""
    outcome = launch(
        assemble(body, "gfx1201"), "gfx1201", grid=Extent(2), block=Extent(96), words=2 * 96, engine=engine
    )
    assert outcome.output.tolist() == np.tile(np.arange(3).repeat(32), 2).tolist()
