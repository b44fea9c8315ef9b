"""Loads and stores by 64-bit addresses, scalar loads and private memory, against plain loops over lanes."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made import (
    code_for,
    group_of,
    instruction,
    octets,
    run,
    set_pair,
    set_scalar_pair,
    some_lanes,
)

from tilewright.emulator import access
from tilewright.emulator.faults import AlignmentFault, MemoryFault, UnknownInstructionFault
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.hardware import PRIVATE_BASE, SHARED_BASE

SIZES = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
NEW_NAMES = {"dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128"}
SMALL = {
    "ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True),
}  # fmt: skip


def vector_text(first: int, size: int) -> str:
    return f"v[{first}:{first + size // 4 - 1}]" if size > 4 else f"v{first}"


def filled(group: WaveGroup, size: int = 1 << 14) -> tuple[int, bytes]:
    """An allocation with random bytes."""
    content = np.random.default_rng(3).bytes(size)
    address = group.batch.memory.allocate(size, "buffer")
    group.batch.memory.write(address, content)
    return address, content


def offsets_for(group: WaveGroup, step: int, room: int = 1 << 14) -> np.ndarray:
    return np.random.default_rng(4).integers(0, (room - 64) // step, (group.waves, group.lanes)) * step


@pytest.mark.parametrize("step", [16, 4, 2, 1])
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("partly", [False, True])
def test_wide_loads(kind: str, step: int, partly: bool) -> None:
    group = group_of()
    address, content = filled(group)
    offsets = offsets_for(group, step)
    set_pair(group, 8, offsets.astype(np.uint64) + np.uint64(address - 20))
    before = group.vgprs.copy()
    mask = some_lanes(group) if partly else np.ones_like(offsets, np.bool_)
    size = SIZES[kind]
    run(group, "gfx942", f"global_load_{kind}", vector_text(0, size), "v[8:9]", "off", offset=20, sc0=True, nt=True)
    for row, lane in np.ndindex(offsets.shape):
        at = int(offsets[row, lane])
        if mask[row, lane]:
            assert octets(group, 0, row, lane, size) == content[at : at + size]
        else:
            assert (group.vgprs[:4, row, lane] == before[:4, row, lane]).all()
    assert group.batch.counters.global_read_bytes == size * np.count_nonzero(mask)


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("half", ["", "low", "high"])
def test_small_loads(kind: str, half: str) -> None:
    group = group_of()
    address, content = filled(group)
    offsets = offsets_for(group, 1)
    set_pair(group, 8, offsets.astype(np.uint64) + np.uint64(address))
    old = group.v[0].copy()
    size, signed = SMALL[kind]
    name = {"ushort": "short", "sshort": "short"}.get(kind, kind) if half else kind
    ending = {"": "", "low": "_d16", "high": "_d16_hi"}[half]
    run(group, "gfx942", f"global_load_{name}{ending}", "v0", "v[8:9]", "off")
    for row, lane in np.ndindex(offsets.shape):
        at = int(offsets[row, lane])
        value = int.from_bytes(content[at : at + size], "little", signed=signed)
        before = int(old[row, lane])
        expected = {
            "": value & 0xFFFFFFFF,
            "low": (before & 0xFFFF0000) | (value & 0xFFFF),
            "high": (before & 0xFFFF) | (value & 0xFFFF) << 16,
        }[half]
        assert int(group.v[0][row, lane]) == expected


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("unaligned", [0, 3])
def test_stores_with_a_scalar_base(arch: str, kind: str, unaligned: int) -> None:
    group = group_of(arch)
    size = SIZES[kind]
    total = group.waves * group.lanes * 16
    address = group.batch.memory.allocate(total + 64)
    set_scalar_pair(group, 4, address + 16)
    order = np.random.default_rng(2).permutation(group.waves * group.lanes).reshape(group.waves, group.lanes)
    group.v[8][...] = order * 16 + unaligned
    mask = some_lanes(group)
    name = kind if arch == "gfx942" else NEW_NAMES[kind]
    run(group, arch, f"global_store_{name}", "v8", vector_text(0, size), "s[4:5]", offset=-16)
    expected = bytearray(total + 64)
    for row, lane in np.argwhere(mask):
        at = int(order[row, lane]) * 16 + unaligned
        expected[at : at + size] = octets(group, 0, row, lane, size)
    assert group.batch.memory.read(address, total + 64) == bytes(expected)
    assert group.batch.counters.global_write_bytes == size * np.count_nonzero(mask)


@pytest.mark.parametrize(
    ("name", "size", "shift"), [("byte", 1, 0), ("short", 2, 0), ("byte_d16_hi", 1, 16), ("short_d16_hi", 2, 16)]
)
def test_small_stores(name: str, size: int, shift: int) -> None:
    group = group_of()
    address = group.batch.memory.allocate(4096)
    places = np.arange(group.waves * group.lanes).reshape(group.waves, group.lanes) * 3
    set_pair(group, 8, places.astype(np.uint64) + np.uint64(address))
    run(group, "gfx942", f"global_store_{name}", "v[8:9]", "v0", "off")
    for row, lane in np.ndindex(places.shape):
        stored = int.from_bytes(group.batch.memory.read(address + int(places[row, lane]), size), "little")
        assert stored == int(group.v[0][row, lane]) >> shift & (1 << 8 * size) - 1


def test_of_equal_places_the_last_lane_stays() -> None:
    group = group_of()
    address = group.batch.memory.allocate(16)
    set_pair(group, 8, address)
    run(group, "gfx942", "global_store_dwordx4", "v[8:9]", "v[0:3]", "off")
    assert group.batch.memory.read(address, 16) == octets(group, 0, group.waves - 1, group.lanes - 1, 16)


def test_a_fault_has_wave_and_lane() -> None:
    group = group_of()
    address = group.batch.memory.allocate(4096, "C")
    set_pair(group, 8, address)
    group.v[8][2, 5] += 4090
    with pytest.raises(MemoryFault, match="across the end of 'C'") as caught:
        run(group, "gfx942", "global_load_dwordx4", "v[0:3]", "v[8:9]", "off")
    assert (caught.value.place.wave, caught.value.place.lane) == (2, 5)


@pytest.mark.parametrize(
    ("name", "dwords"), [("dword", 1), ("dwordx2", 2), ("dwordx4", 4), ("dwordx8", 8), ("dwordx16", 16)]
)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_scalar_loads(arch: str, name: str, dwords: int) -> None:
    group = group_of(arch)
    address, content = filled(group)
    set_scalar_pair(group, 40, address + 64)
    group.s[44][...] = np.arange(group.waves) * 128
    spelling = name if arch == "gfx942" else f"b{32 * dwords}"
    last = f"s[8:{8 + dwords - 1}]" if dwords > 1 else "s8"
    run(group, arch, f"s_load_{spelling}", last, "s[40:41]", "s44", offset=-32, glc=True)
    for row in range(group.waves):
        at = 32 + row * 128
        found = b"".join(int(group.s[8 + k][row]).to_bytes(4, "little") for k in range(dwords))
        assert found == content[at : at + 4 * dwords]
    run(group, arch, f"s_load_{spelling}", last, "s[40:41]", "-0x40")
    assert int(group.s[8][0]).to_bytes(4, "little") == content[:4]


@pytest.mark.parametrize(
    ("name", "size", "signed"), [("u8", 1, False), ("i8", 1, True), ("u16", 2, False), ("i16", 2, True)]
)
def test_small_scalar_loads(name: str, size: int, signed: bool) -> None:
    group = group_of("gfx1201")
    address, content = filled(group)
    set_scalar_pair(group, 40, address)
    run(group, "gfx1201", f"s_load_{name}", "s8", "s[40:41]", "0x6")
    value = int.from_bytes(content[6 : 6 + size], "little", signed=signed)
    assert (group.s[8] == value % 2**32).all()


def test_misaligned_scalar_loads_are_faults() -> None:
    group = group_of()
    set_scalar_pair(group, 40, filled(group)[0] + 2)
    with pytest.raises(AlignmentFault, match="not a multiple of 4"):
        run(group, "gfx942", "s_load_dword", "s8", "s[40:41]", "0x0")


def test_scalar_buffer_loads_are_bounded() -> None:
    group = group_of()
    address, content = filled(group)
    set_scalar_pair(group, 40, address)
    group.s[42][...], group.s[43][...] = 12, 0x27000
    run(group, "gfx942", "s_buffer_load_dwordx4", "s[8:11]", "s[40:43]", "0x4")
    found = [int(group.s[8 + k][0]) for k in range(4)]
    assert found == [*np.frombuffer(content[4:12], np.uint32).tolist(), 0, 0]


def test_private_memory_belongs_to_a_lane() -> None:
    group = group_of(scratch=48)
    group.v[8][...] = 16
    group.s[33][...] = 8
    mask = some_lanes(group)
    run(group, "gfx942", "scratch_store_dwordx2", "v8", "v[0:1]", "s33", offset=-4)
    run(group, "gfx942", "scratch_load_dwordx3", "v[4:6]", "off", "s33", offset=8)
    memory, base = group.batch.memory, group.batch.scratch
    for row, lane in np.ndindex(mask.shape):
        own = memory.read(base + (row * group.lanes + lane) * 48, 48)
        expected = octets(group, 0, row, lane, 8) if mask[row, lane] else bytes(8)
        assert own == bytes(20) + expected + bytes(20)
        if mask[row, lane]:
            assert octets(group, 4, row, lane, 12) == own[16:28]


def test_private_memory_has_an_end() -> None:
    group = group_of(scratch=48)
    with pytest.raises(MemoryFault, match="offset 40 of the private memory of a lane, which has 48"):
        run(group, "gfx942", "scratch_load_dwordx4", "v[4:7]", "off", "off", offset=40)


def test_flat_addresses_reach_memory_lds_and_private_memory() -> None:
    group = group_of(scratch=64, lds=1024)
    address, content = filled(group)
    lanes = np.arange(group.lanes)
    bases = np.where(lanes % 3 == 0, address, np.where(lanes % 3 == 1, SHARED_BASE, PRIVATE_BASE)).astype(np.uint64)
    set_pair(group, 8, bases + (lanes % 4 * 8).astype(np.uint64))
    group.batch.lds.views.u8[...] = np.random.default_rng(8).integers(0, 256, group.batch.lds.views.u8.shape)
    memory = group.batch.memory
    memory.write(group.batch.scratch, np.random.default_rng(9).bytes(group.waves * group.lanes * 64))
    run(group, "gfx942", "flat_load_dwordx2", "v[0:1]", "v[8:9]", offset=8)
    for row, lane in np.ndindex(group.waves, group.lanes):
        at = lane % 4 * 8 + 8
        block = int(group.places.lds_base[row])
        own = group.batch.scratch + (row * group.lanes + lane) * 64
        expected = (
            content[at : at + 8],
            group.batch.lds.views.u8[block + at : block + at + 8].tobytes(),
            memory.read(own + at, 8),
        )[lane % 3]
        assert octets(group, 0, row, lane, 8) == expected
    run(group, "gfx942", "flat_store_byte", "v[8:9]", "v2")
    assert memory.read(address, 1) == octets(group, 2, 3, 60, 1)
    assert memory.read(group.batch.scratch + 2 * 64 + 16, 1) == octets(group, 2, 0, 2, 1)
    assert group.batch.lds.views.u8[8 + int(group.places.lds_base[3])] == octets(group, 2, 3, 61, 1)[0]


@pytest.mark.parametrize(
    "made",
    [
        instruction("global_load_dword", "v0", "v[8:9]", "off", tfe=True),
        instruction("global_load_dword", "v0", "v8", "off"),
        instruction("global_load_dwordx2", "v0", "v[8:9]", "off"),
        instruction("global_load_tile", "v0", "v[8:9]", "off"),
        instruction("buffer_load_format_x", "v0", "off", "s[0:3]", "0"),
        instruction("ds_read_b128", "v[0:3]", "v4", gds=True),
        instruction("ds_gws_init", "v0"),
        instruction("scratch_load_lds_dwordx3", "v0", "off"),
        instruction("s_load_dwordx5", "s[0:4]", "s[8:9]", "0x0"),
        instruction("flat_atomic_fmod", "v[8:9]", "v1"),
    ],
    ids=lambda made: made.text,
)
def test_what_is_not_known_raises(made: object) -> None:
    with pytest.raises(UnknownInstructionFault):
        access.translate(made, code_for())  # type: ignore[arg-type]


def test_other_instructions_are_not_ours() -> None:
    assert access.translate(instruction("v_add_u32", "v0", "v1", "v2"), code_for()) is None
    assert access.translate(instruction("s_add_u32", "s0", "s1", "s2"), code_for()) is None
