"""Wheels, packs, journals and shared stores with changed bytes: what is read is right, or its absence is reported."""

from __future__ import annotations

import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from documents.mutated import changed_bytes
from documents.written_files import BUILT, make_records
from tests.building.pack_parts import small_pack
from tests.building.stores import key_of, noticed
from tilewright.base.errors import TilewrightError
from tilewright.bench.journal import Journal, list_journal_files, read_journal
from tilewright.bench.journal_lines import format_line
from tilewright.building.pack.manifest import read_pack
from tilewright.building.prebuilt.installed import list_wheels
from tilewright.building.prebuilt.write_wheel import WheelKernel, write_wheel
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote_folder import FolderRemote
from tilewright.building.store.tiers import Tiers

SEED = 36_2026
KEYS = tuple(key_of(number) for number in range(3))


@dataclass(frozen=True)
class Distribution:
    """`write` writes a right one into a folder; `read` returns what a user gets of it, by name.

    `counts_parts` says whether a part that is gone is noticed. Nothing lists the lines of a journal, or shared kernels.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], Mapping[str, Any]]
    counts_parts: bool = True


def _put_entries(store: Store, folder: Path) -> list[Artifact]:
    source = folder / "kernel.so"
    entries = []
    for number, key in enumerate(KEYS):
        source.write_bytes(Random(number).randbytes(3000))
        entries.append(store.put(key, {"kernel.so": source}, {"slug": f"gemm-{number}"}))
    source.unlink()
    return entries


def _write_wheel(folder: Path) -> None:
    own = folder.parent / "own"
    own.mkdir()
    entries = _put_entries(Store(own / "store"), own)
    kernels = [WheelKernel(entry, key_of(f"source {n}")) for n, entry in enumerate(entries)]
    write_wheel(folder, "kernels", "1.0", "gfx942", BUILT, kernels)
    shutil.rmtree(own)


def _install_wheel(folder: Path) -> None:
    _write_wheel(folder)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    wheel.unlink()


def _read_installed(folder: Path) -> Mapping[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        wheel = next((each for each in list_wheels() if each.folder.is_relative_to(folder)), None)
    named = folder / "kernels-1.0.dist-info" / "entry_points.txt"
    if wheel is None and (not named.exists() or b"[tilewright.kernels]\nkernels = kernels\n" not in named.read_bytes()):
        raise TilewrightError("for pip this is no package of kernels")
    if wheel is None:
        return {}
    found = Tiers(Store(folder.parent / "store"), packages=(wheel,)).find_entries(KEYS)
    return {
        "facts": (wheel.gpu, wheel.built, wheel.by_source),
        **{key: _read_entry(each) for key, each in found.items()},
    }


def _read_entry(entry: Any) -> object:
    return entry.facts, {name: entry.verify_file(name).read_bytes() for name in entry.files}


def _read_wheel_file(folder: Path) -> Mapping[str, Any]:
    """As pip does: it checks the sums of the zip file, and nothing else."""
    target = folder.parent / "installed"
    try:
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
            archive.extractall(target)
    except Exception as error:
        raise TilewrightError(f"pip refuses it: {error}") from error
    return _read_installed(target)


def _write_shared(folder: Path) -> None:
    folder.mkdir()
    tiers = Tiers(Store(folder.parent / "own"), FolderRemote(folder))
    for entry in _put_entries(tiers.local, folder.parent):
        tiers.publish(entry)
    shutil.rmtree(tiers.local.root)


def _read_shared(folder: Path) -> Mapping[str, Any]:
    found = Tiers(Store(folder.parent / "store"), FolderRemote(folder)).find_entries(KEYS)
    return {key: _read_entry(entry) for key, entry in found.items()}


def _write_journal(folder: Path) -> None:
    for version in (0, 1):
        with Journal(folder, f"w{version}", fsync="never") as journal:
            for record in make_records(version):
                journal.append(record)


def _read_records(folder: Path) -> Mapping[str, Any]:
    """The records; also checks that exactly the lines which are no whole records are reported."""
    whole = {b"", *(format_line(record)[:-1] for version in (0, 1) for record in make_records(version))}
    contents = read_journal(folder)
    lines = [line.strip() for file in list_journal_files(folder) for line in file.read_bytes().split(b"\n")]
    assert len(contents.damaged) == sum(line not in whole for line in lines)
    return {record.key: record for record in contents.records}


def _read_pack(folder: Path) -> Mapping[str, Any]:
    pack = read_pack(folder)
    return {"manifest": pack.to_text(), **{file.path: (folder / file.path).read_bytes() for file in pack.files}}


DISTRIBUTIONS: Mapping[str, Distribution] = {
    "wheel": Distribution(_write_wheel, _read_wheel_file),
    "installed wheel": Distribution(_install_wheel, _read_installed),
    "shared store": Distribution(_write_shared, _read_shared, counts_parts=False),
    "journal": Distribution(_write_journal, _read_records, counts_parts=False),
    "pack": Distribution(small_pack, _read_pack),
}


@pytest.mark.parametrize("count", [12, pytest.param(400, marks=[pytest.mark.deep, pytest.mark.slow])])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_what_is_read_is_right_or_its_absence_is_reported(name: str, count: int, tmp_path: Path) -> None:
    distribution = DISTRIBUTIONS[name]
    distribution.write(tmp_path / "right")
    right = distribution.read(tmp_path / "right")
    outcomes: Counter[str] = Counter()
    for number in range(count):
        shutil.copytree(tmp_path / "right", tmp_path / str(number) / "changed")
        change_files(Random(f"{SEED} {name} {number}"), tmp_path / str(number) / "changed")
        outcomes[_read_changed(distribution, right, tmp_path / str(number) / "changed")] += 1
        shutil.rmtree(tmp_path / str(number))
    print(name, dict(outcomes))
    assert outcomes["refused"] + outcomes["reported"] > count // 2


def _read_changed(distribution: Distribution, right: Mapping[str, Any], folder: Path) -> str:
    with noticed() as messages:
        try:
            found = distribution.read(folder)
        except TilewrightError:
            return "refused"
    if found == right:
        return "the same"
    assert [name for name, value in found.items() if right.get(name) != value] == []
    assert messages or not distribution.counts_parts, sorted(right.keys() - found.keys())
    return "reported"


def change_files(random: Random, folder: Path) -> None:
    """Flip, cut, repeat or insert bytes of a file, exchange two files, or remove one."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, other = random.choice(files), random.choice(files)
    how = random.randrange(8)
    if how == 0 and path != other:
        content = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif how == 1 and len(files) > 1:
        path.unlink()
    elif how < 5:
        content = bytearray(path.read_bytes())
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(content)
    else:
        path.write_bytes(changed_bytes(random, path.read_bytes()))
