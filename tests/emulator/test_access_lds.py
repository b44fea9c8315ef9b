"""LDS instructions against plain loops over lanes."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made import code_for, group_of, instruction, octets, run, set_exec, some_lanes, wait

from tilewright.emulator import access
from tilewright.emulator.access.permute import swizzle_sources
from tilewright.emulator.faults import LdsFault, UnknownInstructionFault
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.instruction import M0

WIDE = {"b32": 4, "b64": 8, "b96": 12, "b128": 16}


def vector_text(first: int, size: int) -> str:
    return f"v[{first}:{first + size // 4 - 1}]" if size > 4 else f"v{first}"


def filled(**settings: object) -> WaveGroup:
    group = group_of(**settings)  # type: ignore[arg-type]
    views = group.batch.lds.views
    views.u8[...] = np.random.default_rng(7).integers(0, 256, views.u8.shape)
    return group


def in_lds(group: WaveGroup, row: int, offset: int, size: int) -> bytes:
    at = int(group.places.lds_base[row]) + offset
    return group.batch.lds.views.u8[at : at + size].tobytes()


def offsets_for(group: WaveGroup, step: int, room: int = 4096) -> np.ndarray:
    return np.random.default_rng(4).integers(0, (room - 1088) // step, (group.waves, group.lanes)) * step


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("step", [16, 8, 4, 1])
@pytest.mark.parametrize("kind", WIDE)
def test_wide_reads(arch: str, kind: str, step: int) -> None:
    group = filled(arch=arch)
    offsets = offsets_for(group, step)
    group.v[8][...] = offsets
    old = group.vgprs.copy()
    mask = some_lanes(group)
    size = WIDE[kind]
    verb = "load" if arch == "gfx1100" else "read"
    run(group, arch, f"ds_{verb}_{kind}", vector_text(0, size), "v8", offset=32)
    for row, lane in np.ndindex(offsets.shape):
        if mask[row, lane]:
            assert octets(group, 0, row, lane, size) == in_lds(group, row, int(offsets[row, lane]) + 32, size)
        else:
            assert (group.vgprs[:4, row, lane] == old[:4, row, lane]).all()


@pytest.mark.parametrize(
    ("kind", "half"),
    [("i16", ""), *((kind, half) for kind in ("u8", "i8", "u16") for half in ("", "_d16", "_d16_hi"))],
)
def test_small_reads(kind: str, half: str) -> None:
    group = filled()
    offsets = offsets_for(group, 1)
    group.v[8][...] = offsets
    old = group.v[0].copy()
    run(group, "gfx942", f"ds_read_{kind}{half}", "v0", "v8", offset=3)
    size = int(kind[1:]) // 8
    for row, lane in np.ndindex(offsets.shape):
        raw = in_lds(group, row, int(offsets[row, lane]) + 3, size)
        value = int.from_bytes(raw, "little", signed=kind[0] == "i")
        before = int(old[row, lane])
        expected = {
            "": value % 2**32,
            "_d16": before & 0xFFFF0000 | value & 0xFFFF,
            "_d16_hi": before & 0xFFFF | (value & 0xFFFF) << 16,
        }[half]
        assert int(group.v[0][row, lane]) == expected


@pytest.mark.parametrize("arch", ["gfx950", "gfx1201"])
@pytest.mark.parametrize(
    ("kind", "size", "shift"),
    [*((k, s, 0) for k, s in WIDE.items()), ("b8", 1, 0), ("b16", 2, 0), ("b8_d16_hi", 1, 2), ("b16_d16_hi", 2, 2)],
)
@pytest.mark.parametrize("unaligned", [0, 1])
def test_writes(arch: str, kind: str, size: int, shift: int, unaligned: int) -> None:
    group = filled(arch=arch)
    expected = bytearray(group.batch.lds.views.u8.tobytes())
    per_block = np.random.default_rng(2).permutation(2 * group.lanes).reshape(2, group.lanes) * 16 + unaligned
    group.v[8][...] = np.tile(per_block, (group.waves // 2, 1))
    mask = some_lanes(group)
    verb = "store" if arch == "gfx1201" else "write"
    run(group, arch, f"ds_{verb}_{kind}", "v8", vector_text(0, size), offset=16)
    for row, lane in np.argwhere(mask):
        at = int(group.places.lds_base[row]) + int(group.v[8][row, lane]) + 16
        expected[at : at + size] = octets(group, 0, row, lane, size + shift)[shift:]
    assert group.batch.lds.views.u8.tobytes() == bytes(expected)


@pytest.mark.parametrize(
    ("arch", "name", "unit"),
    [
        ("gfx942", "read2_b32", 4), ("gfx942", "read2_b64", 8), ("gfx942", "read2st64_b32", 256),
        ("gfx1100", "load_2addr_b32", 4), ("gfx1201", "load_2addr_stride64_b32", 256),
    ],
)  # fmt: skip
def test_two_reads_at_once(arch: str, name: str, unit: int) -> None:
    group = filled(arch=arch)
    group.v[8][...] = offsets_for(group, 8)
    size = 8 if name.endswith("b64") else 4
    run(group, arch, f"ds_{name}", vector_text(0, 2 * size), "v8", offset0=1, offset1=3)
    for row, lane in np.ndindex(group.waves, group.lanes):
        at = int(group.v[8][row, lane])
        both = in_lds(group, row, at + unit, size) + in_lds(group, row, at + 3 * unit, size)
        assert octets(group, 0, row, lane, 2 * size) == both


@pytest.mark.parametrize(("name", "unit"), [("write2_b32", 4), ("write2_b64", 8), ("write2st64_b64", 512)])
def test_two_writes_at_once(name: str, unit: int) -> None:
    group = group_of(waves=2, waves_per_block=1)
    group.v[8][...] = np.arange(group.lanes) * (16 if unit != 512 else 8)
    size = 4 if name.endswith("b32") else 8
    mask = some_lanes(group)
    run(group, "gfx942", f"ds_{name}", "v8", vector_text(0, size), vector_text(2, size), offset0=0, offset1=1)
    for row, lane in np.argwhere(mask):
        at = int(group.v[8][row, lane])
        assert in_lds(group, row, at, size) == octets(group, 0, row, lane, size)
        assert in_lds(group, row, at + unit, size) == octets(group, 2, row, lane, size)
    written = 2 * size * np.count_nonzero(mask)
    assert group.batch.counters.lds_write_bytes == written
    assert np.count_nonzero(group.batch.lds.views.u8) <= written


def test_reads_and_writes_by_lane_number() -> None:
    group = filled()
    group.s[M0][...] = 64
    run(group, "gfx942", "ds_read_addtid_b32", "v0", offset=16)
    run(group, "gfx942", "ds_write_addtid_b32", "v1", offset=2048)
    assert octets(group, 0, 1, 5, 4) == in_lds(group, 1, 100, 4)
    assert octets(group, 1, 1, 5, 4) == in_lds(group, 1, 2048 + 64 + 20, 4)


def test_outside_the_work_group_is_a_fault() -> None:
    group = group_of(lds=1000)
    group.v[8][...] = 0
    group.v[8][3, 9] = 984
    run(group, "gfx942", "ds_read_b128", "v[0:3]", "v8")
    with pytest.raises(
        LdsFault, match="16 bytes at 0x3dc of the LDS of the work-group, which has 1000 bytes"
    ) as caught:
        run(group, "gfx942", "ds_read_b128", "v[0:3]", "v8", offset=4)
    assert (caught.value.place.wave, caught.value.place.lane) == (3, 9)


@pytest.mark.parametrize(("kind", "bits"), [("b64_tr_b16", 16), ("b64_tr_b8", 8), ("b64_tr_b4", 4), ("b96_tr_b6", 6)])
def test_transposing_reads(kind: str, bits: int) -> None:
    """Sixteen lanes hold a matrix of sixteen columns, row by row; each gets a column."""
    group = filled(arch="gfx950")
    size = 12 if kind.startswith("b96") else 8
    group.v[8][...] = np.random.default_rng(6).permutation(group.lanes) * 16
    run(group, "gfx950", f"ds_read_{kind}", vector_text(0, size), "v8")
    each = 8 * size // bits
    for row in range(group.waves):
        for first in range(0, group.lanes, 16):
            pieces = [in_lds(group, row, int(group.v[8][row, first + k]), size) for k in range(16)]
            numbers = [
                int.from_bytes(piece, "little") >> bits * e & (1 << bits) - 1 for piece in pieces for e in range(each)
            ]
            for column in range(16):
                got = int.from_bytes(octets(group, 0, row, first + column, size), "little")
                assert [got >> bits * e & (1 << bits) - 1 for e in range(each)] == numbers[column::16]


def test_transposing_reads_need_whole_waves() -> None:
    group = filled(arch="gfx950")
    group.v[8][...] = 0
    old = group.v[0].copy()
    mask = np.ones((group.waves, group.lanes), np.bool_)
    mask[1] = False
    set_exec(group, mask)
    run(group, "gfx950", "ds_read_b64_tr_b16", "v[0:1]", "v8")
    assert (group.v[0][1] == old[1]).all()
    assert (group.v[0][0] != old[0]).any()
    mask[2, 5] = False
    set_exec(group, mask)
    with pytest.raises(UnknownInstructionFault, match="lanes that exec disables"):
        run(group, "gfx950", "ds_read_b64_tr_b16", "v[0:1]", "v8")


def test_transposing_reads_are_of_gfx950() -> None:
    with pytest.raises(UnknownInstructionFault):
        access.translate(instruction("ds_read_b64_tr_b16", "v[0:1]", "v8"), code_for("gfx942"))


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_pulling_from_other_lanes(arch: str) -> None:
    group = group_of(arch)
    mask = some_lanes(group)
    source, old = group.v[1].copy(), group.v[0].copy()
    run(group, arch, "ds_bpermute_b32", "v0", "v8", "v1", offset=4)
    for row, lane in np.ndindex(mask.shape):
        other = (int(group.v[8][row, lane]) + 4) // 4 % group.lanes
        value = source[row, other] if mask[row, other] else 0
        assert group.v[0][row, lane] == (value if mask[row, lane] else old[row, lane])


def test_pushing_to_other_lanes() -> None:
    group = group_of()
    mask = some_lanes(group)
    source, old = group.v[1].copy(), group.v[0].copy()
    run(group, "gfx942", "ds_permute_b32", "v0", "v8", "v1")
    for row in range(group.waves):
        sent = dict.fromkeys(range(group.lanes), 0)
        for lane in np.flatnonzero(mask[row]):
            sent[int(group.v[8][row, lane]) // 4 % group.lanes] = int(source[row, lane])
        for lane in range(group.lanes):
            assert group.v[0][row, lane] == (sent[lane] if mask[row, lane] else old[row, lane])


@pytest.mark.parametrize(
    ("pattern", "source"),
    [
        (0x8000 | 0b00011011, lambda lane: lane ^ 3),  # QUAD_PERM 3, 2, 1, 0
        (0x401F, lambda lane: lane ^ 16),  # SWAP 16
        (0x7C1F, lambda lane: lane ^ 31),  # REVERSE 32
        (0x00B8, lambda lane: (lane & 56) | 5),  # BROADCAST 8, 5
        (0xC000 | 3 << 5, lambda lane: (lane & 32) | (lane + 3) % 32),  # ROTATE by 3
        (0xC000 | 1 << 10 | 1 << 5, lambda lane: (lane & 32) | (lane - 1) % 32),  # the other way
        (0xC000 | 1 << 5 | 24, lambda lane: (lane & 56) | (lane + 1) % 8),  # within 8 lanes
        (0xE000, lambda lane: (lane & 32) | int(f"{lane & 31:05b}"[::-1], 2)),  # FFT: reversed bits
        (0xE01F, lambda lane: lane),
    ],
)  # fmt: skip
def test_swizzles(pattern: int, source: object) -> None:
    assert swizzle_sources(pattern, 64) == [source(lane) for lane in range(64)]  # type: ignore[operator]
    group = group_of()
    before = group.v[1].copy()
    run(group, "gfx942", "ds_swizzle_b32", "v0", "v1", offset=pattern)
    assert (group.v[0] == before[:, swizzle_sources(pattern, 64)]).all()


@pytest.mark.parametrize("strict", [False, True], ids=["fast", "strict"])
def test_addresses_wrap_at_32_bits(strict: bool) -> None:
    """A base below zero and an offset that brings it back into the LDS: compilers make such addresses."""
    group = filled(strict=strict)
    group.v[8][...] = np.uint32(2**32 - 16)

    def words(first: int, count: int) -> bytes:
        wait(group, "lds")
        return octets(group, first, 1, 5, 4 * count)

    run(group, "gfx942", "ds_read_b32", "v0", "v8", offset=48)
    assert words(0, 1) == in_lds(group, 1, 32, 4)
    run(group, "gfx942", "ds_read2_b64", "v[0:3]", "v8", offset0=2, offset1=255)
    assert words(0, 4) == in_lds(group, 1, 0, 8) + in_lds(group, 1, 255 * 8 - 16, 8)
    run(group, "gfx942", "ds_read2st64_b32", "v[0:1]", "v8", offset0=1, offset1=2)
    assert words(0, 2) == in_lds(group, 1, 240, 4) + in_lds(group, 1, 496, 4)
    group.v[1][...] = 5
    group.v[2][...] = 6
    run(group, "gfx942", "ds_write_b32", "v8", "v1", offset=16)
    run(group, "gfx942", "ds_write2_b32", "v8", "v1", "v2", offset0=6, offset1=7)
    run(group, "gfx942", "ds_add_u32", "v8", "v1", offset=24)
    wait(group, "lds")
    first = np.frombuffer(in_lds(group, 1, 0, 16), np.uint32)
    assert (first[0], first[3]) == (5, 6)
    run(group, "gfx950", "ds_read_b64_tr_b16", "v[0:1]", "v8", offset=16)
    with pytest.raises(LdsFault, match="0xfffffff0"):
        run(group, "gfx942", "ds_read_b32", "v0", "v8")
