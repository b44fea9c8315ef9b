"""Atomic sums of f32 at the end of its range: gfx90a's memory keeps no subnormal numbers, its LDS does."""

from __future__ import annotations

import pytest
from assembled import assemble
from launched import launch

from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile

SMALLEST_NORMAL, SUBNORMAL, LEAST = 0x00800000, 0x00400000, 0x00000001
MINUS = 0x80000000
# What is there, what is added, and what both give with and without subnormal numbers.
SUMS = [
    (SUBNORMAL, 0, SUBNORMAL, 0),
    (0, SUBNORMAL, SUBNORMAL, 0),
    (MINUS | SUBNORMAL, MINUS | 0, MINUS | SUBNORMAL, MINUS | 0),
    (SMALLEST_NORMAL | LEAST, MINUS | SMALLEST_NORMAL, LEAST, 0),
    (SUBNORMAL, SUBNORMAL, SMALLEST_NORMAL, 0),
    (0x3F800000, SUBNORMAL, 0x3F800000, 0x3F800000),
]
BODY = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_mov_b32_e32 v1, 0
  v_mov_b32_e32 v2, {there:#x}
  v_mov_b32_e32 v3, {added:#x}
  s_mov_b64 exec, 1
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5] offset:8
  ds_write_b32 v1, v2
  s_waitcnt vmcnt(0) lgkmcnt(0)
  global_atomic_add_f32 v1, v3, s[4:5] offset:8
  ds_add_f32 v1, v3
  ds_read_b32 v4, v1
  s_waitcnt vmcnt(0) lgkmcnt(0)
  global_store_dword v1, v4, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(("arch", "flushes"), [("gfx90a", True), ("gfx942", False), ("gfx950", False)])
def test_sums(arch: str, flushes: bool, mode: Mode, engine: str) -> None:
    for there, added, kept, flushed in SUMS:
        code = assemble(BODY.format(there=there, added=added), arch, lds=64)
        output = launch(code, arch, words=4, mode=mode, engine=engine).output.tolist()
        assert output == [kept, 0, flushed if flushes else kept, 0], (hex(there), hex(added))
