"""Disks that are full or refuse: the journal says so, stays readable, and goes on when there is room."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from journalled import failed, timed

from tilewright.base.errors import JournalError
from tilewright.bench.journal import Journal, read_journal
from tilewright.bench.journal_lines import line_of
from tilewright.bench.journal_merge import select_best, write_merged
from tilewright.bench.sweep_file import claim_folder


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to let a file of this process grow beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_record_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, room: int) -> None:
    with Journal(tmp_path, "w") as journal:
        journal.append(timed(1))
        before = journal.file.read_bytes()
        size = len(line_of(timed(2)))
        with files_of_at_most(len(before) + room), pytest.raises(JournalError) as caught:
            journal.append(timed(2))
        text = str(caught.value)
        assert str(journal.file) in text and f"{room:,} of {size:,} bytes" in text and f"byte {len(before):,}" in text
        assert journal.file.read_bytes() == before
        journal.append(timed(3))
    assert read_journal(tmp_path).records == [timed(1), timed(3)] and not read_journal(tmp_path).damaged


def test_a_torn_end_and_a_full_disk_together(tmp_path: Path) -> None:
    with Journal(tmp_path, "w") as journal:
        journal.append(timed(1))
    torn = journal.file.read_bytes()[:-20]
    journal.file.write_bytes(torn)
    with Journal(tmp_path, "w") as journal:
        with files_of_at_most(len(torn) + 10), pytest.raises(JournalError):
            journal.append(timed(2))
        journal.append(timed(3))
    found = read_journal(tmp_path)
    assert found.records == [timed(3)] and [damage.line for damage in found.damaged] == [1]


def test_a_disk_that_fills_up_keeps_everything_before(small_disk: Path) -> None:
    kept = []
    with Journal(small_disk / "sweep", "w") as journal:
        with pytest.raises(JournalError, match="No space left on device"):
            for number in range(10_000):
                journal.append(failed(number, message="x" * 500))
                kept.append(failed(number, message="x" * 500))
        assert shutil.disk_usage(small_disk).free < 8192
        found = read_journal(small_disk / "sweep")
        assert found.records == kept and len(kept) > 500 and not found.damaged
        with pytest.raises(JournalError, match="cannot be written after"):
            write_merged(select_best(small_disk / "sweep"), small_disk / "merged.jsonl")
        with pytest.raises(JournalError, match="cannot be written"):
            for number in range(5):
                claim_folder(small_disk / f"other{number}", {"kernels": ["x" * 5000]})
        assert not [path for path in small_disk.rglob("*") if path.name.startswith(".")]


def test_going_on_when_there_is_room_again(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - 4096))
    with Journal(small_disk / "sweep", "w") as journal:
        with pytest.raises(JournalError):
            for number in range(100):
                journal.append(timed(number))
        there = len(read_journal(small_disk / "sweep").records)
        (small_disk / "ballast").unlink()
        journal.append(timed(999))
    found = read_journal(small_disk / "sweep")
    assert len(found.records) == there + 1 and found.records[-1] == timed(999) and not found.damaged
