"""Stores that cannot be written: reading goes on, writing says why and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import exit_code, files_below, forked, key_of, noticed, put, whole

from small_disks import mount_disk
from tilewright.base.errors import StoreError
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import verify_entries

KEY, OTHER = key_of(1), key_of(2)
SOURCE = Path(__file__)


@pytest.fixture(params=["mount", "chmod"])
def read_only(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with one entry that nobody can write to."""
    disk = tmp_path / "disk"
    store = Store(disk / "store")
    if request.param == "mount":
        with mount_disk(disk, "size=4m"):
            put(store, KEY)
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            yield store
        return
    if os.geteuid() == 0:
        pytest.skip("root may write where nobody may; the read-only mount stands for it")
    put(store, KEY)
    folders = [store.root, *(path for path in store.root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    yield store
    for folder in folders:
        folder.chmod(0o700)


def test_a_read_only_store_is_read(read_only: Store) -> None:
    os_time = read_only.layout.entry_folder(KEY).stat().st_mtime
    assert whole(read_only, KEY)
    assert read_only.get(OTHER) is None
    assert len(list(read_only.list_entries())) == 1
    assert verify_entries(read_only) == []
    assert read_only.layout.entry_folder(KEY).stat().st_mtime == os_time


def test_a_read_only_store_refuses_with_advice(read_only: Store) -> None:
    for write in (lambda: read_only.put(OTHER, {"a": SOURCE}, {}), lambda: read_only.put_failure(OTHER, "log", {})):
        with pytest.raises(StoreError, match=r"(Read-only file system|Permission denied).*TILEWRIGHT_STORE"):
            write()
    with pytest.raises(StoreError, match="cannot"):
        read_only.remove(KEY)


def test_what_is_there_need_not_be_written(read_only: Store) -> None:
    assert read_only.put(KEY, {"a": SOURCE}, {}) == read_only.get(KEY)


def test_a_flight_over_a_read_only_store_is_not_held_and_says_so(read_only: Store) -> None:
    with noticed() as messages, read_only.lock_build(KEY) as lock:
        assert not lock.held
        os.fstat(lock.fileno())
    assert "cannot be locked" in messages[0]
    with noticed() as messages:
        tried = read_only.try_lock_build(OTHER)
    assert tried is not None
    tried.release()
    tried.release()
    assert messages == [], "said once per store"


def test_a_damaged_entry_of_a_read_only_store_is_absent(small_disk: Path) -> None:
    store = Store(small_disk / "store")
    folder = put(store, KEY, b"x").folder
    (folder / "kernel.so").write_bytes(b"xx")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with noticed() as messages:
        assert store.get(KEY) is None
    assert "and cannot be moved: " in messages[0]


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    store = Store(small_disk / "store")
    put(store, KEY, b"x" * 1000)
    before = files_below(small_disk)
    large = tmp_path / "large.so"
    large.write_bytes(b"y" * 2_000_000)
    with pytest.raises(StoreError, match=r"large\.so: No space left on device\. Free space with `tilewright cache gc"):
        store.put(OTHER, {"large.so": large}, {})
    assert files_below(small_disk) == before
    assert whole(store, KEY, b"x" * 1000)
    assert verify_entries(store) == []


def test_a_disk_without_room_for_a_name(small_disk: Path, tmp_path: Path) -> None:
    """Not even an empty file can be made: locks are not held, nothing remains."""
    store = Store(small_disk / "store")
    put(store, KEY, b"x")
    before = files_below(store.root)
    subprocess.run(["mount", "-o", f"remount,nr_inodes={_inodes(small_disk)}", str(small_disk)], check=True)
    with noticed() as messages, store.lock_build(OTHER) as lock:
        assert not lock.held
    assert "No space left" in messages[0]
    with pytest.raises(StoreError, match="No space left on device"):
        store.put(OTHER, {"a": SOURCE}, {})
    assert files_below(store.root) == before
    assert whole(store, KEY, b"x")


def _inodes(disk: Path) -> int:
    """How many files and folders the disk has now: the least limit it accepts."""
    found = os.statvfs(disk)
    return found.f_files - found.f_ffree


def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    """Needs no root: the kernel cuts the write at the limit."""
    store = Store(tmp_path / "store")
    large = tmp_path / "large.so"
    large.write_bytes(b"y" * 100_000)

    def work() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        with pytest.raises(StoreError, match=r"large\.so: File too large\. .*ulimit -f"):
            store.put(OTHER, {"large.so": large}, {})
        return files_below(store.root) == []

    assert exit_code(forked(work)) == 0
    assert store.get(OTHER) is None


def test_a_root_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "store")
    with pytest.raises(StoreError, match=r"File exists|Not a directory"):
        store.put(KEY, {"a": SOURCE}, {})
