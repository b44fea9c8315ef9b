"""Strict mode runs the waves of every other work-group from the last to the first, and turned on request.

Turned, copies from memory to LDS arrive at once; else at their wait.
"""

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


# Two waves. Each reads the sevens that the other wrote to the LDS, and copies zeros over its own.
COPY = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, 7
  ds_write_b32 v1, v2
  v_readfirstlane_b32 s6, v1
  s_mov_b32 m0, s6
  v_xor_b32_e32 v3, 0x100, v1
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v3
  s_waitcnt lgkmcnt(0)
  {before}
  global_load_lds_dword v1, s[4:5]
  {after}
  s_barrier
  ds_read_b32 v5, v3
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_lshl_add_u32 v4, v5, 4, v4
  global_store_dword v1, v4, s[4:5]
  s_endpgm
"""
BARRIER, WAIT = "s_barrier", "s_waitcnt vmcnt(0)"
RIGHT, LATE, OVERWRITTEN = 0x07, 0x77, 0x00  # 16 times what is read after the copy, and what before it


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(
    ("before", "after", "turned", "results"),
    [
        (BARRIER, WAIT, False, {RIGHT}),
        (BARRIER, WAIT, True, {RIGHT}),
        (BARRIER, "", False, {LATE, RIGHT}),  # the wave that runs first is too early
        (BARRIER, "", True, {RIGHT}),
        ("", WAIT, False, {RIGHT, OVERWRITTEN}),
        ("", WAIT, True, {RIGHT, OVERWRITTEN}),
    ],
)
def test_copies_arrive_at_both_ends_of_their_time(
    engine: str, before: str, after: str, turned: bool, results: set[int]
) -> None:
    outcome = launch(
        assemble(COPY.format(before=before, after=after), lds=512), block=Extent(128), words=128, mode=Mode.STRICT,
        engine=engine, turned=turned,
    )  # fmt: skip
    assert set(outcome.output.tolist()) == results


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_copy_over_what_others_still_read_is_seen_when_turned(engine: str) -> None:
    """The wait stands behind the barrier, so a copy that comes late does no harm."""
    text = COPY.format(before="", after="").replace(
        "  s_barrier\n  ds_read_b32 v5", "  s_barrier\n  s_waitcnt vmcnt(0)\n  s_barrier\n  ds_read_b32 v5"
    )
    seen = {}
    for turned in (False, True):
        outcome = launch(
            assemble(text, lds=512), block=Extent(128), words=128, mode=Mode.STRICT, engine=engine, turned=turned
        )
        seen[turned] = set(outcome.output.tolist())
    assert seen == {False: {RIGHT}, True: {RIGHT, OVERWRITTEN}}
