"""What is counted of memory and LDS accesses."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hand_made import group_of, run, set_exec, set_pair, set_scalar_pair, some_lanes

from tilewright.arch.load import arch_names, load
from tilewright.emulator.access.traffic import count_cache_lines, count_conflict_cycles
from tilewright.emulator.group import WaveGroup


def addressed(step: int, **settings: object) -> WaveGroup:
    """Lanes whose addresses are `step` bytes apart, wave after wave, from the beginning of an allocation."""
    group = group_of(detailed=True, **settings)  # type: ignore[arg-type]
    count = group.waves * group.lanes
    address = group.batch.memory.allocate(count * step + 64)
    places = np.arange(count, dtype=np.uint64).reshape(group.waves, -1) * np.uint64(step)
    set_pair(group, 8, places + np.uint64(address))
    return group


def test_the_bytes_of_a_copy() -> None:
    group = addressed(16)
    run(group, "gfx942", "global_load_dwordx4", "v[0:3]", "v[8:9]", "off")
    run(group, "gfx942", "global_store_dwordx4", "v[8:9]", "v[0:3]", "off")
    counters = group.batch.counters
    assert counters.global_read_bytes == counters.global_write_bytes == 4 * 64 * 16
    assert counters.cache_lines == 2 * 4 * 64 * 16 // 128


@pytest.mark.parametrize(("step", "lines"), [(4, 2), (8, 4), (128, 64), (256, 64), (0, 1)])
def test_coalesced_and_strided_lines(step: int, lines: int) -> None:
    group = addressed(step)
    run(group, "gfx942", "global_load_dword", "v0", "v[8:9]", "off")
    assert group.batch.counters.cache_lines == lines * group.waves


def test_an_element_across_two_lines_touches_both() -> None:
    index = np.array([[120, 0, 0, 0]])
    assert count_cache_lines(index, 16, None, 128) == 2
    assert count_cache_lines(index, 16, np.array([[False, True, False, False]]), 128) == 1
    assert count_cache_lines(index, 16, np.zeros((1, 4), np.bool_), 128) == 0


def test_scalar_loads_and_bounded_loads_count_what_they_read() -> None:
    group = group_of()
    set_scalar_pair(group, 4, group.batch.memory.allocate(256))
    run(group, "gfx942", "s_load_dwordx4", "s[20:23]", "s[4:5]", "0x0")
    assert group.batch.counters.global_read_bytes == 16 * group.waves
    group.s[6][...], group.s[7][...] = 24, 0x20000
    group.v[8][...] = np.arange(group.lanes) * 16
    run(group, "gfx942", "buffer_load_dwordx4", "v[0:3]", "v8", "s[4:7]", "0", offen=True)
    assert group.batch.counters.global_read_bytes == (16 + 24) * group.waves


def test_lds_bytes_of_active_lanes() -> None:
    group = group_of()
    group.v[8][...] = 0
    mask = some_lanes(group)
    run(group, "gfx942", "ds_read_b64", "v[0:1]", "v8")
    run(group, "gfx942", "ds_write_b16", "v8", "v0")
    assert group.batch.counters.lds_read_bytes == 8 * np.count_nonzero(mask)
    assert group.batch.counters.lds_write_bytes == 2 * np.count_nonzero(mask)
    assert group.batch.counters.bank_conflict_cycles == 0  # not asked for


@pytest.mark.parametrize(
    ("name", "size", "stride", "cycles"),
    [
        ("b32", 4, 4, 0),  # every lane its own bank
        ("b32", 4, 0, 0),  # one dword for all
        ("b32", 4, 8, 2 * 1),  # 2 passes, 2 lanes at each bank
        ("b32", 4, 32, 2 * 7),  # 8-way: 32 lanes at 4 banks
        ("b32", 4, 128, 2 * 31),  # all lanes at one bank
        ("b64", 8, 8, 0),
        ("b64", 8, 16, 4 * 1),
        ("b128", 16, 16, 0),
        ("b128", 16, 32, 8 * 1),
        ("b128", 16, 128, 8 * 7),  # 8-way: the 8 lanes of a pass at the same 4 banks
    ],
)
def test_bank_conflicts(name: str, size: int, stride: int, cycles: int) -> None:
    group = group_of(waves=1, waves_per_block=1, lds=64 * 128, detailed=True)
    group.v[8][...] = np.arange(group.lanes) * stride
    run(group, "gfx942", f"ds_read_{name}", f"v[0:{size // 4 - 1}]" if size > 4 else "v0", "v8")
    assert group.batch.counters.bank_conflict_cycles == cycles


def test_inactive_lanes_are_not_in_the_way() -> None:
    group = group_of(waves=1, waves_per_block=1, lds=64 * 128, detailed=True)
    group.v[8][...] = np.arange(group.lanes) * 128
    set_exec(group, np.arange(64)[None, :] % 16 == 0)
    run(group, "gfx942", "ds_write_b32", "v8", "v0")
    assert group.batch.counters.bank_conflict_cycles == 2


@pytest.mark.parametrize(("size", "lanes"), [(1, 64), (4, 64), (8, 64), (12, 64), (16, 32)])
def test_conflicts_agree_with_a_plain_model(size: int, lanes: int) -> None:
    rng = random.Random(size)
    for banks in (32, 64):
        index = np.array([[rng.randrange(0, 128) * max(size, 4) for _ in range(lanes)] for _ in range(3)])
        mask = np.array([[rng.random() < 0.7 for _ in range(lanes)] for _ in range(3)])
        together = {1: 32, 4: 32, 8: 16, 12: 8, 16: 8}[size]
        expected = 0
        for row in range(3):
            for first in range(0, lanes, together):
                touched: dict[int, set[int]] = {}
                for lane in range(first, first + together):
                    for k in range(max(size // 4, 1)) if mask[row, lane] else ():
                        dword = int(index[row, lane]) // 4 + k
                        touched.setdefault(dword % banks, set()).add(dword)
                expected += max(map(len, touched.values()), default=1) - 1
        assert count_conflict_cycles(index, size, mask, banks) == expected


def test_every_gpu_says_how_long_a_line_is() -> None:
    assert {load(name).memory.line_bytes for name in arch_names()} == {128}
