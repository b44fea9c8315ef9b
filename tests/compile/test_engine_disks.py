"""Stores that are full, read-only, damaged, or whose clock was set: kernels are built and load, nothing damaged is."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine import all_load, answer, at_work_in, build, environment, eventually, heard, notices, scale, sound, start

from built_kernels import in_tier_ci
from tilewright.base.errors import CorruptError
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import remove_unused_entries
from tilewright.building.store.tiers import get_process_store, has_process_store

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]


def _fill(disk: Path, leave: int) -> None:
    """Take all room of a disk but `leave` bytes. Others may be writing: whoever comes first has the room."""
    try:
        (disk / "ballast").write_bytes(b"\0" * max(0, shutil.disk_usage(disk).free - leave))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@pytest.mark.parametrize("leave", [0, *(pytest.param(n, marks=pytest.mark.deep) for n in (100_000, 2_000_000))])
def test_a_disk_that_is_full(ck: Path, disk: Path, leave: int) -> None:
    """Without room for anything, for the texts alone, and for kernels but not for precompiled headers."""
    _fill(disk, leave)
    found = answer(start(environment(ck, disk / "store"), [1, 2, 666]))
    assert [entry.get("name", "") for entry in found["results"].values()] == [scale(1).slug, scale(2).slug, ""]
    refused = list(found["results"].values())[2]
    assert refused["errors"] == ["static assertion failed: this kernel is meant to be refused"]
    assert any("which is removed when this process ends" in message for message in found["notices"])
    (disk / "ballast").unlink()
    again = answer(start(environment(ck, disk / "store"), [1, 2]))
    assert all("name" in entry for entry in again["results"].values())
    sound(disk / "store")


@pytest.mark.parametrize("count", [6, pytest.param(12, marks=pytest.mark.deep)])
def test_a_disk_that_fills_up_in_the_middle(ck: Path, disk: Path, warm: Callable[[Path], Path], count: int) -> None:
    factors = list(range(1, count + 1))
    process = start(environment(ck, warm(disk / "store")), factors)
    eventually(lambda: list(disk.glob("store/v1/entries/*/*/kernel.so")), 60)
    _fill(disk, 0)
    found = answer(process)
    names = [entry.get("name") for entry in found["results"].values()]
    assert names == [scale(factor).slug for factor in factors], found["results"]
    assert any("No space left" in message or "disk was full" in message for message in found["notices"])
    (disk / "ballast").unlink()
    again = answer(start(environment(ck, disk / "store"), factors))
    assert again["compiled"] < len(factors)
    sound(disk / "store")


def test_a_disk_that_is_full_for_a_while(ck: Path, disk: Path, warm: Callable[[Path], Path]) -> None:
    """When the failures are judged, there is room again."""
    factors = list(range(1, 7))
    process = start(environment(ck, warm(disk / "store")), factors)
    eventually(lambda: list(disk.glob("store/v1/entries/*/*/kernel.so")), 60)
    _fill(disk, 0)
    time.sleep(2)
    (disk / "ballast").unlink()
    found = answer(process)
    names = [entry.get("name") for entry in found["results"].values()]
    assert names == [scale(factor).slug for factor in factors], found["results"]
    sound(disk / "store")


def test_a_store_that_can_only_be_read(disk: Path, warm: Callable[[Path], Path]) -> None:
    store = warm(disk / "store")
    build(store, [6100, 666])
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    before = sorted(disk.rglob("*"))
    try:
        with heard() as listed:
            warm = build(store, [6100, 666])
        assert (warm.compiled, warm.spans, notices(listed)) == (0, (), [])
        assert all_load(warm)
        with heard() as listed:
            cold = build(store, [6100, 6101])
        assert cold.compiled == 1
        assert all_load(cold)
        assert has_process_store()
        assert cold.artifacts[scale(6101)].folder.is_relative_to(get_process_store().root)
        assert any("Read-only file system" in message for message in notices(listed))
        again = build(store, [6100, 6101])
        assert again.compiled == 0, "what was built for this process is there for its next build"
        assert again.results == cold.results
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert sorted(disk.rglob("*")) == before


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    status = path.stat()
    path.write_bytes(bytes(content))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [_truncate, _flip, pytest.param(_remove, marks=pytest.mark.deep)])
def test_damaged_kernels_are_built_again(shared_store: Path, damage: Callable[[Path], None]) -> None:
    names = ["kernel.so", "kernel.co", "host.o", "manifest.json"]
    factors = list(range(6000, 6000 + len(names)))
    first = build(shared_store, factors)
    whole = {kernel: artifact.files for kernel, artifact in first.artifacts.items()}
    for name, artifact in zip(names, first.artifacts.values(), strict=True):
        damage(artifact.folder / name)
    for name, kernel in zip(names, whole, strict=True):
        found = build(shared_store, [6000 + names.index(name)]).results[kernel]
        assert isinstance(found, Artifact)
        # What `get` cannot see, who loads a file does; the build after that makes it anew.
        if name != "manifest.json" and _refused(found, name):
            found = build(shared_store, [6000 + names.index(name)]).results[kernel]
            assert isinstance(found, Artifact)
        for file in found.files:
            found.verify_file(file)
        assert found.files == whole[kernel]
    sound(shared_store)


def _refused(artifact: Artifact, name: str) -> bool:
    try:
        artifact.verify_file(name)
    except CorruptError:
        return True
    return False


@pytest.mark.parametrize("damage", [_flip, *(pytest.param(d, marks=pytest.mark.deep) for d in (_truncate, _remove))])
def test_damaged_headers_are_made_again(tmp_path: Path, shared_store: Path, damage: Callable[[Path], None]) -> None:
    """The precompiled ones, and our own that they were made of."""
    store = tmp_path / "store"
    first = build(store, [1])
    for path in store.glob("v1/entries/*/*/prefix.pch"):
        damage(path)
    for path in (store / "headers").glob("*/*"):
        damage(path)
    with heard() as listed:
        second = build(store, [2])
    assert second.failures == {}
    assert second.warm_cpu_s > 0.5 * first.warm_cpu_s
    assert any("damaged" in message for message in notices(listed))
    (folder,) = (store / "headers").iterdir()
    unit = next(iter(first.units.values()))
    for name, text in unit.device_headers.texts.items():
        assert (folder / name).read_text() == text
    assert build(shared_store, [2]).artifacts[scale(2)].files == second.artifacts[scale(2)].files
    assert build(store, [3]).warm_cpu_s == 0
    sound(store)


@pytest.mark.parametrize("years", [pytest.param(-20, marks=pytest.mark.deep), 20])
def test_clocks_do_not_matter(tmp_path: Path, years: int, warm: Callable[[Path], Path]) -> None:
    store = warm(tmp_path / "store")
    first = build(store, [1, 2])
    moved = time.time() + years * 365 * 86400
    for path in [store, *store.rglob("*")]:
        os.utime(path, (moved, moved))
    second = build(store, [1, 2, 3])
    assert (second.compiled, second.warm_cpu_s) == (1, 0)
    assert second.artifacts[scale(1)].files == first.artifacts[scale(1)].files
    kept = remove_unused_entries(Store(store), max_age_s=3600)
    assert kept.removed == (), "what was just used is not old"
    assert all_load(build(store, [1, 2, 3]))
    sound(store)


def test_gc_of_everything_during_a_build(ck: Path, tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    """Headers vanish as soon as they are stored, and what is left over goes; the build does not notice."""
    factors = list(range(1, 6 if in_tier_ci() else 9))
    store = Store(warm(tmp_path / "store"))  # the headers are taken from the store, and go from there
    process = start(environment(ck, store.root), factors)
    eventually(lambda: at_work_in(store.root))
    removed: set[str] = set()
    while process.poll() is None:
        headers = {path.parent.name for path in store.root.glob("v1/entries/*/*/prefix.pch")}
        removed |= {key for key in headers if store.remove(key)}
        remove_unused_entries(store, max_age_s=1e9)
        time.sleep(0.05)
    found = answer(process)
    assert len(removed) == 2
    assert [entry.get("name") for entry in found["results"].values()] == [scale(factor).slug for factor in factors]
    sound(tmp_path / "store")
