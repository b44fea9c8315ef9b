"""Buffers and flat accesses of gfx11 and gfx12 in assembled kernels, on both engines."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import assemble
from native_runs import run

from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile

ENGINES = pytest.mark.parametrize("engine", ["numpy", "native"])
GPUS = pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
GIVEN = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)  # what native_runs gives a kernel
LANES = 32
WAIT_SCALARS = {"gfx1100": "s_waitcnt lgkmcnt(0)", "gfx1201": "s_wait_kmcnt 0x0"}
WAIT_ALL = {
    "gfx1100": "s_waitcnt vmcnt(0) lgkmcnt(0)",
    "gfx1201": "s_wait_loadcnt 0x0\n s_wait_dscnt 0x0",
}
# s[4:5] output, s[6:7] input, v0 number of the lane, v1 4 times it.
START = """
  s_load_b128 s[4:7], s[0:1], 0x0
  {scalars}
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
"""
END = """
  global_store_b32 v1, v3, s[4:5]
  s_endpgm
"""


def output(body: str, arch: str, engine: str) -> np.ndarray:
    text = START.format(scalars=WAIT_SCALARS[arch]) + body + END
    result = run(assemble(text, arch), arch, engine, Mode.STRICT, grid=1, block=LANES)
    assert result.fault is None, result.fault
    return result.output[:LANES]


@ENGINES
@GPUS
def test_an_instruction_makes_a_negative_offset_positive(arch: str, engine: str) -> None:
    """Lanes 0 to 15 have offsets of -64 to -4 in their register; 64 is added. The buffer has 24 dwords."""
    body = f"""
  s_mov_b64 s[8:9], s[6:7]
  s_mov_b32 s10, 96
  s_mov_b32 s11, 0x31004000
  v_subrev_nc_u32_e32 v2, 64, v1
  buffer_load_b32 v3, v2, s[8:11], {"0" if arch == "gfx1100" else "null"} offen offset:64
  {WAIT_ALL[arch]}
"""
    expected = np.where(np.arange(LANES) < 24, GIVEN[:LANES], 0)
    assert np.array_equal(output(body, arch, engine), expected)


@ENGINES
@GPUS
def test_flat_loads_end_in_order(arch: str, engine: str) -> None:
    """The first load is over when one is left, in both counters: what is written into its register then stays there."""
    one_left = {"gfx1100": "s_waitcnt vmcnt(1) lgkmcnt(1)", "gfx1201": "s_wait_loadcnt 0x1\n s_wait_dscnt 0x1"}
    body = f"""
  v_mov_b32_e32 v5, s7
  v_add_co_u32 v4, vcc_lo, s6, v1
  v_add_co_ci_u32_e64 v5, null, 0, v5, vcc_lo
  flat_load_b32 v6, v[4:5]
  flat_load_b32 v7, v[4:5] offset:4
  {one_left[arch]}
  v_mov_b32_e32 v8, v6
  v_mov_b32_e32 v6, 7
  {WAIT_ALL[arch]}
  v_add_nc_u32_e32 v3, v6, v8
"""
    assert np.array_equal(output(body, arch, engine), GIVEN[:LANES] + np.uint32(7))


@ENGINES
@GPUS
def test_a_flat_load_without_a_wait_is_noticed(arch: str, engine: str) -> None:
    body = f"""
  v_mov_b32_e32 v5, s7
  v_add_co_u32 v4, vcc_lo, s6, v1
  v_add_co_ci_u32_e64 v5, null, 0, v5, vcc_lo
  flat_load_b32 v6, v[4:5]
  v_mov_b32_e32 v6, 7
  v_mov_b32_e32 v3, v6
  {WAIT_ALL[arch]}
"""
    assert np.array_equal(output(body, arch, engine), GIVEN[:LANES])
