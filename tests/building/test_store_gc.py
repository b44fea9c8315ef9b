"""Making room: the least recently used goes first, what is in use stays, and clocks may lie."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from stores import files_below, key_of, put, whole

from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import remove_unused_entries

DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def aged(store: Store, number: int, age_s: float, size: int = 1000) -> str:
    key = key_of(number)
    then = time.time() - age_s
    os.utime(put(store, key, b"x" * (size // 2)).folder, (then, then))
    return key


def test_age(store: Store) -> None:
    old, new = aged(store, 1, 40 * DAY), aged(store, 2, 20 * DAY)
    done = remove_unused_entries(store, max_age_s=30 * DAY)
    assert [(entry.key, entry.reason) for entry in done.removed] == [(old, "age")]
    assert (done.kept, list(store.list_keys())) == (1, [new])
    assert done.bytes > 1000


def test_size_takes_the_least_recently_used_first(store: Store) -> None:
    keys = [aged(store, number, number * DAY) for number in range(10)]
    each = next(store.list_entries()).size
    done = remove_unused_entries(store, max_bytes=4 * each + each // 2)
    assert [entry.key for entry in done.removed] == keys[:3:-1]
    assert {entry.reason for entry in done.removed} == {"size"}
    assert sorted(store.list_keys()) == sorted(keys[:4])
    assert done.kept_bytes <= 4 * each + each // 2


def test_without_limits_only_leftovers_go(store: Store) -> None:
    key = aged(store, 1, 400 * DAY)
    broken = put(store, key_of(2)).folder
    (broken / "manifest.json").unlink()
    assert store.get(key_of(2)) is None
    with store.lock_build(key):
        pass
    done = remove_unused_entries(store)
    assert (done.removed, done.corrupt, done.kept) == ((), 1, 1)
    assert done.locks == 1
    assert files_below(store.root) == [f"v1/entries/{key[:2]}/{key}/{n}" for n in _NAMES]


_NAMES = ("kernel.hpp", "kernel.so", "manifest.json")


def test_a_dry_run_removes_nothing(store: Store) -> None:
    aged(store, 1, 40 * DAY)
    (put(store, key_of(2)).folder / "kernel.so").unlink()
    with store.lock_build(key_of(3)):
        pass
    before = files_below(store.root)
    done = remove_unused_entries(store, max_age_s=DAY, dry_run=True)
    assert {entry.reason for entry in done.removed} == {"age", "damaged"}
    assert done.locks == 1
    assert files_below(store.root) == before


def test_what_is_being_built_stays(store: Store) -> None:
    key = aged(store, 1, 40 * DAY)
    with store.lock_build(key):
        done = remove_unused_entries(store, max_bytes=0)
        assert (done.removed, done.busy) == ((), (key,))
        assert store.layout.lock_file(key).exists()
    assert whole(store, key, b"x" * 500)
    os.utime(store.layout.entry_folder(key), (1, 1))
    assert [entry.key for entry in remove_unused_entries(store, max_bytes=0).removed] == [key]


def test_a_damaged_entry_goes_and_its_key_can_be_built(store: Store) -> None:
    (put(store, key_of(1)).folder / "manifest.json").write_text("{")
    done = remove_unused_entries(store)
    assert [(entry.key, entry.reason) for entry in done.removed] == [(key_of(1), "damaged")]
    put(store, key_of(1))
    assert whole(store, key_of(1))


@pytest.mark.parametrize("shift", [-400 * DAY, 400 * DAY], ids=["clock set back", "clock set forward"])
def test_a_clock_that_was_set_removes_nothing_in_use(store: Store, shift: float) -> None:
    """What was used under the new clock stays; an age is never negative; nothing fails."""
    used, idle = aged(store, 1, -shift), aged(store, 2, 40 * DAY)
    assert store.get(used) is not None  # marks the use, although the old mark lies a year off
    done = remove_unused_entries(store, max_age_s=30 * DAY)
    assert [entry.key for entry in done.removed] == [idle]
    assert whole(store, used, b"x" * 500)


def test_entries_from_the_future_count_as_just_used(store: Store) -> None:
    future, past = aged(store, 1, -400 * DAY), aged(store, 2, DAY)
    done = remove_unused_entries(store, max_bytes=1500, max_age_s=10 * DAY)
    assert [entry.key for entry in done.removed] == [past]
    assert remove_unused_entries(store, max_age_s=0.0, now=0.0).removed == ()
    assert list(store.list_keys()) == [future]


def test_an_empty_store_and_none_at_all(store: Store) -> None:
    assert remove_unused_entries(store, max_bytes=0, max_age_s=0).removed == ()
    assert not store.root.exists()
