"""Strict mode: an effect is visible only after a wait that asks for it."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made import group_of, octets, run, set_exec, set_pair, set_scalar_pair, some_lanes, wait

from tilewright.emulator.group import WaveGroup
from tilewright.emulator.instruction import M0


def filled(arch: str = "gfx942", **settings: object) -> tuple[WaveGroup, int, bytes]:
    group = group_of(arch, strict=True, **settings)  # type: ignore[arg-type]
    content = np.random.default_rng(3).bytes(4096)
    address = group.batch.memory.allocate(4096)
    group.batch.memory.write(address, content)
    set_pair(group, 8, np.arange(group.lanes, dtype=np.uint64) * np.uint64(16) + np.uint64(address))
    set_scalar_pair(group, 40, address)
    return group, address, content


def test_a_load_waits_for_its_wait() -> None:
    group, address, content = filled()
    before = group.vgprs.copy()
    run(group, "gfx942", "global_load_dword", "v0", "v[8:9]", "off")
    run(group, "gfx942", "global_load_dword", "v1", "v[8:9]", "off", offset=4)
    assert (group.vgprs == before).all()
    group.batch.memory.write(address, bytes(4096))  # the values were read at issue
    wait(group, "load", 1)
    assert octets(group, 0, 2, 3, 4) == content[48:52]
    assert (group.v[1] == before[1]).all()
    wait(group, "load")
    assert octets(group, 1, 2, 3, 4) == content[52:56]
    assert not group.pending


def test_exec_of_the_issue_decides() -> None:
    group, _, content = filled()
    mask = some_lanes(group)
    run(group, "gfx942", "global_load_ubyte_d16_hi", "v0", "v[8:9]", "off")
    set_exec(group, ~mask)
    group.v[0][...] = 0x1234  # written while the load is under way: its lower half is what the load leaves alone
    wait(group, "load")
    for row, lane in np.ndindex(mask.shape):
        loaded = content[16 * lane] if mask[row, lane] else 0
        assert group.v[0][row, lane] == 0x1234 | loaded << 16


def test_stores_take_their_place_in_the_queue() -> None:
    group, address, _ = filled()
    run(group, "gfx942", "global_load_dword", "v0", "v[8:9]", "off")
    run(group, "gfx942", "global_store_dword", "v[8:9]", "v1", "off")
    assert group.batch.memory.read(address, 4) == octets(group, 1, group.waves - 1, 0, 4)
    before = group.v[0].copy()
    wait(group, "load", 2)
    assert (group.v[0] == before).all()
    wait(group, "load", 1)
    assert (group.v[0] != before).any()


@pytest.mark.parametrize(
    ("arch", "queues"), [("gfx942", {"vm": 2}), ("gfx1100", {"vm": 1, "vs": 1}), ("gfx1201", {"load": 1, "store": 1})]
)
def test_which_counter_counts(arch: str, queues: dict[str, int]) -> None:
    group, _, _ = filled(arch)
    run(group, arch, "global_load_dword", "v0", "v[8:9]", "off")
    run(group, arch, "global_atomic_add", "v[8:9]", "v1", "off")
    assert {name: len(queue) for name, queue in group.pending.items()} == queues


def test_without_active_lanes_the_counters_still_count() -> None:
    group, _, _ = filled(scratch=16)
    set_exec(group, np.zeros((group.waves, group.lanes), np.bool_))
    before = group.vgprs.copy()
    set_scalar_pair(group, 4, 0)
    group.s[6][...], group.s[7][...] = 0, 0x20000
    vm = [
        ("global_load_dword", "v0", "v[8:9]", "off"), ("global_store_dword", "v[8:9]", "v0", "off"),
        ("global_atomic_add", "v[8:9]", "v0", "off"), ("buffer_load_dword", "v0", "off", "s[4:7]", "0"),
        ("buffer_store_dword", "v0", "off", "s[4:7]", "0"), ("buffer_atomic_add", "v0", "off", "s[4:7]", "0"),
        ("scratch_load_dword", "v0", "off", "off"), ("scratch_store_dword", "off", "v0", "off"),
        ("global_load_lds_dword", "v[8:9]", "off"),
    ]  # fmt: skip
    lgkm = [
        ("ds_read_b32", "v0", "v1"), ("ds_write_b32", "v1", "v0"), ("ds_add_u32", "v1", "v0"),
        ("ds_bpermute_b32", "v0", "v1", "v2"), ("ds_write2_b32", "v1", "v2", "v3"), ("ds_read2_b32", "v[2:3]", "v1"),
    ]  # fmt: skip
    both = [
        ("flat_load_dword", "v0", "v[8:9]"),
        ("flat_store_dword", "v[8:9]", "v0"),
        ("flat_atomic_add", "v[8:9]", "v0"),
    ]
    for mnemonic, *operands in vm + lgkm + both:
        run(group, "gfx942", mnemonic, *operands)
    run(group, "gfx942", "buffer_load_dword", "off", "s[4:7]", "0", lds=True)
    assert len(group.pending["vm"]) == len(vm + both) + 1
    assert len(group.pending["lgkm"]) == len(lgkm + both)
    wait(group, "load")
    wait(group, "lds")
    assert (group.vgprs == before).all()


def test_scalar_loads_come_in_any_order() -> None:
    group, _, content = filled()
    before = group.s[8].copy()
    run(group, "gfx942", "s_load_dword", "s8", "s[40:41]", "0x0")
    run(group, "gfx942", "s_load_dword", "s9", "s[40:41]", "0x4")
    wait(group, "scalar", 1)
    assert (group.s[8] == before).all()
    wait(group, "scalar")
    assert int(group.s[9][0]).to_bytes(4, "little") == content[4:8]


def test_lds_writes_are_seen_by_their_own_waves_only() -> None:
    group = group_of(waves=2, waves_per_block=2, strict=True)
    group.v[8][...] = np.arange(group.lanes) * 4
    writer, reader = group.take(np.array([0])), group.take(np.array([1]))
    run(writer, "gfx942", "ds_write_b32", "v8", "v1")
    run(writer, "gfx942", "ds_write_b8", "v8", "v2")
    run(writer, "gfx942", "ds_read_b32", "v0", "v8")
    run(reader, "gfx942", "ds_read_b32", "v0", "v8")
    assert not group.batch.lds.views.u8.any()
    wait(reader, "lds")
    assert not reader.v[0].any()
    wait(writer, "lds", 1)
    expected = (writer.v[1] & 0xFFFFFF00) | (writer.v[2] & 0xFF)
    assert (group.batch.lds.views.u32[:64] == expected[0]).all()
    wait(writer, "lds")
    assert (writer.v[0] == expected).all()
    run(reader, "gfx942", "ds_read_b32", "v0", "v8")
    wait(reader, "lds")
    assert (reader.v[0] == expected).all()


def test_written_values_are_those_of_the_issue() -> None:
    group = group_of(strict=True, waves=1, waves_per_block=1)
    group.v[8][...] = np.arange(group.lanes) * 16
    values = group.vgprs[:4].copy()
    run(group, "gfx942", "ds_write_b128", "v8", "v[0:3]")
    group.vgprs[:4] = 0
    wait(group, "lds")
    written = group.batch.lds.views.u32[: 4 * group.lanes].reshape(-1, 4)
    assert np.array_equal(written.T, values[:, 0])


def test_lds_atomics_are_in_order_with_writes() -> None:
    group = group_of(strict=True, waves=1, waves_per_block=1)
    group.v[8][...], group.v[1][...], group.v[2][...] = 0, 100, 1
    run(group, "gfx942", "ds_write_b32", "v8", "v1")
    run(group, "gfx942", "ds_add_rtn_u32", "v3", "v8", "v2")
    run(group, "gfx942", "ds_read_b32", "v4", "v8")
    assert group.batch.lds.views.u32[0] == 0
    wait(group, "lds")
    assert group.batch.lds.views.u32[0] == 164
    assert (group.v[3] == 100 + np.arange(64)).all()
    assert (group.v[4] == 164).all()


def test_copies_to_lds_are_seen_after_the_load_wait() -> None:
    group, _, content = filled(waves=1, waves_per_block=1)
    group.s[M0][...] = 0
    group.v[10][...] = np.arange(group.lanes) * 4
    run(group, "gfx942", "global_load_lds_dword", "v[8:9]", "off")
    run(group, "gfx942", "ds_read_b32", "v0", "v10")
    wait(group, "lds")
    assert not group.v[0].any()
    assert not group.batch.lds.views.u8.any()
    wait(group, "load")
    run(group, "gfx942", "ds_read_b32", "v0", "v10")
    wait(group, "lds")
    assert [octets(group, 0, 0, lane, 4) for lane in range(64)] == [content[16 * k : 16 * k + 4] for k in range(64)]


def test_flat_values_of_gfx9_arrive_at_waits_for_none() -> None:
    group, _, content = filled()
    before = group.v[0].copy()
    run(group, "gfx942", "flat_load_dword", "v0", "v[8:9]")
    run(group, "gfx942", "global_load_dword", "v1", "v[8:9]", "off")
    wait(group, "load", 1)
    assert (group.v[0] == before).all()
    wait(group, "load")
    assert octets(group, 0, 1, 2, 4) == content[32:36]


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_flat_values_of_later_gpus_arrive_in_order(arch: str) -> None:
    """Also in the counter of the LDS, where each takes a place."""
    group, _, content = filled(arch)
    before = group.v[1].copy()
    run(group, arch, "flat_load_b32", "v0", "v[8:9]")
    run(group, arch, "flat_load_b32", "v1", "v[8:9]")
    run(group, arch, "global_load_b32", "v2", "v[8:9]", "off")
    wait(group, "load", 2)
    assert octets(group, 0, 1, 2, 4) == content[32:36]
    assert (group.v[1] == before).all()
    wait(group, "lds", 1)
    assert len(group.pending[group.batch.counter_of["lds"]]) == 1


def test_effects_follow_their_waves() -> None:
    """Waves that part take what is under way along."""
    group, _, content = filled()
    mask = some_lanes(group)
    run(group, "gfx942", "global_load_dwordx2", "v[0:1]", "v[8:9]", "off")
    run(group, "gfx942", "s_load_dword", "s8", "s[40:41]", "0x8")
    group.v[10][...] = np.arange(group.lanes) * 4 + np.arange(group.waves)[:, None] % 2 * 256
    run(group, "gfx942", "ds_write_b32", "v10", "v2")
    run(group, "gfx942", "ds_add_u32", "v10", "v3")
    some = group.take(np.array([0, 2]))
    wait(some, "load")
    wait(some, "lds")
    assert len(group.pending["vm"]) == 1
    for row, lane in np.argwhere(mask[[0, 2]]):
        assert octets(some, 0, row, lane, 8) == content[16 * lane : 16 * lane + 8]
    assert int(some.s[8][1]).to_bytes(4, "little") == content[8:12]
    for row, wave in enumerate((0, 2)):
        at = int(some.places.lds_base[row]) // 4
        words = group.batch.lds.views.u32[at : at + 128]
        total = some.v[2][row] + some.v[3][row]
        assert (words[:64] == np.where(mask[wave], total, 0)).all()
        assert not words[64:].any()
