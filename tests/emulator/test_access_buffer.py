"""Buffers: bounds by dword, offsets, strides, private memory of gfx90a, copies to LDS."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made import group_of, octets, run, set_scalar_pair, some_lanes

from tilewright.emulator.faults import LdsFault, MemoryFault, UnknownInstructionFault
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.instruction import M0

# The last word of CK Tile's descriptors.
FLAGS = {"gfx90a": 0x00020000, "gfx942": 0x00020000, "gfx950": 0x00020000, "gfx1100": 0x31004000, "gfx1201": 0x31004000}
SIZES = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}


def vector_text(first: int, size: int) -> str:
    return f"v[{first}:{first + size // 4 - 1}]" if size > 4 else f"v{first}"


def described(group: WaveGroup, records: int, arch: str = "gfx942", allocated: int = 4096) -> tuple[int, bytes]:
    """A buffer of `records` bytes in s[4:7], at the beginning of an allocation."""
    content = np.random.default_rng(3).bytes(allocated)
    address = group.batch.memory.allocate(allocated, "buffer")
    group.batch.memory.write(address, content)
    set_scalar_pair(group, 4, address)
    group.s[6][...], group.s[7][...] = records, FLAGS[arch]
    return address, content


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("records", [4096, 1003, 0])
@pytest.mark.parametrize("step", [1, 16])
def test_loads_past_the_end_give_zero_by_dword(arch: str, kind: str, records: int, step: int) -> None:
    group = group_of(arch)
    _, content = described(group, records, arch)
    offsets = np.random.default_rng(5).integers(0, 1100 // step, (group.waves, group.lanes)) * step
    offsets[0, 0], offsets[0, 1] = 0x80000000, 0xFFFFFF00
    group.v[8][...] = offsets
    group.s[9][...] = np.arange(group.waves) * 16
    mask = some_lanes(group)
    before = group.vgprs.copy()
    size = SIZES[kind]
    run(group, arch, f"buffer_load_{kind}", vector_text(0, size), "v8", "s[4:7]", "s9", offen=True, offset=4)
    inside = 0
    for row, lane in np.ndindex(offsets.shape):
        if not mask[row, lane]:
            assert (group.vgprs[:4, row, lane] == before[:4, row, lane]).all()
            continue
        for k in range(0, size, 4):
            own = int(offsets[row, lane]) + 4 + k
            at = own + 16 * row
            good = own + 4 <= records - 16 * row
            inside += good
            assert octets(group, k // 4, row, lane, 4) == (content[at : at + 4] if good else bytes(4))
    assert group.batch.counters.global_read_bytes == 4 * inside


@pytest.mark.parametrize("kind", SIZES)
def test_stores_past_the_end_are_dropped_by_dword(kind: str) -> None:
    group = group_of()
    records = 16 * 100 + 8
    address, content = described(group, records)
    group.v[8][...] = np.random.default_rng(5).permutation(group.waves * group.lanes).reshape(group.waves, -1) * 16
    run(group, "gfx942", f"buffer_store_{kind}", vector_text(0, SIZES[kind]), "v8", "s[4:7]", "0", offen=True)
    expected = bytearray(content)
    for row, lane in np.ndindex(group.waves, group.lanes):
        for k in range(0, SIZES[kind], 4):
            at = int(group.v[8][row, lane]) + k
            if at + 4 <= records:
                expected[at : at + 4] = octets(group, k // 4, row, lane, 4)
    assert group.batch.memory.read(address, len(content)) == bytes(expected)


@pytest.mark.parametrize(("name", "size"), [("ubyte", 1), ("ushort", 2), ("short_d16_hi", 2)])
def test_small_loads_are_bounded(name: str, size: int) -> None:
    group = group_of()
    _, content = described(group, 21)
    group.v[8][...] = np.arange(group.lanes)
    old = group.v[0].copy()
    run(group, "gfx942", f"buffer_load_{name}", "v0", "v8", "s[4:7]", "0", offen=True)
    for lane in range(group.lanes):
        value = int.from_bytes(content[lane : lane + size], "little") if lane + size <= 21 else 0
        expected = value if size == 1 or name == "ushort" else int(old[1, lane]) & 0xFFFF | value << 16
        assert int(group.v[0][1, lane]) == expected


@pytest.mark.parametrize("arch", FLAGS)
@pytest.mark.parametrize("kind", ["load", "store"])
def test_the_offsets_of_a_lane_are_added_in_32_bits(arch: str, kind: str) -> None:
    """A negative offset in the register, which that of the instruction makes positive: the access is inside."""
    group = group_of(arch)
    address, content = described(group, 64, arch)
    group.v[8][...] = 0xFFFFFFFC
    name = f"buffer_{kind}_dword" if arch.startswith("gfx9") else f"buffer_{kind}_b32"
    run(group, arch, name, "v0", "v8", "s[4:7]", "0", offen=True, offset=12)
    if kind == "load":
        assert octets(group, 0, 0, 0, 4) == content[8:12]
    else:
        last = octets(group, 0, group.waves - 1, group.lanes - 1, 4)
        assert group.batch.memory.read(address, 64) == content[:8] + last + content[12:64]


def test_a_negative_sum_of_offsets_is_past_the_end() -> None:
    """CK Tile keeps an access out by 2^31 bytes added to its offset, whatever sign that has."""
    for arch in FLAGS:
        group = group_of(arch)
        described(group, 0x7FFFFFFF, arch)
        group.v[8][...], group.v[8][0, 1] = 0xFFFFFFE0, 0x7FFFFFFC
        name = "buffer_load_dword" if arch.startswith("gfx9") else "buffer_load_b32"
        run(group, arch, name, "v0", "v8", "s[4:7]", "0", offen=True, offset=12)
        assert not group.v[0].any()


def test_the_length_does_not_protect_what_is_not_allocated() -> None:
    group = group_of()
    described(group, 1 << 20)
    group.v[8][...] = 0
    group.v[8][1, 7] = 4096
    with pytest.raises(MemoryFault, match="0 bytes past the end of 'buffer'") as caught:
        run(group, "gfx942", "buffer_load_dwordx4", "v[0:3]", "v8", "s[4:7]", "0", offen=True)
    assert (caught.value.place.wave, caught.value.place.lane) == (1, 7)


def test_an_index_counts_records_of_the_stride() -> None:
    group = group_of()
    _, content = described(group, 20)
    group.s[5][...] |= 24 << 16
    group.v[8][...] = np.arange(group.lanes)
    group.v[9][...] = 4
    run(group, "gfx942", "buffer_load_dwordx2", "v[0:1]", "v[8:9]", "s[4:7]", "0", idxen=True, offen=True, offset=8)
    for lane in range(group.lanes):
        at = lane * 24 + 12
        assert octets(group, 0, 2, lane, 8) == (content[at : at + 8] if lane < 20 else bytes(8))


def test_unbounded_buffers_of_gfx11() -> None:
    group = group_of("gfx1100")
    _, content = described(group, 1, "gfx1100")
    group.s[7][...] = 0x21004000
    run(group, "gfx1100", "buffer_load_b32", "v0", "off", "s[4:7]", "null", offset=100)
    assert octets(group, 0, 0, 0, 4) == content[100:104]
    group.s[6][...] = 0
    run(group, "gfx1100", "buffer_load_b32", "v0", "off", "s[4:7]", "null", offset=100)
    assert not group.v[0].any()


@pytest.mark.parametrize(
    ("arch", "register", "bits"),
    [
        ("gfx942", 5, 0x40000000), ("gfx942", 7, 0x00800000), ("gfx942", 7, 0x40000000), ("gfx1100", 5, 0x00100000),
        ("gfx1100", 5, 0x40000000), ("gfx1201", 7, 0x20000000), ("gfx1201", 7, 0x00800000),
    ],
)  # fmt: skip
def test_unknown_descriptor_bits_raise(arch: str, register: int, bits: int) -> None:
    group = group_of(arch)
    described(group, 64, arch)
    group.s[register][1] ^= np.uint32(bits)
    with pytest.raises(UnknownInstructionFault, match="the buffer descriptor"):
        run(group, arch, "buffer_load_dword", "v0", "off", "s[4:7]", "0")


def test_private_memory_of_gfx90a() -> None:
    """The descriptor has the base of all waves; the wave's own offset was added; s32 counts bytes of the wave."""
    group = group_of("gfx90a", scratch=64)
    whole = np.array([group.batch.scratch + row * 64 * 64 for row in range(group.waves)], np.uint64)
    group.s64[0][...] = whole | np.uint64(1 << 63)
    group.s[2][...], group.s[3][...] = 0xFFFFFFFF, 0x00E00000
    group.s[32][...] = 16 * 64
    mask = some_lanes(group)
    run(group, "gfx90a", "buffer_store_dwordx2", "v[0:1]", "off", "s[0:3]", "s32", offset=8)
    group.v[8][...] = 20
    run(group, "gfx90a", "buffer_load_dword", "v2", "v8", "s[0:3]", "0", offen=True, offset=8)
    for row, lane in np.argwhere(mask):
        own = group.batch.memory.read(group.batch.scratch + (row * 64 + lane) * 64, 64)
        assert own == bytes(24) + octets(group, 0, row, lane, 8) + bytes(32)
        assert octets(group, 2, row, lane, 4) == own[28:32]
    with pytest.raises(MemoryFault, match="which has 64"):
        run(group, "gfx90a", "buffer_load_dword", "v2", "off", "s[0:3]", "s32", offset=48)


@pytest.mark.parametrize(
    ("arch", "kind", "size"), [("gfx942", "dword", 4), ("gfx950", "dwordx4", 16), ("gfx942", "ushort", 2)]
)
def test_copies_to_lds(arch: str, kind: str, size: int) -> None:
    group = group_of(arch, lds=8192)
    _, content = described(group, 2000, arch)
    group.s[M0][...] = np.arange(group.waves) % 2 * 2048 + 128
    group.v[8][...] = np.random.default_rng(1).permutation(group.lanes) * 32
    mask = some_lanes(group)
    run(group, arch, f"buffer_load_{kind}", "v8", "s[4:7]", "0", offen=True, lds=True, offset=16)
    expected = bytearray(group.batch.lds.views.u8.size)
    for row, lane in np.argwhere(mask):
        at = int(group.places.lds_base[row]) + int(group.s[M0][row]) + 16 + lane * max(size, 4)
        source = int(group.v[8][row, lane]) + 16
        good = source + size <= 2000
        expected[at : at + max(size, 4)] = (content[source : source + size] if good else b"").ljust(max(size, 4), b"\0")
    assert group.batch.lds.views.u8.tobytes() == bytes(expected)


def test_global_copies_to_lds() -> None:
    group = group_of(waves=2, waves_per_block=1)
    address, content = described(group, 0)
    set_scalar_pair(group, 10, address)
    group.s[M0][...] = 256
    group.v[8][...] = np.arange(group.lanes)[::-1] * 4
    run(group, "gfx942", "global_load_lds_dword", "v8", "s[10:11]", offset=8)
    words = group.batch.lds.views.u8[264 : 264 + 256].tobytes()
    assert words == b"".join(content[8 + 4 * k : 12 + 4 * k] for k in range(63, -1, -1))
    group.s[M0][...] = 4000
    with pytest.raises(LdsFault):
        run(group, "gfx942", "global_load_lds_dword", "v8", "s[10:11]")
    with pytest.raises(UnknownInstructionFault, match="a copy of dwordx4 to LDS"):
        run(group, "gfx942", "global_load_lds_dwordx4", "v8", "s[10:11]")
