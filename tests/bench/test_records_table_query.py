"""SQL over records, from tables and from journals with damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from journalled import counted, failed, timed

from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.bench.journal import Journal
from tilewright.bench.sources import run_query
from tilewright.bench.table import export_table

RECORDS = [timed(1, us=5), timed(2, us=10), failed(3), counted(4, waves=7)]


@pytest.mark.parametrize("quote", ["", "it's "])
def test_a_table_and_a_journal_answer_the_same(tmp_path: Path, quote: str) -> None:
    table = tmp_path / f"{quote}t.parquet"
    export_table(RECORDS, table)
    with Journal(tmp_path / "sweep", "w") as journal:
        for record in (failed(1), *RECORDS):
            journal.append(record)
    with journal.file.open("ab") as stream:
        stream.write(b"torn")
    sql = "SELECT kind, count(*) AS n, min(us) AS us, max(counter_waves) FROM records GROUP BY kind ORDER BY kind"
    expected = [("counters", 1, None, 7), ("none", 1, None, None), ("time", 2, 5.0, None)]
    answer = run_query(sql, table)
    assert (answer.columns[:3], answer.rows, answer.damaged) == (["kind", "n", "us"], expected, ())
    other = run_query(sql, tmp_path / "sweep")
    assert other.rows == expected and [damage.line for damage in other.damaged] == [6]


def test_fields_of_problems(tmp_path: Path) -> None:
    export_table(RECORDS, tmp_path / "t.parquet")
    sql = "SELECT DISTINCT (problem->>'m')::INT, problem->>'layout' FROM records"
    assert run_query(sql, tmp_path / "t.parquet").rows == [(256, "rcr")]


def test_errors_of_the_query_are_told(tmp_path: Path) -> None:
    export_table(RECORDS, tmp_path / "t.parquet")
    with pytest.raises(InvalidValueError, match=r"DuckDB rejected the query.*speed"):
        run_query("SELECT speed FROM records", tmp_path / "t.parquet")


def test_a_table_of_something_else(tmp_path: Path) -> None:
    from tilewright.learn.from_records import to_measurements
    from tilewright.learn.measurements import write_measurements

    write_measurements(tmp_path / "t.parquet", to_measurements([timed(1)]))
    with pytest.raises(FileFormatError, match="not a table of records"):
        run_query("SELECT 1", tmp_path / "t.parquet")
