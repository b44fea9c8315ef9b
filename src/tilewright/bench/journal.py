"""The journal of a sweep: records in files that are only appended to, one file for each worker.

Whatever happens to a worker or its machine, what was appended before stays readable. A line that was torn or damaged
is told and skipped, and only its own record is lost. Journals are joined by putting their files together: the same
result twice is one result.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tilewright.base.errors import JournalError, choose
from tilewright.bench.journal_lines import (
    LONGEST,
    TAIL,
    Damage,
    Intact,
    Summary,
    intact_lines,
    line_of,
    record_of,
    summary_of,
)
from tilewright.bench.record import Record

SUFFIX = ".jsonl"
# When an append is on the disk. record: before it returns. batch: after some records or a moment, and at the end.
# never: when the system does it; a crash of the machine, not of the process, loses the last seconds.
FSYNC = ("record", "batch", "never")
BATCH_RECORDS = 64
BATCH_S = 1.0
WORKER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]*")


@dataclass(frozen=True)
class JournalContents:
    """What is in a journal: all intact records in order, equal keys included, and the lines that are damaged."""

    records: list[Record]
    damaged: list[Damage]


class Journal:
    """The file of one worker, open for appending. Threads may share it, processes may not."""

    def __init__(self, folder: Path | str, worker: str, *, fsync: str = "record") -> None:
        self.fsync = choose("fsync policy", fsync, FSYNC)
        if not WORKER.fullmatch(worker):
            raise JournalError(f"{worker!r} cannot name a journal's file: use letters, digits and _ . : @ + -")
        self.file = Path(folder) / f"{worker}{SUFFIX}"
        self._guard = threading.Lock()
        self._unsynced = 0
        self._synced_at = time.monotonic()
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(f"{self.file} cannot be opened for appending: {error.strerror}") from error
        try:
            self._lock()
            self._size = os.fstat(self._descriptor).st_size
            # A line that was torn when a writer died must not take the next one with it.
            self._torn = self._size > 0 and os.pread(self._descriptor, 1, self._size - 1) != b"\n"
            if self.fsync != "never":
                _sync_folder(self.file.parent)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, record: Record) -> None:
        """Add a record; what its `fsync` policy promises holds when this returns.

        Raises `JournalError` when the disk is full or fails. The file then ends as before, and stays open: when there
        is room again, appending goes on.
        """
        line = line_of(record)
        if len(line) > LONGEST:
            raise JournalError(f"a record has {len(line):,} bytes, at most {LONGEST:,} are kept: shorten its message")
        with self._guard:
            if self._descriptor < 0:
                raise JournalError(f"{self.file} is closed: nothing can be appended to it")
            self._write(b"\n" + line if self._torn else line)
            self._unsynced += 1
            if self._due():
                self._sync()

    def sync(self) -> None:
        """Bring everything appended so far onto the disk, whatever the policy."""
        with self._guard:
            self._sync()

    def close(self) -> None:
        """Sync, unless the policy is never, and close. A second time does nothing."""
        with self._guard:
            if self._descriptor < 0:
                return
            try:
                if self.fsync != "never" and self._unsynced:
                    self._sync()
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(
                f"{self.file} is being written by another process: give each worker a name of its own"
            ) from error
        except OSError as error:
            raise JournalError(f"{self.file} cannot be locked: {error.strerror}. Use a disk that has locks") from error

    def _write(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            rest = self._cut_back(written)
            raise JournalError(
                f"{self.file}: {written:,} of {len(data):,} bytes could be appended at byte {self._size:,}: "
                f"{error.strerror}. {rest} Make room, then go on: all records before are kept"
            ) from error
        self._size += len(data)
        self._torn = False

    def _cut_back(self, written: int) -> str:
        """Take the begin of a record away that could not be written whole. Says what the file is like now."""
        if not written:
            return "The file is as before."
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            self._torn, self._size = True, self._size + written
            return f"They could not be taken away ({error.strerror}): readers will tell a damaged line."
        return "The file was cut back to that byte."

    def _due(self) -> bool:
        if self.fsync == "batch":
            return self._unsynced >= BATCH_RECORDS or time.monotonic() - self._synced_at >= BATCH_S
        return self.fsync == "record"

    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise JournalError(
                f"{self.file}: the last {self._unsynced:,} records may not be on the disk: {error.strerror}. "
                "Look at the disk, then resume: what is missing is measured again"
            ) from error
        self._unsynced = 0
        self._synced_at = time.monotonic()


def journal_files(journal: Path | str) -> list[Path]:
    """The files of a journal, sorted: those of a folder, or one file. Raises when there is no such path."""
    path = Path(journal)
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    if path.is_file():
        return [path]
    raise JournalError(f"{path} does not exist: a journal is a folder of {SUFFIX} files, or one such file")


def scan(*journals: Path | str) -> Iterator[Intact | Damage]:
    """Every intact line and every damaged one, file by file: memory does not grow with their number."""
    for journal in journals:
        for file in journal_files(journal):
            yield from intact_lines(file)


def journal_records(*journals: Path | str) -> Iterator[Record | Damage]:
    """Every record and every damaged line of journals, one after another. Equal keys may come again: see `merged`."""
    for line in scan(*journals):
        yield line if isinstance(line, Damage) else record_of(line)


def read_journal(folder: Path | str) -> JournalContents:
    """Everything in a journal at once. Damaged lines are told, never raised."""
    contents = JournalContents([], [])
    for each in journal_records(folder):
        if isinstance(each, Damage):
            contents.damaged.append(each)
        else:
            contents.records.append(each)
    return contents


def merged(records: Iterable[Record]) -> dict[str, Record]:
    """One record for each key: a good one rather than a failure, else the latest. Their order does not matter."""
    best: dict[str, Record] = {}
    for record in records:
        known = best.get(record.key)
        if known is None or _beats(record, known):
            best[record.key] = record
    return best


def known_keys(folder: Path | str, *, retry_failed: bool = False) -> set[str]:
    """Keys of what a resumed sweep need not do again: all that is journalled, or only what is good."""
    summaries = (summary_of(line) for line in scan(folder) if isinstance(line, Intact))
    return {each.key for each in summaries if isinstance(each, Summary) and (each.ok or not retry_failed)}


def _beats(new: Record, old: Record) -> bool:
    if (new.ok, new.started) != (old.ok, old.started):
        return (new.ok, new.started) > (old.ok, old.started)
    # Two records of one moment: their checksums decide, so that the order of files does not.
    return line_of(new)[-TAIL:] > line_of(old)[-TAIL:]


def _sync_folder(folder: Path) -> None:
    """A new file survives a crash of the machine only when its folder is on the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
