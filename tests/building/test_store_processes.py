"""Many processes at once, and processes that die at any instant. All of them are real, and killed with SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from stores import eventually, exit_code, files_below, forked, key_of, kill, noticed, put, whole

from tilewright.base.errors import StoreError
from tilewright.building.store.build_lock import remove_unused_lock
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import remove_unused_entries, verify_entries

KEY = key_of(1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.mark.parametrize("count", [16, pytest.param(64, marks=pytest.mark.deep)])
def test_processes_put_one_key(store: Store, tmp_path: Path, count: int) -> None:
    gate = tmp_path / "gate"

    def work() -> bool:
        eventually(gate.exists)
        put(store, KEY)
        return whole(store, KEY)

    pids = [forked(work) for _ in range(count)]
    gate.touch()
    assert [exit_code(pid) for pid in pids] == [0] * count
    assert list(store.list_keys()) == [KEY]
    assert verify_entries(store) == []
    assert list(store.layout.work.iterdir()) == []


@pytest.mark.parametrize("count", [16, pytest.param(64, marks=pytest.mark.deep)])
def test_processes_build_one_key_once(store: Store, tmp_path: Path, count: int) -> None:
    def work() -> bool:
        with store.lock_build(KEY, timeout_s=60, already_built=lambda: store.get(KEY) is not None) as lock:
            if store.get(KEY) is None:
                assert lock.held
                (tmp_path / f"built-{os.getpid()}").touch()
                time.sleep(0.02)
                put(store, KEY)
        return whole(store, KEY)

    pids = [forked(work) for _ in range(count)]
    assert [exit_code(pid) for pid in pids] == [0] * count
    assert len(list(tmp_path.glob("built-*"))) == 1


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.deep)])
def test_writers_killed_at_any_instant(store: Store, count: int) -> None:
    chance = random.Random(7)
    keys = [key_of(number) for number in range(3)]

    def work() -> None:
        while True:
            for key in keys:
                with store.lock_build(key):
                    put(store, key)
                store.remove(key)

    for _ in range(count):
        pid = forked(work)
        time.sleep(chance.uniform(0, 0.015))
        kill(pid)
        for key in keys:
            assert store.get(key) is None or whole(store, key)
            lock = store.try_lock_build(key)
            assert lock is not None, "the lock of a dead process must be free"
            lock.release()
    assert verify_entries(store) == []
    assert not store.layout.corrupt.exists()
    with store.create_work_folder("sweeps"):
        pass
    assert list(store.layout.work.iterdir()) == []
    put(store, KEY)
    assert whole(store, KEY)


def test_readers_and_writers_and_gc_at_once(store: Store) -> None:
    """Readers see a whole entry or none while others write, remove and collect."""
    keys = [key_of(number) for number in range(4)]
    end = time.monotonic() + 1.0

    def write() -> None:
        while time.monotonic() < end:
            for key in keys:
                with store.lock_build(key):
                    put(store, key, b"x" * 1000)

    def clean() -> None:
        while time.monotonic() < end:
            remove_unused_entries(store, max_bytes=0)

    def read() -> None:
        with noticed() as messages:
            while time.monotonic() < end:
                for key in keys:
                    store.get(key)
        assert messages == []

    pids = [forked(work) for work in (write, write, clean, clean, read, read)]
    assert [exit_code(pid) for pid in pids] == [0] * 6
    assert verify_entries(store) == []
    assert not store.layout.corrupt.exists() or list(store.layout.corrupt.iterdir()) == []


def test_the_lock_of_a_killed_holder_is_free(store: Store, tmp_path: Path) -> None:
    def hold() -> None:
        with store.lock_build(KEY):
            (tmp_path / "held").touch()
            time.sleep(600)

    pid = forked(hold)
    eventually((tmp_path / "held").exists)
    assert store.try_lock_build(KEY) is None
    with pytest.raises(StoreError, match=r"still held after 0\.05 s"), store.lock_build(KEY, timeout_s=0.05):
        pass
    asked: list[bool] = []
    with store.lock_build(KEY, already_built=lambda: len(asked) > 2 or asked.append(True) is not None) as lock:
        assert not lock.held
    kill(pid)
    with store.lock_build(KEY, timeout_s=5) as lock:
        assert lock.held


def test_children_keep_the_lock_when_their_parent_is_killed(store: Store, tmp_path: Path) -> None:
    def parent() -> None:
        with store.lock_build(KEY) as lock:
            child = subprocess.Popen(["/bin/sleep", "600"], pass_fds=(lock.fileno(),))
            (tmp_path / "new").write_text(str(child.pid))
            (tmp_path / "new").rename(tmp_path / "child")
            time.sleep(600)

    pid = forked(parent)
    eventually((tmp_path / "child").exists)
    kill(pid)
    try:
        assert store.try_lock_build(KEY) is None
        remove_unused_entries(store)
        assert store.layout.lock_file(KEY).exists()
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    with store.lock_build(KEY, timeout_s=5) as lock:
        assert lock.held


def test_leaving_a_flight_frees_it_although_a_child_has_it(store: Store) -> None:
    with store.lock_build(KEY) as lock:
        child = subprocess.Popen(["/bin/sleep", "600"], pass_fds=(lock.fileno(),))
    try:
        again = store.try_lock_build(KEY)
        assert again is not None
        assert again.held
        again.release()
    finally:
        child.kill()
        child.wait()


def test_a_forked_copy_of_a_flight_frees_nothing(store: Store) -> None:
    with store.lock_build(KEY) as lock:
        assert exit_code(forked(lock.release)) == 0
        assert store.try_lock_build(KEY) is None


def test_lock_files_removed_under_waiting_processes(store: Store, tmp_path: Path) -> None:
    """Whatever gc removes, no two processes are in one lock: each adds 1 to a number it read before."""
    number = tmp_path / "number"
    number.write_text("0")

    def work() -> None:
        for _ in range(25):
            with store.lock_build(KEY, timeout_s=60) as lock:
                assert lock.held
                was = int(number.read_text())
                time.sleep(0.0005)
                number.write_text(str(was + 1))

    def remove() -> None:
        while int(number.read_text() or 0) < 100:
            remove_unused_lock(store.layout.lock_file(KEY))

    pids = [forked(work) for _ in range(4)] + [forked(remove)]
    assert [exit_code(pid) for pid in pids] == [0] * 5
    assert number.read_text() == "100"


def test_work_folders_of_the_dead_go_and_those_of_the_living_stay(store: Store, tmp_path: Path) -> None:
    def hold() -> None:
        with store.create_work_folder("compile") as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "file").touch()
            (folder / "deep").chmod(0o500)
            (tmp_path / f"held-{os.getpid()}").touch()
            time.sleep(600)

    living, dead = forked(hold), forked(hold)
    eventually(lambda: len(list(tmp_path.glob("held-*"))) == 2)
    assert remove_unused_entries(store).work_folders == 0
    kill(dead)
    with store.create_work_folder("mine") as mine:
        names = {path.name.partition("-")[0] for path in store.layout.work.iterdir() if path.is_dir()}
        assert names == {"compile", "mine"}
        assert len([path for path in store.layout.work.iterdir() if path.is_dir()]) == 2
        assert mine.is_dir()
    kill(living)
    assert remove_unused_entries(store, dry_run=True).work_folders == 1
    assert remove_unused_entries(store).work_folders == 1
    assert files_below(store.layout.work) == []


def test_a_folder_whose_lock_file_is_lost_is_garbage(store: Store) -> None:
    with store.create_work_folder("x"):
        (store.layout.work / "old-0123").mkdir()
    assert remove_unused_entries(store).work_folders == 1
