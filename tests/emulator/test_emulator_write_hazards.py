"""Registers that are written while a load into them is under way."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import assemble
from hand_made import code_for
from launched import launch

from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.disassembly import parse_line
from tilewright.emulator.group import POISON
from tilewright.emulator.launch import Mode
from tilewright.emulator.write_hazards import find_written_registers

# s[4:5]: output, which is zero. v1: the thread's byte offset. v2: what was loaded and overwritten. What is in it right
# after that is stored.
KERNEL = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v4, 0x33
  ds_write_b32 v1, v4
  s_waitcnt lgkmcnt(0)
  {load}
  {wait}
  {move}
  v_mov_b32_e32 v5, {seen}
  s_waitcnt vmcnt(0) lgkmcnt(0)
  global_store_dword v1, v5, s[4:5]
  s_endpgm
"""
VECTOR = "v_mov_b32_e32 v2, 7"
# The load, the instruction that overwrites its register, the register, and the value loaded.
LOADS = {
    "global": ("global_load_dword v2, v1, s[4:5]", VECTOR, "v2", 0),
    "lds": ("ds_read_b32 v2, v1", VECTOR, "v2", 0x33),
    "scalar": ("s_load_dword s8, s[0:1], 0x8", "s_mov_b32 s8, 7", "s8", 0x5555),
    "one of several": ("s_load_dwordx2 s[8:9], s[0:1], 0x8", "s_mov_b32 s9, 7", "s9", 0x6666),
}
ALL = "s_waitcnt vmcnt(0) lgkmcnt(0)"


ENGINES = pytest.mark.parametrize("engine", ["numpy", "native"])


def result(kind: str, mode: Mode, engine: str, wait: str, turned: bool = False) -> int:
    load, move, seen, _ = LOADS[kind]
    body = KERNEL.format(load=load, wait=wait, move=move, seen=seen)
    more = np.array([0x5555, 0x6666], np.uint32).tobytes()
    (value,) = set(launch(assemble(body, lds=256), mode=mode, more=more, engine=engine, turned=turned).output.tolist())
    return int(value)


@pytest.mark.compile
@ENGINES
@pytest.mark.parametrize("kind", LOADS)
def test_a_load_arrives_after_its_register_was_overwritten(kind: str, engine: str) -> None:
    assert result(kind, Mode.FAST, engine, wait="") == 7
    assert result(kind, Mode.STRICT, engine, wait="") == LOADS[kind][3]


@pytest.mark.compile
@ENGINES
@pytest.mark.parametrize("kind", LOADS)
def test_with_a_wait_both_modes_agree(kind: str, engine: str) -> None:
    assert result(kind, Mode.FAST, engine, wait=ALL) == result(kind, Mode.STRICT, engine, wait=ALL) == 7
    assert result(kind, Mode.STRICT, engine, wait=ALL, turned=True) == 7


@pytest.mark.compile
@ENGINES
@pytest.mark.parametrize("kind", LOADS)
def test_turned_a_load_arrives_before_its_register_is_overwritten(kind: str, engine: str) -> None:
    assert result(kind, Mode.STRICT, engine, wait="", turned=True) == 7


# The register is 5 before a load of zeros into it. Computing with it in place leaves it as it is: without a wait 5,
# which a load that comes later turns into 0, as if it had been waited for.
IN_PLACE = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_and_b32_e32 v0, 0x3ff, v0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, 5
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  {wait}
  {before}
  v_add_u32_e32 v2, 0, v2
  {after}
  s_waitcnt vmcnt(0)
  global_store_dword v1, v2, s[4:5]
  s_endpgm
"""
HALF = ("s_mov_b64 s[8:9], exec\n  s_mov_b64 exec, 0xffff", "s_mov_b64 exec, s[8:9]")


@pytest.mark.compile
@ENGINES
def test_a_value_that_is_computed_in_place_before_the_load_came(engine: str) -> None:
    """The load that comes later puts the right value back; only the one that comes between shows the missing wait."""
    late, early = (
        launch(assemble(IN_PLACE.format(wait="", before="", after="")), mode=Mode.STRICT, engine=engine, turned=turned)
        for turned in (False, True)
    )
    assert set(late.output.tolist()) == {0} and set(early.output.tolist()) == {5}
    waited = IN_PLACE.format(wait="s_waitcnt vmcnt(0)", before="", after="")
    assert set(launch(assemble(waited), mode=Mode.STRICT, engine=engine, turned=True).output.tolist()) == {0}


@pytest.mark.compile
@ENGINES
def test_lanes_that_are_not_written_still_get_what_was_loaded(engine: str) -> None:
    body = IN_PLACE.format(wait="", before=HALF[0], after=HALF[1])
    found = launch(assemble(body), mode=Mode.STRICT, engine=engine, turned=True).output.tolist()
    assert found == [5] * 16 + [0] * (len(found) - 16)


@pytest.mark.compile
@ENGINES
def test_a_load_that_arrived_early_still_counts(engine: str) -> None:
    """The first of two loads comes when its register is overwritten; a wait for one still means the first."""
    load = "global_load_dword v2, v1, s[4:5]\n  global_load_dword v3, v1, s[4:5]"
    body = KERNEL.format(load=load, wait="", move=f"{VECTOR}\n  s_waitcnt vmcnt(1)", seen="v3")
    code = assemble(body, lds=256)
    assert (launch(code, engine=engine).output == 0).all()
    assert (launch(code, mode=Mode.STRICT, engine=engine).output == POISON).all()  # v3 is not there yet


@pytest.mark.parametrize(
    ("arch", "text", "expected"),
    [
        ("gfx942", "v_mov_b32_e32 v3, v4", "v3"),
        ("gfx942", "v_mad_u64_u32 v[2:3], s[10:11], v4, v5, v[6:7]", "v2 v3 s10 s11"),
        ("gfx942", "v_add_co_u32_e32 v1, vcc, v2, v3", "v1 s106 s107"),
        ("gfx942", "v_addc_co_u32_e64 v1, s[8:9], v2, v3, s[10:11]", "v1 s8 s9"),
        ("gfx942", "v_cndmask_b32_e64 v1, v2, v3, s[10:11]", "v1"),
        ("gfx942", "v_div_scale_f32 v1, s[4:5], v2, v3, v4", "v1 s4 s5"),
        ("gfx942", "v_cmp_gt_u32_e32 vcc, v1, v2", "s106 s107"),
        ("gfx942", "v_readfirstlane_b32 s6, v0", "s6"),
        ("gfx942", "v_accvgpr_write_b32 a1, v2", "v17"),  # this kernel's accumulators begin at 16
        ("gfx942", "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]", "v16 v17 v18 v19"),
        ("gfx942", "s_mov_b64 s[4:5], s[6:7]", "s4 s5"),
        ("gfx942", "s_and_saveexec_b64 s[4:5], vcc", "s4 s5"),
        ("gfx950", "v_permlane32_swap_b32_e32 v1, v2", "v1 v2"),
        ("gfx942", "v_swap_b32 v1, v2", "v1 v2"),
        ("gfx1100", "v_dual_mov_b32 v1, v2 :: v_dual_add_f32 v4, v5, v6", "v1 v4"),
        # These write nothing that they name.
        ("gfx942", "s_cmp_lt_u32 s6, s7", ""),
        ("gfx942", "s_bitcmp1_b32 s6, 3", ""),
        ("gfx942", "s_nop 0", ""),
        ("gfx942", "s_waitcnt vmcnt(0)", ""),
        ("gfx942", "global_store_dword v1, v2, s[4:5]", ""),
        # A load writes when it arrives, not now.
        ("gfx942", "global_load_dword v1, v2, s[4:5]", ""),
        ("gfx942", "s_load_dwordx2 s[4:5], s[0:1], 0x0", ""),
        ("gfx942", "ds_read_b32 v1, v2", ""),
    ],
)
def test_what_an_instruction_writes_at_once(arch: str, text: str, expected: str) -> None:
    found = find_written_registers(parse_line(DisassembledLine(0, text, (0,))), code_for(arch))
    assert found == {(name[0], int(name[1:])) for name in expected.split()}
