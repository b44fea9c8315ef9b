"""Moves between registers by number: v_movrel…, v_swaprel, s_movrel…. M0 has the index, or two of them."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import LANES, assemble
from both_engines import run_both
from launched import launch
from native_runs import run

from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.launch import Extent, Mode

pytestmark = pytest.mark.compile

RDNA = ("gfx1100", "gfx1201")
GPUS = ("gfx90a", "gfx942", "gfx950", *RDNA)
ENGINES = [("numpy", Mode.FAST), ("numpy", Mode.STRICT), ("native", Mode.FAST), ("native", Mode.STRICT)]
START = {
    "gfx942": "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n",
    "gfx1100": "s_load_b64 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n",
    "gfx1201": "s_load_b64 s[4:5], s[0:1], 0x0\ns_wait_kmcnt 0x0\n",
}


def lanes(arch: str, *registers: int) -> dict[int, np.ndarray]:
    """Another value in every lane of every register."""
    return {register: np.arange(LANES[arch]) + 1000 * register for register in registers}


@pytest.mark.parametrize("arch", RDNA)
@pytest.mark.parametrize(
    ("text", "index", "expected"),
    [
        ("v_movreld_b32 v10, v20", 3, {13: 20}),
        ("v_movrels_b32 v10, v20", 3, {10: 23}),
        ("v_movrelsd_b32 v10, v20", 3, {13: 23}),
        ("v_movrelsd_2_b32 v10, v20", 5 << 16 | 2, {15: 22}),
        ("v_swaprel_b32 v10, v20", 5 << 16 | 2, {15: 22, 22: 15}),
        ("v_movreld_b32 v10, v20", 0, {10: 20}),
        # Of M0, only 10 bits count for each of two indices.
        ("v_movrelsd_2_b32 v10, v20", 0xFC05_FC02, {15: 22}),
        ("v_swaprel_b32 v10, v20", 0xFC05_FC02, {15: 22, 22: 15}),
        # Both numbers become the same register; the same operand becomes two.
        ("v_swaprel_b32 v10, v20", 10 << 16, {}),
        ("v_swaprel_b32 v10, v10", 2 << 16 | 1, {12: 11, 11: 12}),
    ],
)
def test_vector_registers_by_number(arch: str, text: str, index: int, expected: dict[int, int]) -> None:
    given = lanes(arch, *range(10, 26))
    found = run_both(arch, [f"s_mov_b32 m0, {index:#x}", text], given, list(given))
    for register, values in zip(given, found, strict=True):
        assert np.array_equal(values, given[expected.get(register, register)]), register


@pytest.mark.parametrize("arch", RDNA)
def test_only_active_lanes_are_moved(arch: str) -> None:
    given = lanes(arch, *range(10, 16))
    texts = ["s_mov_b32 exec_lo, 0xff", "s_mov_b32 m0, 0x20001", "v_swaprel_b32 v10, v12"]
    texts += ["s_mov_b32 s20, 77", "s_mov_b32 m0, 1", "v_movreld_b32_e64 v14, s20", "s_mov_b32 exec_lo, -1"]
    twelve, thirteen, fifteen = run_both(arch, texts, given, [12, 13, 15])
    low = np.arange(LANES[arch]) < 8
    assert np.array_equal(twelve, np.where(low, given[13], given[12]))
    assert np.array_equal(thirteen, np.where(low, given[12], given[13]))
    assert np.array_equal(fifteen, np.where(low, 77, given[15]))


@pytest.mark.parametrize("arch", RDNA)
def test_sources_that_are_no_plain_registers(arch: str) -> None:
    given = lanes(arch, *range(10, 16))
    texts = ["s_mov_b32 m0, 1", "v_movreld_b32 v10, 0x12345", "v_movreld_b32_dpp v11, v14 quad_perm:[1,0,3,2]"]
    texts += ["v_movrels_b32_dpp v13, v14 row_shl:1 bound_ctrl:1"]
    literal, moved, shifted = run_both(arch, texts, given, [11, 12, 13])
    place = np.arange(LANES[arch])
    assert (literal == 0x12345).all()
    assert np.array_equal(moved, given[14][place ^ 1])
    assert np.array_equal(shifted, np.where(place % 16 < 15, given[15] + 1, 0))


# Each of s20 to s35 has 100 more than its number.
SCALARS = [f"s_movk_i32 s{number}, {100 + number}" for number in range(20, 36)]


def read_scalars(arch: str, texts: list[str]) -> dict[int, int]:
    """What s20 to s35 have after some instructions, those that changed."""
    copies = [f"v_mov_b32 v{10 + k}, s{20 + k}" for k in range(16)]
    found = run_both(arch, [*SCALARS, *texts, *copies], {}, [10 + k for k in range(16)])
    values = {20 + k: int(each[0]) for k, each in enumerate(found)}
    return {number: value - 100 for number, value in values.items() if value != 100 + number}


@pytest.mark.parametrize("arch", GPUS)
def test_scalar_registers_by_number(arch: str) -> None:
    assert read_scalars(arch, ["s_mov_b32 m0, 3", "s_movreld_b32 s20, s30"]) == {23: 30}
    assert read_scalars(arch, ["s_mov_b32 m0, 3", "s_movrels_b32 s20, s30"]) == {20: 33}
    assert read_scalars(arch, ["s_mov_b32 m0, 4", "s_movreld_b64 s[20:21], s[30:31]"]) == {24: 30, 25: 31}
    assert read_scalars(arch, ["s_mov_b32 m0, 4", "s_movrels_b64 s[20:21], s[30:31]"]) == {20: 34, 21: 35}
    assert read_scalars(arch, ["s_mov_b32 m0, 3", "s_movreld_b32 s20, 0x234"]) == {23: 0x234 - 100}
    assert read_scalars(arch, ["s_mov_b32 m0, 3", "s_movrels_b32 m0, s30", "s_mov_b32 s20, m0"]) == {20: 33}
    if arch in RDNA:
        assert read_scalars(arch, ["s_mov_b32 m0, 0xfc04fc03", "s_movrelsd_2_b32 s20, s30"]) == {24: 33}
        assert read_scalars(arch, ["s_mov_b32 m0, 2", "s_movreld_b32 s105, s30", "s_mov_b32 s20, vcc_hi"]) == {20: 30}


@pytest.mark.parametrize("arch", GPUS)
def test_lanes_that_a_moved_mask_enables(arch: str) -> None:
    """The engines keep exec in a form of their own, which a move into it must change."""
    wide = arch not in RDNA
    move = "s_movrels_b64 exec, s[20:21]" if wide else "s_movrels_b32 exec_lo, s20"
    texts = ["s_mov_b32 m0, 2", "s_mov_b32 s22, 0xff", "s_mov_b32 s23, 0", "v_mov_b32 v10, 1", move]
    texts += ["v_mov_b32 v10, 2", "s_mov_b64 exec, -1" if wide else "s_mov_b32 exec_lo, -1"]
    (found,) = run_both(arch, texts, {}, [10])
    assert np.array_equal(found, np.where(np.arange(LANES[arch]) < 8, 2, 1))


STORE = {"gfx942": "global_store_dword", "gfx1100": "global_store_b32", "gfx1201": "global_store_b32"}


def run_waves(arch: str, engine: str, mode: Mode, texts: list[str]) -> np.ndarray:
    """Eight waves in two work-groups: v1 has the place of a lane, s8 the number of its wave, v2 is stored."""
    shift = 6 if LANES[arch] == 64 else 5
    first = ["v_and_b32 v0, 0x3ff, v0", "v_lshlrev_b32 v1, 2, v0", "v_readfirstlane_b32 s8, v0"]
    first += [f"s_lshr_b32 s8, s8, {shift}", *(f"v_mov_b32 v{k}, {100 + k}" for k in range(10, 18))]
    lines = [*first, *texts, f"{STORE[arch]} v1, v2, s[4:5]", "s_endpgm"]
    made = run(assemble(START[arch] + "\n".join(lines), arch), arch, engine, mode, grid=1)
    assert made.fault is None
    return made.output[:256].reshape(-1, LANES[arch])


@pytest.mark.parametrize("arch", RDNA)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_an_index_that_differs_between_waves(arch: str, engine: str, mode: Mode) -> None:
    found = run_waves(arch, engine, mode, ["s_mov_b32 m0, s8", "v_movrels_b32 v2, v10"])
    assert found.tolist() == [[110 + wave] * 32 for wave in range(8)]
    move = ["s_mov_b32 m0, s8", "v_movreld_b32 v10, v1", "v_mov_b32 v2, v13"]
    found = run_waves(arch, engine, mode, move)
    assert [row.tolist() == [113] * 32 for row in found] == [wave != 3 for wave in range(8)]


@pytest.mark.parametrize("arch", ["gfx942", *RDNA])
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_a_scalar_index_that_differs_between_waves(arch: str, engine: str, mode: Mode) -> None:
    scalars = [f"s_movk_i32 s{number}, {number}" for number in range(20, 28)]
    texts = [*scalars, "s_mov_b32 m0, s8", "s_movrels_b32 s9, s20", "v_mov_b32 v2, s9"]
    found = run_waves(arch, engine, mode, texts)
    assert [set(row.tolist()) for row in found] == [{20 + wave} for wave in range(len(found))]


@pytest.mark.parametrize(
    ("arch", "text", "index", "what"),
    [
        ("gfx1100", "v_movreld_b32 v10, v11", 22, "a register index beyond the registers of the kernel"),
        ("gfx1201", "v_movrels_b32 v10, v11", 21, "a register index beyond the registers of the kernel"),
        ("gfx1100", "v_movrels_b32 v10, v11", 0xFFFFFFFF, "a register index beyond the registers of the kernel"),
        ("gfx1100", "v_movrelsd_b32 v10, v11", 0x80000000, "a register index beyond the registers of the kernel"),
        ("gfx1201", "v_swaprel_b32 v10, v11", 22 << 16, "a register index beyond the registers of the kernel"),
        ("gfx1201", "v_swaprel_b32 v10, v11", 21, "a register index beyond the registers of the kernel"),
        ("gfx1100", "s_movreld_b32 s100, s8", 8, "a register index beyond the registers of the kernel"),
        ("gfx1100", "s_movrels_b64 s[10:11], s[100:101]", 8, "a register index beyond the registers of the kernel"),
        ("gfx942", "s_movrels_b32 s10, s100", 2, "a register index beyond the registers of the kernel"),
        ("gfx942", "s_movreld_b32 s10, s9", 0xFFFFFFFF, "a register index beyond the registers of the kernel"),
        ("gfx942", "s_movreld_b64 s[10:11], s[8:9]", 1, "an odd index of a pair of registers"),
        ("gfx1201", "s_movrels_b64 s[10:11], s[8:9]", 3, "an odd index of a pair of registers"),
        ("gfx942", "s_movreld_b32 m0, s9", 0, "this register with an index"),
        ("gfx1100", "s_movrels_b32 s9, exec_lo", 0, "this register with an index"),
        ("gfx942", "s_movreld_b64 vcc, s[8:9]", 0, "this register with an index"),
    ],
)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_a_register_that_does_not_exist_is_a_fault(
    arch: str, text: str, index: int, what: str, engine: str, mode: Mode
) -> None:
    """The kernels have 32 vector registers."""
    made = run(assemble(f"s_mov_b32 m0, {index:#x}\n{text}\ns_endpgm", arch), arch, engine, mode)
    assert isinstance(made.fault, UnknownInstructionFault)
    assert what in str(made.fault)


@pytest.mark.parametrize("arch", RDNA)
@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_without_active_lanes_no_index_is_a_fault(arch: str, engine: str, mode: Mode) -> None:
    """A loop over the indices of a wave may read one in a lane that is not active, before a jump around it."""
    texts = ["s_cmp_eq_u32 s8, 0", "s_cselect_b32 m0, 2, 0xfffffff", "s_cselect_b32 exec_lo, -1, 0"]
    texts += ["v_movrels_b32 v10, v11", "s_mov_b32 exec_lo, -1", "v_mov_b32 v2, v10"]
    found = run_waves(arch, engine, mode, texts)
    assert found.tolist() == [[113] * 32] + [[110] * 32] * 7


# v3 is 7 at once, and 0 when the load arrives, which is not waited for: v2 gets what v3 has in between.
HAZARD = {
    "gfx942": """
  v_lshlrev_b32 v1, 2, v0
  global_load_dword v3, v1, s[4:5]
  s_mov_b32 s8, 2
  s_set_gpr_idx_on s8, gpr_idx(DST)
  v_mov_b32 v1, 7
  s_set_gpr_idx_off
  v_mov_b32 v2, v3
  s_waitcnt vmcnt(0)
  global_store_dword v1, v2, s[4:5]
""",
    "gfx1100": """
  v_lshlrev_b32 v1, 2, v0
  global_load_b32 v3, v1, s[4:5]
  s_mov_b32 m0, 2
  v_movreld_b32 v1, 7
  v_mov_b32 v2, v3
  s_waitcnt vmcnt(0)
  global_store_b32 v1, v2, s[4:5]
""",
    "gfx1201": """
  v_lshlrev_b32 v1, 2, v0
  global_load_b32 v3, v1, s[4:5]
  v_mov_b32 v10, 7
  s_mov_b32 m0, 0x10002
  v_swaprel_b32 v9, v1
  v_mov_b32 v2, v3
  s_wait_loadcnt 0x0
  global_store_b32 v1, v2, s[4:5]
""",
}


@pytest.mark.parametrize("arch", HAZARD)
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_load_arrives_after_its_register_was_overwritten(arch: str, engine: str) -> None:
    """Strict mode knows the register that an index selects."""
    code = assemble(START[arch] + "v_and_b32 v0, 0x3ff, v0" + HAZARD[arch] + "s_endpgm", arch)
    block = Extent(LANES[arch])
    found = {
        (mode, turned): set(
            launch(code, arch, block=block, words=LANES[arch], mode=mode, engine=engine, turned=turned).output.tolist()
        )
        for mode, turned in ((Mode.FAST, False), (Mode.STRICT, False), (Mode.STRICT, True))
    }
    assert found == {(Mode.FAST, False): {7}, (Mode.STRICT, False): {0}, (Mode.STRICT, True): {7}}
