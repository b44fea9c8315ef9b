"""Rare forms of memory access: transposing loads, blocks of registers, addresses by lane, private memory to LDS."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import LANES
from everywhere import make_exec, make_words, run_everywhere, run_once
from test_lds_changes import FLUSHES, KEEPS, SINGLES, compare_store, make_pairs, place_singles

from tilewright.emulator.faults import LdsFault, MemoryFault, UnknownInstructionFault
from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile

LANE = np.arange(32)
# Mesa's driver loads a matrix of 16 rows so: the row and the first column of each lane, by bits per element
# (radv_nir_lower_cooperative_matrix.c, get_load_tr_row_col).
ROWS = {16: LANE // 16 * 8 + LANE % 8, 8: LANE // 8 * 4 + LANE % 4}
COLUMNS = {16: LANE // 8 % 2 * 8, 8: LANE // 4 % 2 * 8}


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("base", ["v[4:5]", "s[6:7]"])
def test_transposing_loads_make_operands_of_matrices(bits: int, base: str) -> None:
    """Lane l gets column l % 16 of a matrix that is stored by rows: 8 elements from row 8 · (l / 16) on."""
    matrix = np.random.default_rng(bits).integers(0, 1 << bits, (16, 16)).astype(f"u{bits // 8}")
    offsets = (ROWS[bits] * 16 + COLUMNS[bits]) * (bits // 8)
    name, target = {16: ("global_load_tr_b128", "v[8:11]"), 8: ("global_load_tr_b64", "v[8:9]")}[bits]
    where = "v12, s[6:7] offset:16" if base[0] == "s" else "v[12:13], off offset:16"
    text = f"""
  global_load_dword v12, v1, s[6:7] offset:528
  WAIT
  ADDRESS
  {name} {target}, {where}
"""
    full = "v_add_co_u32 v12, vcc_lo, s6, v12\n  v_mov_b32 v13, s7\n  v_add_co_ci_u32 v13, vcc_lo, 0, v13, vcc_lo"
    given = np.zeros(512 + 16 + 512, np.uint8)
    given[16 : 16 + matrix.nbytes] = matrix.view(np.uint8).reshape(-1)
    given[528:] = np.pad(offsets.astype(np.uint32)[:, None], ((0, 0), (0, 3))).view(np.uint8).reshape(-1)
    made = run_everywhere("gfx1201", text.replace("ADDRESS", full if base[0] == "v" else ""), given.view(np.uint32))
    assert made.fault is None
    got = np.ascontiguousarray(made.lanes[:, : bits // 4]).view(matrix.dtype)
    for lane in range(32):
        assert np.array_equal(got[lane], matrix[lane // 16 * 8 : lane // 16 * 8 + 8, lane % 16]), lane


def test_what_each_lane_of_a_transposing_load_gets() -> None:
    """The bytes that lanes of a gfx1201 get of 256 bytes in a row (kmbandy's llama.cpp, global_load_tr_contract.md)."""
    given = np.arange(512, dtype=np.uint16).astype(np.uint8)
    text = "global_load_tr_b64 v[8:9], v3, s[6:7]\n  global_load_tr_b64 v[10:11], v3, s[6:7] offset:8"
    made = run_everywhere("gfx1201", text, given.view(np.uint32))
    assert made.fault is None
    for lane, row in enumerate(made.lanes.view(np.uint8)):
        first = lane % 8 + lane // 8 % 2 * 32 + lane // 16 * 128
        places = [first + slot % 4 * 8 + slot // 4 * 64 for slot in range(8)]
        assert row[:8].tolist() == places
        assert row[8:].tolist() == [(place + 8) % 256 for place in places]


def test_transposing_loads_need_all_lanes() -> None:
    text = "s_mov_b32 exec_lo, 0xffff\n  global_load_tr_b128 v[8:11], v1, s[6:7]"
    assert isinstance(run_everywhere("gfx1201", text, make_words("gfx1201")).fault, UnknownInstructionFault)
    text = text.replace("0xffff", "0") + "\n  s_mov_b32 exec_lo, -1"
    assert run_everywhere("gfx1201", text, make_words("gfx1201")).fault is None


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_addresses_by_lane(arch: str) -> None:
    """Base, offset and 4 times the lane, for the lanes of exec."""
    text = f"""
  {make_exec(arch, 0xF0F0F00F)}
  global_load_addtid_b32 v8, s[6:7] offset:20
  WAIT
  global_store_addtid_b32 v8, s[4:5] offset:{16 * LANES[arch] + 40}
  s_mov_b32 exec_lo, -1
"""
    given = make_words(arch)
    made = run_everywhere(arch, text, given)
    assert made.fault is None
    words = given.reshape(-1)
    want = [int(words[5 + lane]) * (0xF0F0F00F >> lane & 1) for lane in range(32)]
    assert made.lanes[:, 0].tolist() == want
    assert made.spare[10 : 10 + 32].tolist() == want


BLOCK = """
  s_mov_b32 m0, {mask:#x}
  v_lshlrev_b32 v12, 2, v0
  v_mov_b32 v{kept}, 77
  v_mov_b32 v{other}, 0
  v_mov_b32 v{loaded}, 0
  v_mov_b32 v{last}, 0
  s_mov_b32 exec_lo, 0x00ffffff
  {load}
  v_mov_b32 v{other}, 99
  WAIT
  s_mov_b32 exec_lo, -1
  v_mov_b32 v8, v{kept}
  v_mov_b32 v9, v{other}
  v_mov_b32 v10, v{loaded}
  v_mov_b32 v11, v{last}
"""


@pytest.mark.parametrize("where", ["v12, s[6:7] offset:4", "v[14:15], off offset:4"])
def test_a_block_of_registers_is_loaded(where: str) -> None:
    """Bits 3, 10 and 31 of M0: the others keep their values, also those that are written before the load arrives."""
    full = "v_add_co_u32 v14, vcc_lo, s6, v12\n  v_mov_b32 v15, s7\n  v_add_co_ci_u32 v15, vcc_lo, 0, v15, vcc_lo\n  "
    load = (full if where[1] == "[" else "") + f"global_load_block v[40:71], {where}"
    text = BLOCK.format(mask=1 << 3 | 1 << 10 | 1 << 31, kept=41, other=42, loaded=50, last=71, load=load)
    given = np.random.default_rng(2).integers(0, 2**32, 256, dtype=np.uint32)
    made = run_everywhere("gfx1201", text, given)
    assert made.fault is None
    for lane, row in enumerate(made.lanes.tolist()):
        words = [int(given[lane + 1 + k]) for k in (10, 31)] if lane < 24 else [0, 0]
        assert row == [77, 99 if lane < 24 else 0, *words], lane


def test_a_block_of_registers_is_stored() -> None:
    """Every lane stores registers 0, 4 and 17 of 32 at its own 72 bytes."""
    registers = "".join(f"v_add_nc_u32 v{40 + k}, {1000 * k}, v0\n  " for k in range(32))
    text = f"""
  {registers}
  v_mul_u32_u24 v12, 72, v0
  s_mov_b32 m0, 0x20011
  s_mov_b32 exec_lo, 0xffffff7f
  global_store_block v12, v[40:71], s[4:5] offset:512
  s_mov_b32 exec_lo, -1
"""
    made = run_everywhere("gfx1201", text, make_words("gfx1201"))
    assert made.fault is None
    left = made.spare[: 32 * 18].reshape(32, 18)
    want = np.zeros((32, 18), np.uint32)
    for k in (0, 4, 17):
        want[:, k] = np.where(np.arange(32) == 7, 0, 1000 * k + np.arange(32))
    assert np.array_equal(left, want)


@pytest.mark.parametrize(("mask", "faults"), [(0x3, False), (0x7, True)])
@pytest.mark.parametrize("space", ["global", "scratch"])
def test_only_selected_dwords_are_accessed(mask: int, faults: bool, space: str) -> None:
    """The third dword of the last lane, or of all, is behind the end of its memory."""
    where = {"global": "v12, s[6:7]", "scratch": "off, off offset:8"}[space]
    text = f"v_add_nc_u32 v12, 8, v1\n  s_mov_b32 m0, {mask:#x}\n  {space}_load_block v[40:71], {where}"
    made = run_everywhere("gfx1201", text, make_words("gfx1201"), private=16)
    assert isinstance(made.fault, MemoryFault) == faults


def test_blocks_of_private_memory() -> None:
    """What a block store leaves is loaded in another order of registers."""
    text = """
  s_mov_b32 s8, 4
  s_mov_b32 m0, 0x80000005
  v_mov_b32 v40, v4
  v_mov_b32 v42, v5
  v_mov_b32 v71, v6
  scratch_store_block off, v[40:71], s8 offset:4
  WAIT
  v_mov_b32 v12, 8
  v_mov_b32 v17, 3
  s_mov_b32 m0, 0x80000001
  scratch_load_block v[16:47], v12, off
  scratch_load_b32 v9, off, off offset:16
  WAIT
  v_mov_b32 v8, v16
  v_mov_b32 v10, v47
  v_mov_b32 v11, v17
"""
    given = make_words("gfx1201")
    made = run_everywhere("gfx1201", text, given, private=160)
    assert made.fault is None
    assert np.array_equal(made.lanes[:, :3], given[:, :3])
    assert (made.lanes[:, 3] == 3).all()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_private_memory_to_lds(arch: str) -> None:
    """Elements go to M0 + offset + 4 · lane, extended to dwords, and are there after a wait for the load."""
    text = f"""
  scratch_store_dwordx2 off, v[4:5], off
  ds_write_b32 v2, v11 offset:516
  WAIT
  s_mov_b32 m0, 0
  scratch_load_lds_dword off, off
  s_movk_i32 m0, 0x100
  s_mov_b32 s8, 2
  scratch_load_lds_sshort off, s8 offset:4
  s_movk_i32 m0, 0x204
  v_mov_b32 v12, 6
  {make_exec(arch, 0xFFFF)}
  scratch_load_lds_ubyte v12, off
  s_mov_b64 exec, -1
  WAIT
  ds_read_b32 v8, v2
  ds_read_b32 v9, v2 offset:260
  ds_read_b32 v10, v2 offset:516
"""
    given = make_words(arch)
    made = run_everywhere(arch, text, given, private=16, lds=1024)
    assert made.fault is None
    octets = given.view(np.uint8).reshape(64, 16)
    assert np.array_equal(made.lanes[:, 0], given[:, 0])
    words = octets[:, 6:8].copy().view(np.int16)[:, 0].astype(np.int32).view(np.uint32)
    assert np.array_equal(made.lanes[:, 1], words)
    active = np.arange(64) % 32 < 16
    assert np.array_equal(made.lanes[:, 2], np.where(active, octets[:, 6], 0))


@pytest.mark.parametrize(("text", "kind"), [
    ("s_movk_i32 m0, 0x310\n  scratch_load_lds_dword off, off", LdsFault),
    ("s_mov_b32 m0, 0\n  scratch_load_lds_dword off, off offset:16", MemoryFault),
])  # fmt: skip
def test_private_memory_to_lds_checks_both_places(text: str, kind: type) -> None:
    assert isinstance(run_everywhere("gfx942", text, make_words("gfx942"), private=16, lds=1024).fault, kind)


ATOMICS = {
    "global": "global_atomic_{name} v8, v2, v[12:13], s[4:5] offset:512 glc",
    "flat": "flat_atomic_{name} v8, v[14:15], v[12:13] glc",
    "buffer": "v_mov_b32 v8, v12\n  v_mov_b32 v9, v13\n  buffer_atomic_{name} v[8:9], v2, s[16:19], 0 offen glc",
}


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("space", ATOMICS)
def test_compare_and_swap_of_floats_in_memory(space: str, flushes: bool) -> None:
    """gfx11 only: the source comes first. LLVM's assembler also knows the name of gfx10, fcmpswap."""
    text = f"""
  s_add_u32 s16, s4, 512
  s_addc_u32 s17, s5, 0
  s_movk_i32 s18, 128
  s_mov_b32 s19, 0x31004000
  v_mov_b32 v15, s17
  v_add_co_u32 v14, vcc_lo, s16, v2
  v_add_co_ci_u32 v15, vcc_lo, 0, v15, vcc_lo
  v_mov_b32 v12, v5
  v_mov_b32 v13, v6
  global_store_dword v2, v4, s[16:17]
  WAIT
  {ATOMICS[space].format(name="fcmpswap" if flushes else "cmpswap_f32")}
  WAIT
  v_mov_b32 v9, 0
"""
    rows = make_pairs(SINGLES, "gfx1100", 6)
    made = run_everywhere("gfx1100", text, place_singles(rows), directives=FLUSHES if flushes else KEEPS)
    assert made.fault is None
    assert made.lanes[:, 0].tolist() == [old for old, _, _ in rows]
    assert made.spare[:32].tolist() == [compare_store(*row, 4, flushes) for row in rows]


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_older_names_of_the_assembler(arch: str) -> None:
    """fmin, fmax and csub are names of gfx10."""
    returns = "glc" if arch == "gfx1100" else "th:TH_ATOMIC_RETURN"
    behind = 16 * LANES[arch]
    text = f"""
  v_mov_b32 v12, 1.0
  v_mov_b32 v13, 2.0
  v_mov_b32 v14, 5
  global_store_dword v2, v12, s[4:5] offset:{behind}
  global_store_dword v2, v14, s[4:5] offset:{behind + 128}
  WAIT
  global_atomic_fmax v2, v13, s[4:5] offset:{behind}
  global_atomic_csub v8, v2, v0, s[4:5] offset:{behind + 128} {returns}
  WAIT
  global_atomic_fmin v2, v12, s[4:5] offset:{behind + 4}
"""
    made = run_everywhere(arch, text, make_words(arch))
    assert made.fault is None
    assert (made.lanes[:, 0] == 5).all()
    floats = made.spare[:33].view(np.float32)
    assert floats[0] == 2.0
    assert (floats[1:32] == 1.0).all()
    # Element 0 of the second 32 dwords is the smaller one of 5.0's bits and 1.0.
    assert made.spare[33:64].tolist() == [max(5 - lane, 0) for lane in range(1, 32)]


# What is in v8 after these instructions is 0 as long as they are under way, and something else in some lane later.
READ = "WAIT\n  v_mov_b32 v12, 0\n  v_mov_b32 v13, 0\n  v_mov_b32 v40, 0\n  s_mov_b32 s20, 0\n  s_mov_b32 m0, 0\n  "
UNDER_WAY = [
    ("gfx942", "ds_write_b32 v2, v4\n  WAIT\n  ds_append v12\n  v_mov_b32 v8, v12"),
    ("gfx942", "ds_write_b32 v2, v4\n  WAIT\n  ds_wrap_rtn_b32 v12, v2, v5, v6\n  v_mov_b32 v8, v12"),
    ("gfx942", "ds_write2_b32 v2, v4, v5 offset1:1\n  WAIT\n  ds_wrxchg2_rtn_b32 v[12:13], v2, v6, v7 offset1:1\n"
     "  v_mov_b32 v8, v13"),
    ("gfx942", "ds_write_b64 v3, v[4:5]\n  WAIT\n  ds_condxchg32_rtn_b64 v[12:13], v3, v[6:7]\n  v_mov_b32 v8, v13"),
    ("gfx942", "s_scratch_load_dword s20, s[6:7], 0x8\n  v_mov_b32 v8, s20"),
    ("gfx942", "s_add_u32 s20, s4, 1024\n  s_addc_u32 s21, s5, 0\n  s_movk_i32 s22, 64\n  s_mov_b32 s23, 0x20000\n"
     "  s_mov_b32 s24, 5\n  s_buffer_store_dword s24, s[20:23], 0x4\n  s_mov_b32 s24, 0\n"
     "  s_buffer_atomic_add s24, s[20:23], 0x4 glc\n  v_mov_b32 v8, s24"),
    ("gfx942", "scratch_store_dword off, v4, off\n  ds_write_b32 v2, v12\n  WAIT\n  scratch_load_lds_dword off, off\n"
     "  ds_read_b32 v8, v2\n  s_waitcnt lgkmcnt(0)"),
    ("gfx1100", "global_load_addtid_b32 v12, s[6:7]\n  v_mov_b32 v8, v12"),
    ("gfx1201", "ds_bpermute_fi_b32 v12, v2, v4\n  v_mov_b32 v8, v12"),
    ("gfx1201", "global_load_tr_b128 v[12:15], v1, s[6:7]\n  v_mov_b32 v8, v12"),
    ("gfx1201", "s_mov_b32 m0, 1\n  global_load_block v[40:71], v1, s[6:7]\n  v_mov_b32 v8, v40"),
    ("gfx1201", "s_mov_b32 m0, 1\n  scratch_store_b32 off, v4, off\n  WAIT\n  scratch_load_block v[40:71], off, off\n"
     "  v_mov_b32 v8, v40"),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(("arch", "text"), UNDER_WAY)
def test_a_missing_wait_is_noticed(arch: str, text: str, engine: str) -> None:
    """In strict mode the old value is read, in fast mode the new one."""
    given = make_words(arch)
    for mode, arrived in ((Mode.FAST, True), (Mode.STRICT, False)):
        made = run_once(arch, READ + text, given, engine, mode, lds=1024, private=16)
        assert made.fault is None, made.fault
        assert made.lanes[:, 0].any() == arrived
