"""Merge journals of any size to one record per key: the lines to keep are chosen before any record is parsed.

Memory holds each distinct key and one integer for it, about 200 bytes, and no record.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base.atomic_write import describe_write_error, make_temporary_path, remove_draft
from tilewright.base.errors import InvalidValueError, JournalError
from tilewright.bench.journal import SUFFIX, list_journal_files
from tilewright.bench.journal_lines import (
    START,
    DamagedLine,
    IntactLine,
    format_line,
    parse_record,
    parse_summary,
    read_lines,
)
from tilewright.bench.progress import report_progress
from tilewright.bench.record import Record

# A location is one integer: the file, offset and size of a line, in this many bits. A line has at most 2²⁴ bytes
# (LONGEST).
FILE_BITS, OFFSET_BITS, SIZE_BITS = 16, 40, 24
PLACE_BITS = FILE_BITS + OFFSET_BITS + SIZE_BITS
PLACE = (1 << PLACE_BITS) - 1
_COUNTER = re.compile(rb'"([^"]+)":')


@dataclass(frozen=True)
class SelectedLines:
    """The journal lines to keep, one per key, in the order of the files."""

    files: tuple[Path, ...]
    places: Sequence[int] = field(repr=False)
    seen: int  # intact records, duplicate keys included
    damaged: Sequence[DamagedLine]

    def __len__(self) -> int:
        return len(self.places)

    def iterate_lines(self) -> Iterator[IntactLine]:
        """The lines to keep. The files must not have been cut since they were read; they may have grown."""
        for number, places in itertools.groupby(self.places, key=lambda place: place >> (OFFSET_BITS + SIZE_BITS)):
            file = self.files[number]
            with file.open("rb") as stream:
                for place in places:
                    offset, size = place >> SIZE_BITS & ((1 << OFFSET_BITS) - 1), place & ((1 << SIZE_BITS) - 1)
                    stream.seek(offset)
                    yield IntactLine(file, 0, offset, stream.read(size))

    def iterate_records(self) -> Iterator[Record]:
        """The records to keep."""
        for line in self.iterate_lines():
            record = parse_record(line)
            if isinstance(record, DamagedLine):
                raise JournalError(
                    f"{line.file}, byte {line.offset:,}: {record.why}. It has changed since it was read: read it again"
                )
            yield record

    def list_counters(self) -> tuple[str, ...]:
        """The names of all counters of the records, sorted."""
        names: set[bytes] = set()
        for line in self.iterate_lines():
            names.update(_COUNTER.findall(line.text, len(START), line.text.index(b"}")))
        return tuple(sorted(name.decode() for name in names))


def select_best(*journals: Path | str) -> SelectedLines:
    """Choose the journal lines to keep: for each key a good record rather than a failure, else the latest."""
    files = tuple(dict.fromkeys(file for journal in journals for file in list_journal_files(journal)))
    if len(files) >= 1 << FILE_BITS:
        raise InvalidValueError(
            f"{len(files):,} files are too many, the limit is {(1 << FILE_BITS) - 1:,}: merge parts of them first"
        )
    best: dict[bytes, int] = {}
    damaged: list[DamagedLine] = []
    seen = 0
    with report_progress("records read") as count:
        for number, file in enumerate(files):
            for line in count(read_lines(file)):
                if isinstance(line, DamagedLine):
                    damaged.append(line)
                    continue
                summary = parse_summary(line)
                if isinstance(summary, DamagedLine):
                    damaged.append(summary)
                    continue
                seen += 1
                rank = _compute_rank(summary.ok, summary.started, line.check) << PLACE_BITS | _pack_location(
                    number, line
                )
                key = bytes.fromhex(summary.key)
                if rank > best.get(key, -1):
                    best[key] = rank
    places = sorted(rank & PLACE for rank in best.values())
    return SelectedLines(files, places, seen, damaged)


def write_merged(selected: SelectedLines, file: Path) -> None:
    """Write the lines to keep into one new journal file, atomically."""
    write_new_file(file, (line.text + b"\n" for line in selected.iterate_lines()), total=len(selected))


def write_records(records: Iterable[Record], file: Path) -> None:
    """Write records into one new journal file, atomically."""
    write_new_file(file, (format_line(record) for record in records))


def write_new_file(file: Path, lines: Iterable[bytes], total: int | None = None) -> None:
    """Write a new file next to its final path, and rename it when it is on the disk. Never replaces a file."""
    if file.suffix != SUFFIX:
        raise JournalError(f"{file}: the name of a journal file must end in {SUFFIX}")
    draft = make_temporary_path(file)
    written = 0
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as stream, report_progress("records written", total) as count:
            for line in count(lines):
                written += stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(draft, file)
    except FileExistsError as error:
        raise JournalError(f"{file} exists already, and journals are not overwritten. Use another name") from error
    except OSError as error:
        raise JournalError(describe_write_error(file, error, f"after {written:,} bytes")) from error
    finally:
        remove_draft(draft)


def _pack_location(number: int, line: IntactLine) -> int:
    if line.offset >> OFFSET_BITS:
        raise JournalError(f"{line.file} has more than {1 << OFFSET_BITS:,} bytes: split it between two lines")
    return (number << OFFSET_BITS | line.offset) << SIZE_BITS | len(line.text)


def _compute_rank(ok: bool, started: float, check: bytes) -> int:
    """An integer that is larger for the record to keep. Checksums decide between equal times, as in `merge_records`."""
    return (ok << 64 | _to_sortable_bits(started)) << 64 | int(check[:16], 16)


def _to_sortable_bits(moment: float) -> int:
    """64 bits in the order of floats: those of IEEE 754, with the order of negative ones reversed."""
    bits: int = struct.unpack(">Q", struct.pack(">d", moment))[0]
    return bits ^ ((1 << 64) - 1 if bits >> 63 else 1 << 63)
