"""The journal of a sweep: append-only files of records, one file per worker.

Whatever happens to a worker or its machine, everything appended before stays readable. A torn or damaged line is
reported and skipped, and only its own record is lost. Journals are merged by putting their files into one folder:
duplicate results count once.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tilewright.base.atomic_write import describe_write_error, remove_draft, suggest_write_fix
from tilewright.base.errors import InvalidValueError, JournalError, choose
from tilewright.base.events import Notice, emit
from tilewright.base.shared_files import describe_lock_error, try_lock
from tilewright.bench.journal_lines import (
    LONGEST,
    TAIL,
    DamagedLine,
    IntactLine,
    RecordSummary,
    format_line,
    parse_record,
    parse_summary,
    read_lines,
)
from tilewright.bench.record import Record

SUFFIX = ".jsonl"
# When an append reaches the disk. record: before it returns. batch: after some records or a moment, and at the end.
# never: when the system does it; a crash of the machine, not of the process, loses the last seconds.
FSYNC = ("record", "batch", "never")
BATCH_RECORDS = 64
BATCH_S = 1.0
WORKER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]*")


@dataclass(frozen=True)
class JournalContents:
    """A journal's content: all intact records in order, duplicate keys included, and the damaged lines."""

    records: list[Record]
    damaged: list[DamagedLine]


class Journal:
    """The file of one worker, open for appending. Threads may share it, processes may not."""

    def __init__(self, folder: Path | str, worker: str, *, fsync: str = "record") -> None:
        self.fsync = choose("fsync policy", fsync, FSYNC)
        if not WORKER.fullmatch(worker):
            raise JournalError(f"{worker!r} cannot name a journal file: use letters, digits and _ . : @ + -")
        self.file = Path(folder) / f"{worker}{SUFFIX}"
        self._guard = threading.Lock()
        self._unsynced: list[bytes] = []  # lines that a failed fsync may lose; none are kept without fsync
        self._failed = ""  # why the last fsync failed: nothing written to the file before can be relied on
        self._synced_at = time.monotonic()
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(describe_write_error(self.file, error)) from error
        self._open(self.file)

    def _open(self, file: Path) -> None:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(describe_write_error(file, error)) from error
        try:
            _lock(file, descriptor)
            size = os.fstat(descriptor).st_size
            # A line that was torn when a writer died must not damage the next one.
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            if self.fsync != "never":
                _sync_folder(file.parent)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise JournalError(describe_write_error(file, error)) from error
            raise
        self.file, self._descriptor, self._size, self._torn = file, descriptor, size, torn

    def append(self, record: Record) -> None:
        """Append a record; the guarantee of the `fsync` policy holds when this returns.

        Raises `JournalError` if the disk is full or fails. The record is not kept then, but all earlier ones are, and
        the journal stays open: when there is room again, append the record again.

        After a failed fsync the system may have dropped data that it could not write, and the next fsync does not
        report it. So the lines that are not on the disk are written again, to a new file, which replaces the journal's
        file.
        """
        line = format_line(record)
        if len(line) > LONGEST:
            raise InvalidValueError(f"a record has {len(line):,} bytes, the limit is {LONGEST:,}: shorten its message")
        with self._guard:
            if self._descriptor < 0:
                raise JournalError(f"{self.file} is closed: nothing can be appended to it")
            if self._failed:
                self._write_again()
            self._write(line)
            if self.fsync == "never":
                return
            self._unsynced.append(line)
            if self._is_sync_due():
                try:
                    self._sync()
                except JournalError:
                    self._unsynced.pop()  # the caller gets the error, and appends it again
                    raise

    def close(self) -> None:
        """Sync, unless the policy is never, and close. A second call does nothing."""
        with self._guard:
            if self._descriptor < 0:
                return
            try:
                if self._failed:
                    self._write_again()
                elif self._unsynced:
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

    def _write(self, line: bytes) -> None:
        data, written = b"\n" + line if self._torn else line, 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            rest = self._cut_back(written)
            raise JournalError(
                f"{self.file}: only {written:,} of {len(data):,} bytes could be appended at byte {self._size:,}: "
                f"{error.strerror}. {rest} {suggest_write_fix(error)}, then resume: all earlier records are kept"
            ) from error
        self._size += len(data)
        self._torn = False

    def _cut_back(self, written: int) -> str:
        """Remove an incompletely written record. Returns a description of the file's state."""
        if not written:
            return "The file is unchanged."
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            self._torn, self._size = True, self._size + written
            return f"They could not be removed ({error.strerror}): readers will report a damaged line."
        return "The file was cut back to that byte."

    def _is_sync_due(self) -> bool:
        if self.fsync == "batch":
            return len(self._unsynced) >= BATCH_RECORDS or time.monotonic() - self._synced_at >= BATCH_S
        return self.fsync == "record"

    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._failed = f"{self.file}: fsync failed: {error.strerror}"
            self._write_again()
        else:
            self._unsynced.clear()
            self._synced_at = time.monotonic()

    def _write_again(self) -> None:
        """Continue in a new file that begins with the lines that may not be on the disk."""
        failed, before = self._failed, (self._descriptor, self.file, self._size, self._torn)
        again = len(self._unsynced)
        try:
            self._open(_choose_next_file(self.file))
            try:
                for line in self._unsynced:
                    self._write(line)
                os.fdatasync(self._descriptor)
            except (OSError, JournalError):
                os.close(self._descriptor)
                remove_draft(self.file)
                self._descriptor, self.file, self._size, self._torn = before
                raise
        except (OSError, JournalError) as error:
            raise JournalError(
                f"{failed}. The last {_format_count(again)} may not be on the disk, and could not be written again: "
                f"{error}. Check the disk, then resume: missing results are measured again"
            ) from error
        os.close(before[0])
        self._failed = ""
        self._unsynced.clear()
        self._synced_at = time.monotonic()
        emit(Notice(f"{failed}. The last {_format_count(again)} were written again, to {self.file}"))


def _format_count(records: int) -> str:
    return f"{records:,} record{'' if records == 1 else 's'}"


def _choose_next_file(file: Path) -> Path:
    """A new file name for the same worker."""
    stem = file.stem.partition("+")[0]
    return next(each for n in itertools.count(2) if not (each := file.with_name(f"{stem}+{n}{SUFFIX}")).exists())


def _lock(file: Path, descriptor: int) -> None:
    try:
        free = try_lock(descriptor)
    except OSError as error:
        raise JournalError(describe_lock_error(file, error)) from error
    if not free:
        raise JournalError(f"{file} is being written by another process: give each worker its own name")


def list_journal_files(journal: Path | str) -> list[Path]:
    """The files of a journal, sorted: those of a folder, or one file. Raises an error if the path does not exist."""
    path = Path(journal)
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    if path.is_file():
        return [path]
    raise JournalError(f"{path} does not exist: a journal is a folder of {SUFFIX} files, or one such file")


def scan_lines(*journals: Path | str) -> Iterator[IntactLine | DamagedLine]:
    """Every intact and every damaged line, file by file: memory does not grow with their number."""
    for journal in journals:
        for file in list_journal_files(journal):
            yield from read_lines(file)


def iterate_records(*journals: Path | str) -> Iterator[Record | DamagedLine]:
    """Every record and every damaged line of journals. Keys may repeat: see `merge_records`."""
    for line in scan_lines(*journals):
        yield line if isinstance(line, DamagedLine) else parse_record(line)


def read_journal(folder: Path | str) -> JournalContents:
    """Everything in a journal at once. Damaged lines are returned, never raised."""
    contents = JournalContents([], [])
    for each in iterate_records(folder):
        if isinstance(each, DamagedLine):
            contents.damaged.append(each)
        else:
            contents.records.append(each)
    return contents


def merge_records(records: Iterable[Record]) -> dict[str, Record]:
    """One record per key: a good one rather than a failure, else the latest. The order of the input does not matter."""
    best: dict[str, Record] = {}
    for record in records:
        known = best.get(record.key)
        if known is None or _is_better(record, known):
            best[record.key] = record
    return best


def read_known_keys(folder: Path | str, *, retry_failed: bool = False) -> set[str]:
    """The keys that a resumed sweep need not measure again: all in the journal, or only the good ones."""
    summaries = (parse_summary(line) for line in scan_lines(folder) if isinstance(line, IntactLine))
    return {each.key for each in summaries if isinstance(each, RecordSummary) and (each.ok or not retry_failed)}


def _is_better(new: Record, old: Record) -> bool:
    if (new.ok, new.started) != (old.ok, old.started):
        return (new.ok, new.started) > (old.ok, old.started)
    # Equal timestamps: the checksums decide, so that the order of files does not.
    return format_line(new)[-TAIL:] > format_line(old)[-TAIL:]


def _sync_folder(folder: Path) -> None:
    """A new file survives a crash of the machine only if its folder has been synced, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
