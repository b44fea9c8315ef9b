"""Functions that write to a full disk: an error with advice, no half-written file, and the next call works."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from random import Random

import pytest

from documents.written_files import WRITERS, Writer
from tilewright.base.atomic_write import write_text
from tilewright.base.errors import TilewrightError

SEED = 36_2026
PAGE = 4096  # what the disk gives out at once
_TIME = re.compile(rb'"created":[0-9.]+')  # in the manifest of a store's entry


@pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=[pytest.mark.deep, pytest.mark.slow])])
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_no_half_written_file(name: str, rounds: int, small_disk: Path) -> None:
    """Half of the writes replace or extend an earlier version."""
    writer = WRITERS[name]
    refused = sum(_fill_up(writer, Random(f"{SEED} {name} {number}"), small_disk) for number in range(rounds))
    assert refused > rounds // 4, f"only {refused} of {rounds} writes met a full disk"


def _fill_up(writer: Writer, random: Random, disk: Path) -> bool:
    """Write when few pages are free, and again when all are. Returns whether the first call was refused."""
    replaces = random.random() < 0.5
    wanted, result = _write_with_room(writer, disk, replaces)
    _clear(disk)
    if replaces:
        writer.write(disk, 0)
    before = _read_files(disk)
    needed = sum(-(-len(content) // PAGE) for path, content in wanted.items() if before.get(path) != content)
    free = shutil.disk_usage(disk).free
    (disk / "ballast").write_bytes(b"\0" * (free - random.randrange(max(needed, 1)) * PAGE))
    refused = False
    try:
        writer.write(disk, 1)
    except TilewrightError as error:
        refused = True
        assert writer.advice in str(error)
    (disk / "ballast").unlink()
    for path, content in _read_files(disk).items():
        assert content in (before.get(path), wanted.get(path)) or _is_journal_of(path, content, wanted[path]), path
    if refused:
        writer.write(disk, 1)
    assert writer.read(disk) == result
    _clear(disk)
    return refused


def _write_with_room(writer: Writer, disk: Path, replaces: bool) -> tuple[dict[str, bytes], object]:
    for version in (0, 1) if replaces else (1,):
        writer.write(disk, version)
    return _read_files(disk), writer.read(disk)


def _is_journal_of(path: str, content: bytes, whole: bytes) -> bool:
    """Whether a journal has the first of its records, all complete."""
    return path.endswith(".jsonl") and whole.startswith(content) and content[-1:] in (b"", b"\n")


def _read_files(folder: Path) -> dict[str, bytes]:
    """The files by path, without times and without those that only serve as locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(folder)): _TIME.sub(b"", path.read_bytes()) for path in files}


def _clear(disk: Path) -> None:
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_cannot_be_made_is_our_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TilewrightError, match="file"):
        WRITERS[name].write(tmp_path / "file" / "below", 1)


def test_a_pipe_or_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
