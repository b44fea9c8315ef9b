"""Strict mode runs the waves of every other work-group from the last to the first, and turned on request."""

from __future__ import annotations

import pytest
from assembled import assemble
from launched import launch

from tilewright.emulator.launch import Extent, Mode

pytestmark = pytest.mark.compile

# Every wave writes its number to the place of its work-group. Nothing orders them: the last one wins.
RACE = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  s_lshl_b32 s7, s2, 2
  v_lshrrev_b32_e32 v2, 6, v0
  v_mov_b32_e32 v1, s7
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(("turned", "winners"), [(False, [3, 0, 3]), (True, [0, 3, 0])])
def test_both_orders_occur(engine: str, turned: bool, winners: list[int]) -> None:
    outcome = launch(
        assemble(RACE), grid=Extent(3), block=Extent(256), words=3, mode=Mode.STRICT, engine=engine, turned=turned
    )
    assert list(outcome.output) == winners
