"""Whatever is done to the bytes of journals: no intact record is lost, and every damaged line is told."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from journalled import counted, failed, timed

from tilewright.bench.journal import Journal, list_journal_files, read_journal
from tilewright.bench.journal_lines import DamagedLine, format_line, parse_record, read_lines
from tilewright.bench.record import Record

WORKERS = ("a", "b", "c")
# Longer than a record of these tests, so short that joined lines are read in pieces.
SHORT = 2048

RECORDS = st.one_of(
    st.builds(timed, st.integers(0, 9), us=st.floats(0.5, 1e6)),
    st.builds(lambda n, waves: counted(n, waves=waves), st.integers(0, 9), st.integers(0, 2**40)),
    st.builds(lambda n, text: failed(n, message=text), st.integers(0, 9), st.text(max_size=40)),
)
APPEND = st.tuples(st.just("append"), st.sampled_from(WORKERS), RECORDS)
TORN = st.tuples(st.just("torn"), st.sampled_from(WORKERS), RECORDS, st.floats(0, 1))
DAMAGE = st.tuples(st.just("damage"), st.sampled_from(WORKERS), st.floats(0, 1), st.integers(1, 255))
NEWLINE = st.tuples(st.just("newline"), st.sampled_from(WORKERS), st.floats(0, 1))
JOIN = st.tuples(st.just("join"), st.sampled_from(WORKERS), st.sampled_from(WORKERS))


@dataclass
class Files:
    """Journals, and beside them what was written where: who is intact is known without any checksum."""

    folder: Path
    written: dict[str, list[tuple[int, bytes, Record]]] = field(default_factory=lambda: {name: [] for name in WORKERS})

    def path(self, worker: str) -> Path:
        return self.folder / f"{worker}.jsonl"

    def data(self, worker: str) -> bytes:
        return self.path(worker).read_bytes() if self.path(worker).exists() else b""

    def append(self, worker: str, record: Record) -> None:
        with Journal(self.folder, worker, fsync="never") as journal:
            journal.append(record)
        body = format_line(record)[:-1]
        self.written[worker].append((len(self.data(worker)) - len(body) - 1, body, record))

    def torn(self, worker: str, record: Record, share: float) -> None:
        """A writer dies after some bytes of a line; with all but the last one the record is there."""
        body = format_line(record)[:-1]
        before = self.data(worker)
        if before and not before.endswith(b"\n"):
            before += b"\n"
        self.written[worker].append((len(before), body, record))
        self.path(worker).write_bytes(before + body[: round(share * len(body))])

    def damage(self, worker: str, share: float, change: int) -> None:
        if data := bytearray(self.data(worker)):
            data[round(share * (len(data) - 1))] ^= change
            self.path(worker).write_bytes(data)

    def newline(self, worker: str, share: float) -> None:
        """The end of some line is lost: two records in one line."""
        data = self.data(worker)
        if ends := [i for i, byte in enumerate(data) if byte == ord("\n")]:
            place = ends[round(share * (len(ends) - 1))]
            self.path(worker).write_bytes(data[:place] + b" " + data[place + 1 :])

    def join(self, worker: str, other: str) -> None:
        """`cat`: the second file behind the first, whatever the first ends with."""
        if worker == other:
            return
        first, second = self.data(worker), self.data(other)
        self.written[worker] += [(len(first) + start, *rest) for start, *rest in self.written.pop(other)]
        self.written[other] = []
        self.path(worker).write_bytes(first + second)
        self.path(other).unlink(missing_ok=True)

    def intact(self, worker: str) -> list[tuple[int, int, Record]]:
        data = self.data(worker)
        # By place: after a tear of no bytes, the same record may be written at the same place again.
        spans = {(at, at + len(body)): record for at, body, record in self.written[worker] if data.startswith(body, at)}
        return [(*span, record) for span, record in sorted(spans.items(), key=lambda item: item[0])]

    def damaged_lines(self, worker: str) -> list[int]:
        """Lines, from 1, that are neither blank nor exactly one intact record."""
        whole = {(start, end) for start, end, _ in self.intact(worker)}
        found, start = [], 0
        for number, line in enumerate(self.data(worker).split(b"\n"), 1):
            if line.strip() and (start, start + len(line)) not in whole:
                found.append(number)
            start += len(line) + 1
        return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(APPEND, APPEND, TORN, DAMAGE, NEWLINE, JOIN), max_size=20))
@example([("torn", "a", timed(1), 0.5), ("append", "b", timed(2)), ("join", "a", "b")])
@example([("append", "a", timed(1)), ("append", "a", timed(2)), ("newline", "a", 0.0)])
@example([("torn", "a", timed(1), 1.0), ("torn", "b", timed(2), 1.0), ("join", "a", "b"), ("append", "a", timed(3))])
@example([("torn", "a", timed(1), 0.0), ("append", "a", timed(1))])
@example([("torn", "a", failed(1), 0.9), ("append", "b", failed(2)), ("join", "a", "b"), ("newline", "a", 0.0)])
def test_nothing_intact_is_lost_and_all_damage_is_told(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        for name, *arguments in steps:
            getattr(files, name)(*arguments)
        expected = [record for worker in WORKERS for *_, record in files.intact(worker)]
        told = [(files.path(worker), number) for worker in WORKERS for number in files.damaged_lines(worker)]
        found = read_journal(folder)
        assert found.records == expected
        assert [(damage.file, damage.line) for damage in found.damaged] == told
        _same_in_pieces(Path(folder), expected, told)


def _same_in_pieces(folder: Path, expected: list[Record], told: list[tuple[Path, int]]) -> None:
    found = [each for file in list_journal_files(folder) for each in read_lines(file, longest=SHORT)]
    assert [parse_record(line) for line in found if not isinstance(line, DamagedLine)] == expected
    assert [(damage.file, damage.line) for damage in found if isinstance(damage, DamagedLine)] == told


def test_a_hole_of_zeros_before_a_record(tmp_path: Path) -> None:
    """What some file systems leave after a crash: megabytes without an end of line."""
    line = format_line(timed(1))
    (tmp_path / "w.jsonl").write_bytes(line + b"\0" * (1 << 20) + format_line(timed(2)) + format_line(timed(3)))
    found = list(read_lines(tmp_path / "w.jsonl", longest=1 << 16))
    assert [parse_record(each) for each in found if not isinstance(each, DamagedLine)] == [timed(1), timed(2), timed(3)]
    (damage,) = (each for each in found if isinstance(each, DamagedLine))
    assert damage.line == 2 and "longer than 65,536 bytes" in damage.why
    assert all(
        (tmp_path / "w.jsonl").read_bytes()[each.offset :].startswith(each.text)
        for each in found
        if not isinstance(each, DamagedLine)
    )
