"""Merging journals line by line gives what merging their records gives, in little memory."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journalled import counted, failed, timed

from tilewright.base.errors import InvalidValueError, JournalError
from tilewright.bench.journal import Journal, merge_records, read_journal
from tilewright.bench.journal_merge import _to_sortable_bits, select_best, write_merged, write_records
from tilewright.bench.record import Record
from tilewright.bench.sources import open_sources
from tilewright.bench.table import export_table


def many(seed: int, count: int) -> list[Record]:
    """Records of few keys: failures, repeats, twins of one moment, moments before 1970."""
    draw = random.Random(seed)
    makers = (
        lambda n, when: timed(n, us=draw.choice([5.0, 6.0]), started=when),
        lambda n, when: failed(n, draw.choice(["crashed", "timeout"]), started=when),
    )
    return [draw.choice(makers)(draw.randrange(20), draw.choice([-1.5, 0.0, 1.0, 1.0, 2.5, 1e9])) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_lines_are_merged_as_records_are(tmp_path: Path, seed: int) -> None:
    records = many(seed, 200)
    for i, worker in enumerate("abc"):
        write_records(records[i::3], tmp_path / f"{worker}.jsonl")
    selected = select_best(tmp_path)
    assert {record.key: record for record in selected.iterate_records()} == merge_records(records)
    assert selected.seen == 200 and len(selected) == len(merge_records(records)) and not selected.damaged


def test_the_order_of_journals_does_not_matter(tmp_path: Path) -> None:
    files = [tmp_path / name / "w.jsonl" for name in "abc"]
    for seed, file in enumerate(files):
        write_records(many(seed, 50), file)
    one, other = ({str(record) for record in select_best(*order).iterate_records()} for order in (files, files[::-1]))
    assert one == other


def test_a_merged_journal_has_the_very_lines(tmp_path: Path) -> None:
    with Journal(tmp_path / "a", "w") as journal:
        for record in (failed(1), timed(1), counted(2)):
            journal.append(record)
    lines = journal.file.read_bytes().splitlines(keepends=True)
    journal.file.write_bytes(b"rubbish " + lines[0] + lines[1] + lines[2].removesuffix(b"\n"))
    selected = select_best(tmp_path / "a", tmp_path / "a" / "w.jsonl")
    assert (selected.seen, len(selected.damaged)) == (3, 1)
    write_merged(selected, tmp_path / "all" / "merged.jsonl")
    assert (tmp_path / "all" / "merged.jsonl").read_bytes() == lines[1] + lines[2]
    assert not read_journal(tmp_path / "all").damaged


def test_a_journal_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "merged.jsonl"
    write_records([timed(1)], file)
    with pytest.raises(JournalError, match="not overwritten"):
        write_records([timed(2)], file)
    with pytest.raises(JournalError, match=r"must end in \.jsonl"):
        write_records([timed(2)], tmp_path / "merged.json")
    assert read_journal(tmp_path).records == [timed(1)] and [p.name for p in tmp_path.iterdir()] == ["merged.jsonl"]


def test_names_of_counters(tmp_path: Path) -> None:
    write_records([counted(1, waves=1, valu=2), timed(2), counted(3, **{"lds.read": 4})], tmp_path / "w.jsonl")
    assert select_best(tmp_path).list_counters() == ("lds.read", "valu", "waves")


def test_memory_does_not_grow_with_records_but_with_keys(tmp_path: Path) -> None:
    records = [timed(n, started=float(again)) for again in range(3) for n in range(1000)]
    write_records(records, tmp_path / "w.jsonl")
    tracemalloc.start()
    selected = select_best(tmp_path)
    for _ in selected.iterate_records():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(selected) == 1000
    # A key, its rank and its place in a dictionary; beside them a read buffer.
    assert peak < 400 * 1000 + 300_000


def test_journals_and_tables_together(tmp_path: Path) -> None:
    export_table([timed(1, started=5), failed(2), counted(4)], tmp_path / "old.parquet")
    write_records([timed(1, us=7, started=6), timed(2)], tmp_path / "new" / "w.jsonl")
    opened = open_sources(tmp_path / "old.parquet", tmp_path / "new")
    folder = opened.selected.files[0].parent
    expected = [timed(1, us=7, started=6), timed(2), counted(4)]
    assert {r.key: r for r in opened.iterate_records()} == {r.key: r for r in expected}
    assert (opened.seen, len(opened), opened.list_counters()) == (5, 3, ("waves",))
    assert folder.exists()
    del opened
    assert not folder.exists()
    with pytest.raises(InvalidValueError, match="at least one"):
        open_sources()


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_moments_keep_their_order_as_bits(one: float, other: float) -> None:
    if one != other:
        assert (_to_sortable_bits(one) < _to_sortable_bits(other)) == (one < other)
