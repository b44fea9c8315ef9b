"""Waves that part, meet, wait for each other, and never end."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import assemble
from launched import launch

from tilewright.emulator.faults import BarrierFault, CodeFault, EndlessLoopFault, TrapFault, UnknownInstructionFault
from tilewright.emulator.group import POISON
from tilewright.emulator.launch import Extent, Mode

pytestmark = pytest.mark.compile

# s[4:5]: output. v0: number of the thread. v1: its byte offset. s6: number of the wave in the work-group.
# s7: number of the thread's work-group.
START = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  s_mov_b32 s7, s2
  v_lshlrev_b32_e32 v1, 2, v0
  v_readfirstlane_b32 s6, v0
  s_lshr_b32 s6, s6, 6
  s_waitcnt lgkmcnt(0)
"""
# Stores v2 at the thread's place in the output of its work-group (256 threads).
STORE = """
  s_lshl_b32 s20, s7, 10
  v_add_u32_e32 v1, s20, v1
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""
FOUR_WAVES = Extent(256)


@pytest.mark.parametrize("mode", Mode)
def test_waves_part_and_meet(mode: Mode) -> None:
    body = (
        START
        + """
  v_mov_b32_e32 v2, 100
  s_cmp_lt_u32 s6, 2
  s_cbranch_scc1 .Lfirst
  v_add_u32_e32 v2, 1, v2
  s_branch .Lmeet
.Lfirst:
  v_add_u32_e32 v2, 2, v2
.Lmeet:
  v_add_u32_e32 v2, s6, v2
"""
        + STORE
    )
    outcome = launch(assemble(body), grid=Extent(3), block=FOUR_WAVES, words=768, mode=mode)
    wave = np.arange(256) // 64
    assert (outcome.output.reshape(3, 256) == 100 + wave + np.where(wave < 2, 2, 1)).all()
    assert outcome.counters.waves == 12
    assert outcome.counters.instructions["branch"] == 12 + 6
    # The last block runs once for all waves that met, not once for each way.
    if mode is Mode.FAST:
        assert outcome.counters.steps == 7 + 3 + 2 + 1 + 1 + 4


@pytest.mark.parametrize("mode", Mode)
def test_loops_of_different_length(mode: Mode) -> None:
    body = (
        START
        + """
  s_mov_b32 s8, 0
  s_add_i32 s9, s6, s7
  v_mov_b32_e32 v2, 0
.Lloop:
  v_add_u32_e32 v2, 3, v2
  s_add_i32 s8, s8, 1
  s_cmp_le_u32 s8, s9
  s_cbranch_scc1 .Lloop
"""
        + STORE
    )
    outcome = launch(assemble(body), grid=Extent(9), block=FOUR_WAVES, words=9 * 256, mode=mode)
    trips = np.arange(256)[None, :] // 64 + np.arange(9)[:, None] + 1
    assert (outcome.output.reshape(9, 256) == 3 * trips).all()


EXCHANGE = (
    START
    + """
  v_add_u32_e32 v3, 1000, v0
  ds_write_b32 v1, v3
  {wait}
  {barrier}
  v_xor_b32_e32 v4, 0x3fc, v1
  ds_read_b32 v2, v4
  s_waitcnt lgkmcnt(0)
"""
    + STORE
)


def exchange(wait: str, barrier: str, mode: Mode) -> np.ndarray:
    code = assemble(EXCHANGE.format(wait=wait, barrier=barrier), lds=1024)
    return launch(code, grid=Extent(4), block=FOUR_WAVES, words=1024, mode=mode).output.reshape(4, 256)


@pytest.mark.parametrize("mode", Mode)
def test_waves_see_what_others_wrote_before_a_barrier(mode: Mode) -> None:
    assert (exchange("s_waitcnt lgkmcnt(0)", "s_barrier", mode) == 1255 - np.arange(256)).all()


def test_strict_mode_shows_a_missing_barrier_and_a_missing_wait() -> None:
    right = 1255 - np.arange(256)
    for wait, barrier in (("s_waitcnt lgkmcnt(0)", ""), ("", "s_barrier")):
        assert (exchange(wait, barrier, Mode.FAST) == right).all()
        seen = exchange(wait, barrier, Mode.STRICT)
        assert (seen == POISON).any()
        assert ((seen == POISON) | (seen == right)).all()
    # Waves of even work-groups run forward, of odd ones backward.
    seen = exchange("s_waitcnt lgkmcnt(0)", "", Mode.STRICT) == POISON
    assert seen[0, :128].all()
    assert not seen[0, 128:].any()
    assert seen[1, 128:].all()
    assert not seen[1, :128].any()


ENGINES = pytest.mark.parametrize("engine", ["numpy", "native"])


@ENGINES
def test_strict_mode_shows_a_missing_wait_for_a_load(engine: str) -> None:
    body = (
        START
        + """
  global_load_dword v3, v1, s[4:5]
  {wait}
  v_add_u32_e32 v2, 5, v3
"""
        + STORE
    )
    sound, unsound = assemble(body.format(wait="s_waitcnt vmcnt(0)")), assemble(body.format(wait=""))
    assert (launch(sound, mode=Mode.STRICT, engine=engine).output == 5).all()
    assert (launch(unsound, engine=engine).output == 5).all()
    assert (launch(unsound, mode=Mode.STRICT, engine=engine).output == POISON + 5).all()


@ENGINES
@pytest.mark.parametrize(("later", "seen"), [(14, POISON), (15, 0x33), (20, 0x33)])
def test_a_full_counter_lets_the_oldest_read_end(later: int, seen: int, engine: str) -> None:
    """The counter of the LDS counts to 15: a wave that asks for one more has got what it asked for first."""
    first = "v_mov_b32_e32 v3, 0x33\n ds_write_b32 v1, v3\n s_waitcnt lgkmcnt(0)\n ds_read_b32 v2, v1\n"
    body = START + first + "ds_read_b32 v4, v1\n" * later + STORE
    assert (launch(assemble(body, lds=1024), mode=Mode.STRICT, engine=engine).output == seen).all()


@pytest.mark.parametrize("mode", Mode)
def test_waves_that_ended_are_not_waited_for(mode: Mode) -> None:
    body = (
        START
        + """
  s_cmp_eq_u32 s6, 1
  s_cbranch_scc0 .Lstay
  s_endpgm
.Lstay:
  s_barrier
  v_mov_b32_e32 v2, 7
"""
        + STORE
    )
    outcome = launch(assemble(body), block=FOUR_WAVES, words=256, mode=mode)
    assert (outcome.output.reshape(4, 64)[:, 0] == [7, 0, 7, 7]).all()
    assert outcome.counters.barriers == 3


SPLIT = """
  s_load_b64 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_readfirstlane_b32 s6, v0
  s_lshr_b32 s6, s6, 5
  v_mov_b32_e32 v2, 9
  s_wait_kmcnt 0x0
  s_cmp_lt_u32 s6, {quiet}
  s_cbranch_scc1 .Lwait
  s_barrier_signal -1
.Lwait:
  s_barrier_wait -1
  global_store_b32 v1, v2, s[4:5]
  s_endpgm
"""


@pytest.mark.parametrize("mode", Mode)
def test_a_barrier_in_two_parts(mode: Mode) -> None:
    outcome = launch(assemble(SPLIT.format(quiet=0), "gfx1201"), "gfx1201", block=Extent(128), words=128, mode=mode)
    assert (outcome.output == 9).all()
    assert outcome.counters.barriers == 4


@pytest.mark.parametrize("mode", Mode)
def test_a_barrier_that_is_never_over(mode: Mode) -> None:
    with pytest.raises(BarrierFault, match="4 waves wait") as caught:
        launch(assemble(SPLIT.format(quiet=1), "gfx1201"), "gfx1201", block=Extent(128), words=128, mode=mode)
    assert str(caught.value.place.instruction).startswith("s_barrier_wait")
    assert caught.value.place.block == 0


def test_an_endless_loop_is_ended() -> None:
    with pytest.raises(EndlessLoopFault, match="the limit is 5000") as caught:
        launch(assemble("s_nop 0\n.Lagain:\ns_nop 1\ns_branch .Lagain"), limit=5000)
    place = caught.value.place
    assert str(place.instruction).startswith("s_branch")
    assert (place.kernel, place.block, place.wave) == ("kernel", 0, 0)


@pytest.mark.parametrize(
    "jump",
    [
        "s_branch 0x7000",
        "s_getpc_b64 s[8:9]\ns_add_u32 s8, s8, 0x4000\ns_setpc_b64 s[8:9]",
        "s_mov_b64 s[8:9], 0\ns_setpc_b64 s[8:9]",
        "s_nop 0\n.long 0xbf9f0000",
    ],
)
def test_a_jump_to_nowhere(jump: str) -> None:
    with pytest.raises((CodeFault, UnknownInstructionFault)) as caught:
        launch(assemble(jump))
    assert caught.value.place.kernel == "kernel"


def test_a_trap_is_a_fault() -> None:
    with pytest.raises(TrapFault, match="trap 2"):
        launch(assemble("s_trap 2\ns_endpgm"))


def test_what_is_unknown_costs_nothing_until_it_is_reached() -> None:
    unknown = "s_cbranch_scc1 .Lout\nv_screen_partition_4se_b32 v0, v1\n.Lout:\ns_endpgm"
    assert launch(assemble("s_cmp_eq_u32 0, 0\n" + unknown)).counters.waves == 1
    with pytest.raises(UnknownInstructionFault, match="v_screen_partition_4se_b32") as caught:
        launch(assemble("s_cmp_eq_u32 0, 1\n" + unknown))
    assert str(caught.value.place.instruction).startswith("v_screen_partition_4se_b32")


SPIN = (
    START
    + """
  v_mov_b32_e32 v3, 0
  s_cmp_eq_u32 s7, {last}
  s_cbranch_scc1 .Lsignal
.Lspin:
  global_load_dword v2, v3, s[4:5] sc0 sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s8, v2
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc1 .Lspin
  s_endpgm
.Lsignal:
  v_mov_b32_e32 v2, 1
  global_store_dword v3, v2, s[4:5]
  s_endpgm
"""
)


@pytest.mark.parametrize("mode", Mode)
def test_work_groups_may_wait_for_a_later_one(mode: Mode) -> None:
    code = assemble(SPIN.format(last=3))
    outcome = launch(code, grid=Extent(4), block=FOUR_WAVES, words=64, mode=mode)
    assert outcome.output[0] == 1
    with pytest.raises(EndlessLoopFault, match="larger batch"):
        launch(code, grid=Extent(4), block=FOUR_WAVES, mode=mode, batch_waves=8, limit=100_000)


@pytest.mark.parametrize("mode", Mode)
def test_functions_are_called_and_return(mode: Mode) -> None:
    body = (
        START
        + """
  v_mov_b32_e32 v2, 0
  s_getpc_b64 s[8:9]
.Lhere:
  s_bitcmp1_b32 s6, 0
  s_mov_b32 s11, .Leven-.Lhere
  s_cselect_b32 s10, .Lodd-.Lhere, s11
  s_add_u32 s8, s8, s10
  s_addc_u32 s9, s9, 0
  s_swappc_b64 s[30:31], s[8:9]
  s_call_b64 s[30:31], .Leven
"""
        + STORE
        + """
.Lodd:
  v_add_u32_e32 v2, 10, v2
  s_setpc_b64 s[30:31]
.Leven:
  v_add_u32_e32 v2, 20, v2
  s_setpc_b64 s[30:31]
"""
    )
    outcome = launch(assemble(body), block=FOUR_WAVES, words=256, mode=mode)
    assert (outcome.output.reshape(4, 64)[:, 0] == [40, 30, 40, 30]).all()


def test_faults_name_block_wave_and_lane() -> None:
    body = START + "v_mov_b32_e32 v2, 1\n" + STORE
    with pytest.raises(Exception, match="past the end of 'output'") as caught:
        launch(assemble(body), grid=Extent(3), block=FOUR_WAVES, words=2 * 256 + 100)
    place = caught.value.place  # type: ignore[attr-defined]
    assert (place.block, place.wave, place.lane) == (2, 1, 36)
    assert place.instruction.startswith("global_store_dword")
    assert place.address is not None


def test_the_clock_goes_forward_and_is_the_same_every_time() -> None:
    body = (
        START
        + """
  s_memtime s[10:11]
  s_waitcnt lgkmcnt(0)
  s_nop 0
  s_branch .Lnext
.Lnext:
  s_memtime s[12:13]
  s_waitcnt lgkmcnt(0)
  s_sub_u32 s14, s12, s10
  v_mov_b32_e32 v2, s14
"""
        + STORE
    )
    first, second = (launch(assemble(body)).output[0] for _ in range(2))
    assert 0 < first == second < 100
