"""Instructions that change the LDS in rare ways, compared with AMD's pseudo-code in Python, lane by lane."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from assembled import LANES, assemble
from everywhere import make_exec, make_words, run_everywhere
from native_runs import run

from tilewright.emulator.faults import AlignmentFault, LdsFault, UnknownInstructionFault
from tilewright.emulator.launch import Mode

pytestmark = pytest.mark.compile

GFX9 = ("gfx90a", "gfx942", "gfx950")
GPUS = (*GFX9, "gfx1100", "gfx1201")
KEEPS = "\n  .amdhsa_float_denorm_mode_32 3\n  .amdhsa_float_denorm_mode_16_64 3"
FLUSHES = "\n  .amdhsa_float_denorm_mode_32 0\n  .amdhsa_float_denorm_mode_16_64 0"
# Zeros, subnormal and normal numbers, infinity, quiet and signalling NaNs.
SINGLES = (0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F800000, 0x7FC00001,
           0x7F800001)  # fmt: skip
DOUBLES = tuple(
    value << 32 | low
    for value in (0, 0x80000000, 0x00000001, 0x000FFFFF, 0x00100000, 0x3FF00000, 0x7FF00000, 0x7FF80001)
    for low in (0, 1)
)


def is_subnormal(bits: int, size: int) -> bool:
    exponent, mantissa = (0x7F800000, 0x7FFFFF) if size == 4 else (0x7FF << 52, (1 << 52) - 1)
    return not bits & exponent and bool(bits & mantissa)


def flush(bits: int, size: int, flushes: bool) -> int:
    return bits & 1 << 8 * size - 1 if flushes and is_subnormal(bits, size) else bits


def compare_store(old: int, source: int, compare: int, size: int, flushes: bool) -> int:
    """What is left of `old`."""
    code = {4: "<f", 8: "<d"}[size]
    before, compared = (flush(value, size, flushes) for value in (old, compare))
    one, other = (struct.unpack(code, value.to_bytes(size, "little"))[0] for value in (before, compared))
    return flush(source if one == other else before, size, flushes)


def make_pairs(values: tuple[int, ...], arch: str, seed: int) -> list[tuple[int, int, int]]:
    """Old value, source and compared value of each lane: half of the compared ones are equal."""
    numbers = np.random.default_rng(seed)
    chosen = [[values[k] for k in numbers.integers(0, len(values), 3)] for _ in range(LANES[arch])]
    zeros = {0: values[1], values[1]: 0}  # of the other sign
    return [
        (old, source, (old, zeros.get(old, old), compare, compare)[lane % 4])
        for lane, (old, source, compare) in enumerate(chosen)
    ]


def place_singles(rows: list[tuple[int, int, int]]) -> np.ndarray:
    return np.array([[old, source, compare, 0] for old, source, compare in rows], np.uint32)


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("arch", [*GFX9, "gfx1100"])
@pytest.mark.parametrize("seed", [1, 2])
def test_compare_and_store_of_f32(arch: str, flushes: bool, seed: int) -> None:
    """gfx9 has the compared value first, gfx11 the source. NaN equals nothing, and -0 equals 0."""
    parts = "v5, v6" if arch == "gfx1100" else "v6, v5"
    name = "ds_cmpstore" if arch == "gfx1100" else "ds_cmpst"
    text = f"""
  ds_write_b32 v2, v4
  {name}_rtn_f32 v8, v2, {parts}
  ds_read_b32 v9, v2
  ds_write_b32 v2, v4 offset:1024
  {name}_f32 v2, {parts} offset:1024
  ds_read_b32 v10, v2 offset:1024
"""
    rows = make_pairs(SINGLES, arch, seed)
    made = run_everywhere(arch, text, place_singles(rows), lds=2048, directives=FLUSHES if flushes else KEEPS)
    assert made.fault is None
    for lane, (old, source, compare) in enumerate(rows):
        left = compare_store(old, source, compare, 4, flushes)
        assert made.lanes[lane].tolist() == [old, left, left, 0], lane


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("arch", [*GFX9, "gfx1100"])
def test_compare_and_store_of_f64(arch: str, flushes: bool) -> None:
    """The old value is compared, or what one bit of the lane's number makes of it; it becomes v[12:13]."""
    parts = "v[12:13], v[6:7]" if arch == "gfx1100" else "v[6:7], v[12:13]"
    name = "ds_cmpstore" if arch == "gfx1100" else "ds_cmpst"
    text = f"""
  v_mov_b32 v12, v0
  v_mov_b32 v13, 0x80012345
  ds_write_b64 v3, v[4:5]
  {name}_rtn_f64 v[8:9], v3, {parts}
  ds_read_b64 v[10:11], v3
"""
    rows = make_pairs(DOUBLES, arch, 3)
    given = np.array([[old % 2**32, old >> 32, other % 2**32, other >> 32] for old, _, other in rows], np.uint32)
    made = run_everywhere(arch, text, given, lds=512, directives=FLUSHES if flushes else KEEPS)
    assert made.fault is None
    for lane, (old, _, compare) in enumerate(rows):
        left = compare_store(old, 0x80012345 << 32 | lane, compare, 8, flushes)
        assert made.lanes[lane].view(np.uint64).tolist() == [old, left], lane


@pytest.mark.parametrize("arch", [*GFX9, "gfx1100"])
def test_wrapping_sums_of_one_element(arch: str) -> None:
    """All lanes change the same dword, in the order of their numbers."""
    given = make_words(arch) & 0xFF
    start = int(given[0, 0])
    text = """
  v_readfirstlane_b32 s20, v4
  v_mov_b32 v12, 16
  v_mov_b32 v13, s20
  ds_write_b32 v12, v13
  ds_wrap_rtn_b32 v8, v12, v5, v6
  ds_read_b32 v9, v12
"""
    made = run_everywhere(arch, text, given, lds=64)
    assert made.fault is None
    for lane, row in enumerate(given.tolist()):
        assert int(made.lanes[lane, 0]) == start
        start = start - row[1] if start >= row[1] else start + row[2]
    assert (made.lanes[:, 1] == start).all()


@pytest.mark.parametrize("arch", GPUS)
def test_exchange_of_marked_halves(arch: str) -> None:
    """Data with bit 31 replace their dword, without that bit. The lowest bits of the address are ignored."""
    text = """
  v_add_u32 v12, 3, v3
  ds_write_b64 v3, v[4:5] offset:16
  ds_condxchg32_rtn_b64 v[8:9], v12, v[6:7] offset:18
  ds_read_b64 v[10:11], v3 offset:16
"""
    if not arch.startswith("gfx9"):
        text = text.replace("v_add_u32", "v_add_nc_u32")
    given = make_words(arch)
    made = run_everywhere(arch, text, given, lds=16 + 8 * LANES[arch])
    assert made.fault is None
    for got, (low, high, *data) in zip(made.lanes.tolist(), given.tolist(), strict=True):
        left = [new & 0x7FFFFFFF if new >> 31 else old for old, new in zip((low, high), data, strict=True)]
        assert got == [low, high, *left]


def exchange_in_order(cells: list[int], places: list[tuple[int, int]], data: list[tuple[int, int]]) -> list[list[int]]:
    """What each lane reads at its two cells before it writes both, one lane after another."""
    olds = []
    for where, values in zip(places, data, strict=True):
        olds.append([cells[place] for place in where])
        for place, value in zip(where, values, strict=True):
            cells[place] = value
    return olds


@pytest.mark.parametrize("arch", GPUS)
def test_exchange_of_two_dwords(arch: str) -> None:
    """The second dword of a lane is the first one of the next."""
    name = "ds_wrxchg2_rtn_b32" if arch.startswith("gfx9") else "ds_storexchg_2addr_rtn_b32"
    text = f"""
  ds_write_b32 v2, v4 offset:8
  ds_write_b32 v2, v5 offset:12
  {name} v[8:9], v2, v6, v7 offset0:2 offset1:3
  ds_read2_b32 v[10:11], v2 offset0:2 offset1:3
"""
    given = make_words(arch, 4)
    lanes = LANES[arch]
    cells = [0, 0, *given[:, 0].tolist(), 0]
    cells[3 : 3 + lanes] = given[:, 1].tolist()
    places = [(lane + 2, lane + 3) for lane in range(lanes)]
    olds = exchange_in_order(cells, places, given[:, 2:].tolist())
    made = run_everywhere(arch, text, given, lds=4 * (lanes + 3))
    assert made.fault is None
    for lane, (first, second) in enumerate(places):
        assert made.lanes[lane].tolist() == [*olds[lane], cells[first], cells[second]]


@pytest.mark.parametrize("arch", GPUS)
def test_exchange_of_two_far_elements_of_64_bits(arch: str) -> None:
    """Offsets count 64 elements; half of the lanes take part."""
    name = "ds_wrxchg2st64_rtn_b64" if arch.startswith("gfx9") else "ds_storexchg_2addr_stride64_rtn_b64"
    text = f"""
  ds_write_b64 v3, v[4:5]
  ds_write_b64 v3, v[6:7] offset:512
  v_mov_b32 v12, v0
  v_mov_b32 v13, 7
  v_mov_b32 v14, v4
  v_mov_b32 v15, v7
  {make_exec(arch, 0x0F0F00FF)}
  {name} v[8:11], v3, v[12:13], v[14:15] offset0:1
  s_mov_b64 exec, -1
  WAIT
  ds_read_b64 v[16:17], v3
  ds_read_b64 v[18:19], v3 offset:512
  WAIT
  global_store_dwordx4 v1, v[16:19], s[4:5] offset:SPARE
"""
    given = make_words(arch, 5)
    lanes = LANES[arch]
    made = run_everywhere(arch, text.replace("SPARE", str(16 * lanes)), given, lds=1024)
    assert made.fault is None
    left = made.spare[: 4 * lanes].reshape(-1, 4).tolist()
    for lane, (a, b, c, d) in enumerate(given.tolist()):
        active = 0x0F0F00FF >> lane % 32 & 1
        assert made.lanes[lane].tolist() == ([c, d, a, b] if active else [0] * 4)
        assert left[lane] == ([a, d, lane, 7] if active else [a, b, c, d])


def test_an_exchange_of_one_element_twice_is_refused() -> None:
    made = run_everywhere("gfx942", "ds_wrxchg2_rtn_b32 v[8:9], v2, v6, v7", make_words("gfx942"), lds=1024)
    assert isinstance(made.fault, UnknownInstructionFault)


@pytest.mark.parametrize(("text", "size", "kind"), [
    ("ds_wrxchg2_rtn_b32 v[8:9], v2, v6, v7 offset1:1", 256, LdsFault),
    ("v_add_u32 v2, 2, v2\n  ds_wrxchg2_rtn_b32 v[8:9], v2, v6, v7 offset1:1", 512, AlignmentFault),
    ("ds_condxchg32_rtn_b64 v[8:9], v3, v[6:7] offset:8", 512, LdsFault),
    ("ds_wrap_rtn_b32 v8, v2, v6, v7 offset:2", 512, AlignmentFault),
    ("s_mov_b32 m0, 0\n  ds_append v8 offset:512", 512, LdsFault),
    ("s_mov_b32 m0, 0\n  ds_append v8 offset:2", 512, AlignmentFault),
    ("s_mov_b32 m0, 4\n  ds_consume v8", 512, UnknownInstructionFault),
])  # fmt: skip
def test_places_that_are_wrong(text: str, size: int, kind: type) -> None:
    assert isinstance(run_everywhere("gfx942", text, make_words("gfx942"), lds=size).fault, kind)


@pytest.mark.parametrize("arch", GPUS)
def test_append_and_consume_count_lanes(arch: str) -> None:
    """Active lanes get the old count, the others keep their registers."""
    text = f"""
  s_mov_b32 m0, 0
  v_mov_b32 v12, 100
  v_mov_b32 v13, 24
  ds_write_b32 v13, v12
  {make_exec(arch, 0xFF00FF06)}
  ds_append v8 offset:24
  {make_exec(arch, 0x00000007)}
  ds_consume v9 offset:24
  s_mov_b64 exec, 0
  ds_append v9 offset:24
  s_mov_b64 exec, -1
  ds_read_b32 v10, v13
"""
    halves = LANES[arch] // 32
    made = run_everywhere(arch, text, make_words(arch), lds=64)
    assert made.fault is None
    appended = 100 + 18 * halves
    for lane, row in enumerate(made.lanes.tolist()):
        first = 100 if 0xFF00FF06 >> lane % 32 & 1 else 0
        second = appended if lane % 32 < 3 else 0
        assert row == [first, second, appended - 3 * halves, 0], lane


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_waves_append_one_after_another(engine: str, mode: Mode) -> None:
    """Four waves of which the last has no active lanes: every wave gets another range."""
    code = assemble(
        """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_mov_b32 m0, 0
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 0
  v_mov_b32 v3, 0
  v_mov_b32 v5, 0
  ds_write_b32 v2, v3
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_readfirstlane_b32 s8, v0
  s_cmp_lt_u32 s8, 192
  s_cselect_b64 exec, -1, 0
  ds_append v5
  s_waitcnt lgkmcnt(0)
  s_mov_b64 exec, -1
  s_barrier
  ds_read_b32 v6, v2
  s_waitcnt lgkmcnt(0)
  v_add_u32 v5, v5, v6
  global_store_dword v1, v5, s[4:5]
  s_endpgm
""",
        "gfx942",
        lds=16,
    )
    made = run(code, "gfx942", engine, mode, grid=1)
    assert made.fault is None
    waves = made.output[:256].reshape(4, 64)
    assert (waves == waves[:, :1]).all()
    assert sorted(waves[:3, 0].tolist()) == [192, 192 + 64, 192 + 128]
    assert int(waves[3, 0]) == 192
    assert made.counters is not None
    assert made.counters.atomics == 3


@pytest.mark.parametrize("arch", GPUS)
def test_nothing_is_counted(arch: str) -> None:
    """When one access to the LDS is left, the read before ds_nop is over: what is written then stays."""
    wait = "s_wait_dscnt 0x1" if arch == "gfx1201" else "s_waitcnt lgkmcnt(1)"
    text = f"""
  ds_write_b32 v2, v4
  WAIT
  ds_read_b32 v8, v2
  ds_nop
  {wait}
  v_mov_b32 v9, v8
  v_mov_b32 v8, 5
"""
    given = make_words(arch)
    made = run_everywhere(arch, text, given, lds=512)
    assert made.fault is None
    assert np.array_equal(made.lanes[:, 1], given[:, 0])
    assert (made.lanes[:, 0] == 5).all()


@pytest.mark.parametrize("arch", GPUS)
def test_reads_and_writes_by_lane(arch: str) -> None:
    """ds_write_addtid_b32 and ds_read_addtid_b32: M0, of which 16 bits count, plus the offset and 4 times the lane."""
    text = """
  ds_write_b32 v2, v5 offset:16
  s_mov_b32 m0, 0x50008
  ds_write_addtid_b32 v4 offset:4
  s_mov_b32 m0, 4
  ds_read_addtid_b32 v8 offset:12
  WAIT
  ds_read_b32 v9, v2 offset:12
"""
    given = make_words(arch)
    lanes = LANES[arch]
    made = run_everywhere(arch, text, given, lds=4 * lanes + 16)
    assert made.fault is None
    assert np.array_equal(made.lanes[:, 1], given[:, 0])
    assert np.array_equal(made.lanes[:, 0], [*given[1:, 0], given[-1, 1]])
    assert isinstance(run_everywhere(arch, text, given, lds=4 * lanes + 4).fault, LdsFault)


def test_lanes_pull_from_inactive_lanes() -> None:
    """ds_bpermute_fi_b32 reads them, ds_bpermute_b32 gets 0. The address counts bytes and wraps."""
    text = """
  v_lshlrev_b32 v12, 2, v5
  s_mov_b32 exec_lo, 0x0ff00f0f
  ds_bpermute_fi_b32 v8, v12, v4 offset:8
  ds_bpermute_b32 v9, v12, v4 offset:8
  s_mov_b32 exec_lo, -1
"""
    given = make_words("gfx1201")
    made = run_everywhere("gfx1201", text, given)
    assert made.fault is None
    for lane, row in enumerate(made.lanes.tolist()):
        other = int(given[lane, 1]) + 2 & 31
        pulled = int(given[other, 0])
        active, gives = (0x0FF00F0F >> at & 1 for at in (lane, other))
        assert row[:2] == [pulled * active, pulled * active * gives]
