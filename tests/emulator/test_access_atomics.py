"""Atomics: lanes in order, also where several use one address."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from hand_made import group_of, run, set_pair, set_scalar_pair, some_lanes

from tilewright.emulator.faults import AlignmentFault, UnknownInstructionFault
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.hardware import SHARED_BASE

M32, M64 = 2**32 - 1, 2**64 - 1


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def halves_added(old: int, value: int, dtype: type) -> int:
    left, right = (np.array([n], np.uint32).view(dtype) for n in (old, value))
    wide = left.astype(np.float32) + right.astype(np.float32)
    return int(wide.astype(dtype).view(np.uint32)[0])


def real_added(old: int, value: int, code: str) -> int:
    a, b = (struct.unpack(code, n.to_bytes(struct.calcsize(code), "little"))[0] for n in (old, value))
    kind = np.float32 if code == "f" else np.float64
    return int.from_bytes(struct.pack(code, kind(a) + kind(b)), "little")


def less(old: int, value: int, bits: int) -> int:
    return old if signed(old, bits) < signed(value, bits) else value


OPERATIONS = {
    "add": lambda o, v: (o + v) & M32,
    "sub": lambda o, v: (o - v) & M32,
    "smin": lambda o, v: less(o, v, 32),
    "umin": min,
    "smax": lambda o, v: o + v - less(o, v, 32),
    "umax": max,
    "and": lambda o, v: o & v,
    "or": lambda o, v: o | v,
    "xor": lambda o, v: o ^ v,
    "swap": lambda o, v: v,
    "inc": lambda o, v: 0 if o >= v else o + 1,
    "dec": lambda o, v: v if o == 0 or o > v else o - 1,
    "add_f32": lambda o, v: real_added(o, v, "f"),
    "pk_add_f16": lambda o, v: halves_added(o, v, np.float16),
    "pk_add_bf16": lambda o, v: halves_added(o, v, ml_dtypes.bfloat16),
    "add_x2": lambda o, v: (o + v) & M64,
    "smin_x2": lambda o, v: less(o, v, 64),
    "umax_x2": max,
    "xor_x2": lambda o, v: o ^ v,
    "swap_x2": lambda o, v: v,
    "add_f64": lambda o, v: real_added(o, v, "d"),
}
NEW_NAMES = {"add": "add_u32", "smin": "min_i32", "umax_x2": "max_u64", "swap": "swap_b32", "inc": "inc_u32"}


def width(name: str) -> int:
    return 8 if name.endswith(("x2", "f64")) else 4


def number(group: WaveGroup, register: int, row: int, lane: int, size: int) -> int:
    return sum(int(group.v[register + k][row, lane]) << 32 * k for k in range(size // 4))


def sound_numbers(group: WaveGroup, name: str) -> None:
    """Operands that are ordinary numbers of the operation's type, in v0 and v1."""
    rng = np.random.default_rng(11)
    shape = (group.waves, group.lanes)
    if name.endswith("f32"):
        group.v[0][...] = rng.normal(size=shape).astype(np.float32).view(np.uint32)
    elif name.endswith("f64"):
        words = rng.normal(size=shape).view(np.uint32).reshape(*shape, 2)
        group.v[0][...], group.v[1][...] = words[..., 0], words[..., 1]
    elif name.endswith("f16"):
        dtype = ml_dtypes.bfloat16 if "bf16" in name else np.float16
        group.v[0][...] = rng.normal(size=(*shape, 2)).astype(dtype).view(np.uint32)[..., 0]
    elif name in ("inc", "dec"):
        group.v[0][...] = rng.integers(0, 4, shape)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_memory_atomics(name: str, old: bool) -> None:
    check_atomic("gfx942", f"global_atomic_{name}", name, old, {"sc0": True})


@pytest.mark.parametrize("name", NEW_NAMES)
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_new_spellings(arch: str, name: str) -> None:
    wanted = {"glc": True} if arch == "gfx1100" else {"th": "TH_ATOMIC_RETURN"}
    check_atomic(arch, f"global_atomic_{NEW_NAMES[name]}", name, True, wanted)
    check_atomic(arch, f"global_atomic_{NEW_NAMES[name]}", name, False, wanted)


def check_atomic(arch: str, mnemonic: str, name: str, old: bool, wanted: dict[str, object]) -> None:
    """Few addresses for many lanes: each lane must see what the ones before it left."""
    group = group_of(arch)
    size = width(name)
    sound_numbers(group, name)
    memory = group.batch.memory
    address = memory.allocate(16 * size)
    slots = np.random.default_rng(1).integers(0, 16, (group.waves, group.lanes))
    set_pair(group, 8, np.uint64(address) + slots.astype(np.uint64) * np.uint64(size))
    mask = some_lanes(group)
    content = [0] * 16
    expected = group.vgprs[4 : 4 + size // 4].copy()
    for row, lane in np.argwhere(mask):
        slot = slots[row, lane]
        for k in range(size // 4):
            expected[k, row, lane] = content[slot] >> 32 * k & M32
        content[slot] = OPERATIONS[name](content[slot], number(group, 0, row, lane, size))
    data, result = ("v[0:1]", "v[4:5]") if size == 8 else ("v0", "v4")
    if old:
        run(group, arch, mnemonic, result, "v[8:9]", data, "off", **wanted)  # type: ignore[arg-type]
        assert (group.vgprs[4 : 4 + size // 4] == expected).all()
    else:
        run(group, arch, mnemonic, "v[8:9]", data, "off")
    found = memory.read(address, 16 * size)
    assert [int.from_bytes(found[k * size : (k + 1) * size], "little") for k in range(16)] == content
    assert group.batch.counters.atomics == np.count_nonzero(mask)


@pytest.mark.parametrize("wide", [False, True])
def test_compare_and_swap_is_a_lock(wide: bool) -> None:
    """Of all lanes that try to change 0 to their number, the first has success."""
    group = group_of()
    size = 8 if wide else 4
    address = group.batch.memory.allocate(size)
    set_pair(group, 8, address)
    lanes = np.arange(group.waves * group.lanes).reshape(group.waves, -1) + 7
    group.v[0][...] = lanes
    for register in range(1, 4):
        group.v[register][...] = 0
    name, data = ("cmpswap_x2", "v[0:3]") if wide else ("cmpswap", "v[0:1]")
    run(group, "gfx942", f"global_atomic_{name}", "v[4:5]" if wide else "v4", "v[8:9]", data, "off", sc0=True)
    assert int.from_bytes(group.batch.memory.read(address, size), "little") == 7
    assert group.v[4][0, 0] == 0
    assert (group.v[4].reshape(-1)[1:] == 7).all()


def test_buffer_atomics_are_bounded() -> None:
    group = group_of()
    address = group.batch.memory.allocate(256)
    set_scalar_pair(group, 4, address)
    group.s[6][...], group.s[7][...] = 40, 0x20000
    group.v[8][...] = np.arange(group.lanes) * 4
    group.vf[0][...] = 1.5
    mask = some_lanes(group)
    run(group, "gfx942", "buffer_atomic_add_f32", "v0", "v8", "s[4:7]", "0", offen=True)
    found = np.frombuffer(group.batch.memory.read(address, 256), np.float32)
    assert (found[:10] == 1.5 * mask.sum(axis=0)[:10]).all()
    assert not found[10:].any()
    group.v[1][...] = 5
    run(group, "gfx942", "buffer_atomic_swap", "v1", "v8", "s[4:7]", "0", offen=True, sc0=True)
    active = mask[:, 10:]
    assert (group.v[1][:, 10:] == np.where(active, 0, 5)).all()


@pytest.mark.parametrize(
    ("mnemonic", "name"),
    [
        ("add_rtn_u32", "add"), ("sub_rtn_u32", "sub"), ("min_rtn_i32", "smin"), ("max_rtn_u32", "umax"),
        ("wrxchg_rtn_b32", "swap"), ("inc_rtn_u32", "inc"), ("add_rtn_u64", "add_x2"), ("add_rtn_f32", "add_f32"),
        ("pk_add_rtn_f16", "pk_add_f16"), ("add_rtn_f64", "add_f64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("old", [False, True])
def test_lds_atomics(mnemonic: str, name: str, old: bool) -> None:
    group = group_of(waves=4, waves_per_block=2)
    size = width(name)
    sound_numbers(group, name)
    slots = np.random.default_rng(1).integers(0, 8, (group.waves, group.lanes))
    group.v[8][...] = slots * size
    mask = some_lanes(group)
    content = {}
    expected = group.v[4].copy()
    for row, lane in np.argwhere(mask):
        place = (row // 2, slots[row, lane])
        before = content.get(place, 0)
        expected[row, lane] = before & M32
        content[place] = OPERATIONS[name](before, number(group, 0, row, lane, size))
    data, result = ("v[0:1]", "v[4:5]") if size == 8 else ("v0", "v4")
    if old or name == "swap":
        run(group, "gfx942", f"ds_{mnemonic}", result, "v8", data, offset=16)
        assert (group.v[4] == expected).all()
    else:
        run(group, "gfx942", f"ds_{mnemonic.replace('_rtn', '')}", "v8", data, offset=16)
    octets = group.batch.lds.views.u8
    for (block, slot), value in content.items():
        at = group.batch.lds.base(block) + 16 + slot * size
        assert int.from_bytes(octets[at : at + size].tobytes(), "little") == value


@pytest.mark.parametrize(("arch", "name", "new", "compare"), [("gfx942", "cmpst", 2, 1), ("gfx1100", "cmpstore", 1, 2)])
def test_the_order_of_compare_and_swap_operands(arch: str, name: str, new: int, compare: int) -> None:
    group = group_of(arch)
    group.v[8][...] = 0
    group.v[new][...], group.v[compare][...] = 9, 0
    run(group, arch, f"ds_{name}_rtn_b32", "v4", "v8", "v1", "v2")
    assert group.batch.lds.views.u32[0] == 9
    assert group.v[4][0, 0] == 0
    assert group.v[4][0, 1] == 9


def test_masked_or() -> None:
    group = group_of()
    group.batch.lds.views.u32[...] = 0xFFFF
    group.v[8][...], group.v[1][...], group.v[2][...] = 4, 0xFF, 0x12
    run(group, "gfx942", "ds_mskor_b32", "v8", "v1", "v2")
    assert group.batch.lds.views.u32[1] == 0xFF12


def test_flat_atomics_reach_lds_and_memory() -> None:
    group = group_of()
    address = group.batch.memory.allocate(4)
    lanes = np.arange(group.lanes)
    set_pair(group, 8, np.where(lanes % 2, address, SHARED_BASE).astype(np.uint64))
    group.v[0][...] = 1
    run(group, "gfx942", "flat_atomic_add", "v1", "v[8:9]", "v0", sc0=True)
    total = group.waves * group.lanes // 2
    assert int.from_bytes(group.batch.memory.read(address, 4), "little") == total
    assert [int(group.batch.lds.views.u32[group.batch.lds.base(b) // 4]) for b in range(2)] == [total // 2] * 2
    assert sorted(group.v[1][:, 1::2].reshape(-1).tolist()) == list(range(total))


def test_misaligned_atomics_are_faults() -> None:
    group = group_of()
    set_pair(group, 8, group.batch.memory.allocate(64) + 4)
    with pytest.raises(AlignmentFault) as caught:
        run(group, "gfx942", "global_atomic_add_x2", "v[8:9]", "v[0:1]", "off")
    assert (caught.value.place.wave, caught.value.place.lane) == (0, 0)


def test_an_unknown_policy_raises() -> None:
    with pytest.raises(UnknownInstructionFault, match="th:"):
        run(group_of("gfx1201"), "gfx1201", "global_atomic_add_u32", "v[8:9]", "v0", "off", th="TH_LOAD_NT")
