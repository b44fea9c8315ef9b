"""Disks that are full or refuse: the journal says so, stays readable, and goes on when there is room."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from journalled import failed, timed

from tilewright.base.atomic_write import describe_write_error
from tilewright.base.errors import JournalError
from tilewright.base.events import Notice, add_listener
from tilewright.bench.journal import BATCH_RECORDS, Journal, read_journal
from tilewright.bench.journal_lines import format_line
from tilewright.bench.journal_merge import select_best, write_merged
from tilewright.bench.sweep_file import claim_folder
from tilewright.bench.table import export_table


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to let a file of this process grow beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_record_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, room: int) -> None:
    with Journal(tmp_path, "w") as journal:
        journal.append(timed(1))
        before = journal.file.read_bytes()
        size = len(format_line(timed(2)))
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


class FailingSyncs:
    """An fsync that fails for the files that there are, as of a disk with an error, and then says that all is well.

    Mocked: this machine has no disk that fails. Linux drops what it could not write and reports the error once.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: int = 1) -> None:
        self._broken = broken  # how many files
        self._synced = os.fdatasync
        self.lost: set[str] = set()
        monkeypatch.setattr(os, "fdatasync", self)

    def __call__(self, descriptor: int) -> None:
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if name not in self.lost and len(self.lost) < self._broken:
            self.lost.add(name)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._synced(descriptor)


@pytest.mark.parametrize("fsync", ["record", "batch"])
def test_after_a_failed_fsync_lines_are_written_again_to_another_file(tmp_path, monkeypatch, fsync: str) -> None:
    monkeypatch.setattr("tilewright.bench.journal.BATCH_S", 1e9)  # batches end by their number, on a busy machine, too
    notices: list[str] = []
    count = BATCH_RECORDS if fsync == "batch" else 1
    hear = add_listener(lambda event: notices.append(event.message) if isinstance(event, Notice) else None)
    with hear, Journal(tmp_path, "w", fsync=fsync) as journal:
        for number in range(count - 1):
            journal.append(timed(number))
        syncs = FailingSyncs(monkeypatch)
        journal.append(timed(count - 1))
        journal.append(timed(count))
    (lost,) = syncs.lost
    Path(lost).unlink()  # nothing in it was on the disk
    assert read_journal(tmp_path).records == [timed(number) for number in range(count + 1)]
    assert journal.file != Path(lost) and journal.file.name == "w+2.jsonl"
    assert len(notices) == 1 and "fsync failed: Input/output error" in notices[0] and str(journal.file) in notices[0]


def test_a_disk_on_which_nothing_can_be_synced_is_an_error_and_appending_again_keeps_all(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tilewright.bench.journal.BATCH_S", 1e9)
    with Journal(tmp_path, "w", fsync="batch") as journal:
        for number in range(BATCH_RECORDS - 1):
            journal.append(timed(number))
        syncs = FailingSyncs(monkeypatch, broken=2)
        with pytest.raises(JournalError, match=r"w\.jsonl: fsync failed: .*could not be written again"):
            journal.append(timed(100))
        assert [path.name for path in tmp_path.glob("*.jsonl")] == ["w.jsonl"]
        journal.append(timed(100))
    assert len(syncs.lost) == 2
    (tmp_path / "w.jsonl").unlink()  # the other file was taken away
    kept = [*range(BATCH_RECORDS - 1), 100]
    assert read_journal(tmp_path).records == [timed(number) for number in kept]


def test_closing_after_a_failed_fsync_writes_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tilewright.bench.journal.BATCH_S", 1e9)
    journal = Journal(tmp_path, "w", fsync="batch")
    journal.append(timed(1))
    syncs = FailingSyncs(monkeypatch)
    journal.close()
    (lost,) = syncs.lost
    Path(lost).unlink()
    assert read_journal(tmp_path).records == [timed(1)]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free disk space"),
        (errno.EDQUOT, "Free disk space"),
        (errno.ENOENT, "a folder that exists and is writable"),
        (errno.EACCES, "a folder that exists and is writable"),
        (errno.EROFS, "a folder that exists and is writable"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_the_advice_fits_the_reason(number: int, advice: str) -> None:
    text = describe_write_error("sweep", OSError(number, "a library's words", "/x/.sweep.json.0123"))
    assert text.startswith(f"sweep cannot be written: {os.strerror(number)}. ") and advice in text
    assert ("Free disk space" in text) == (advice == "Free disk space")


def test_a_folder_that_cannot_be_made_is_named_as_it_was_asked(tmp_path: Path) -> None:
    for folder in (Path("/proc/x1"), Path("/proc/x1/deeper")):
        with pytest.raises(JournalError, match=f"^{folder} cannot be written: No such file") as caught:
            claim_folder(folder, {"kernels": 1})
        assert "Free disk space" not in str(caught.value) and ".sweep.json" not in str(caught.value)
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(JournalError, match=f"^{folder} cannot be written"):
            claim_folder(folder, {"kernels": 1})
        with pytest.raises(JournalError, match="cannot be written"):
            Journal(folder, "w")
    with pytest.raises(JournalError, match=r"^/proc/x1\.parquet cannot be written"):
        export_table([timed(1)], "/proc/x1.parquet")
