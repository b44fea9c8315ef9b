"""`data`: export, query, merge, import."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from bench.journalled import counted, failed, timed
from tilewright.bench.journal import Journal, read_journal
from tilewright.bench.table import read_table
from tilewright.learn.measurements import read_measurements

KERNEL = "gemm_fp16_rcr_compv4_cshuffle_intrawave_False_False_True_False_256x128x32_2x2x1_32x32x16"
BENCHMARK = {
    "name": KERNEL,
    "problem": {
        "split_k": 1, "m": 256, "n": 256, "k": 256, "dtype_a": "fp16", "dtype_b": "fp16", "dtype_c": "fp16",
        "layout_a": "RowMajor", "layout_b": "ColumnMajor", "layout_c": "RowMajor",
    },
    "perf_result": {"latency(ms)": 0.05},
}  # fmt: skip


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A journal with times, a failure that was retried, and a damaged line."""
    with Journal(tmp_path / "sweep", "w") as journal:
        for record in (failed(1), timed(1, us=5), timed(2, us=10), failed(3)):
            journal.append(record)
    with journal.file.open("ab") as stream:
        stream.write(b'{"counters":{},"to')
    return tmp_path / "sweep"


def test_export(run: Callable[..., Result], run_json: Callable[..., Any], sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    result = run("data", "export", str(sweep), "--out", str(out))
    assert result.exit_code == 0 and result.stdout == f"{out}: 3 rows from 4 records\n"
    assert result.stderr.startswith(f"damaged: {sweep / 'w.jsonl'}:5: ends after 18 bytes")
    assert {record.key for record in read_table(out)} == {timed(1).key, timed(2).key, failed(3).key}
    found = run_json("data", "export", str(sweep), "--out", str(out))
    assert (found["rows"], found["seen"], found["damaged"][0]["line"]) == (3, 4, 5)


def test_export_to_train_on(run: Callable[..., Result], sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "times.parquet"
    assert run("data", "export", str(sweep), "--out", str(out), "--as", "measurements").exit_code == 0
    table = read_measurements(out)
    assert sorted(table.status.to_list()) == ["failed", "ok", "ok"]
    with Journal(sweep, "emulated") as journal:
        journal.append(counted(4))
    result = run("data", "export", str(sweep), "--out", str(out), "--as", "measurements")
    assert result.exit_code == 2 and "has counters and no time" in result.stderr


def test_query_in_three_forms(run: Callable[..., Result], run_json: Callable[..., Any], sweep: Path) -> None:
    sql = "SELECT kernel, us, cold FROM records WHERE kind = 'time' ORDER BY us"
    text = run("data", "query", sql, str(sweep))
    assert [line.split() for line in text.stdout.splitlines()[2:]] == [
        ["kernel-1", "5", "False"],
        ["kernel-2", "10", "False"],
    ]
    assert "damaged: " in text.stderr
    rows = list(csv.reader(io.StringIO(run("data", "query", sql, str(sweep), "--csv").stdout)))
    assert rows == [["kernel", "us", "cold"], ["kernel-1", "5.0", "False"], ["kernel-2", "10.0", "False"]]
    found = run_json("data", "query", sql, str(sweep))
    assert found["columns"] == ["kernel", "us", "cold"]
    assert found["rows"][0] == {"kernel": "kernel-1", "us": 5.0, "cold": False} and len(found["damaged"]) == 1


def test_values_of_every_kind_are_json(run_json: Callable[..., Any], sweep: Path) -> None:
    values = "1.50::DECIMAL(5,2) AS d, sum(runs) AS n, DATE '2026-01-02' AS day, [1, 2] AS l, {'a': 1} AS s"
    sql = f"SELECT {values} FROM records"
    assert run_json("data", "query", sql, str(sweep))["rows"] == [
        {"d": 1.5, "n": 40, "day": "2026-01-02", "l": [1, 2], "s": {"a": 1}}
    ]


def test_queries_that_cannot_be(run: Callable[..., Result], sweep: Path) -> None:
    for arguments, what in (
        (("SELECT speed FROM records",), "DuckDB rejected the query"),
        (("SELECT 1", "--csv", "--json"), "give one of them"),
        (("SELECT 'inf'::DOUBLE AS x FROM records", "--json"), "which is not a JSON number"),
    ):
        result = run("data", "query", arguments[0], str(sweep), *arguments[1:])
        assert result.exit_code == 2 and what in result.stderr


def test_merge(run: Callable[..., Result], run_json: Callable[..., Any], sweep: Path, tmp_path: Path) -> None:
    with Journal(tmp_path / "other", "w") as journal:
        journal.append(timed(3, started=0.5))
    found = run_json("data", "merge", str(sweep), str(tmp_path / "other"), "--out", str(tmp_path / "all"))
    assert (found["records"], found["seen"], len(found["damaged"])) == (3, 5, 1)
    contents = read_journal(tmp_path / "all")
    assert sorted(record.task.kernel for record in contents.records) == ["kernel-1", "kernel-2", "kernel-3"]
    assert all(record.ok for record in contents.records) and not contents.damaged
    again = run("data", "merge", str(sweep), "--out", str(tmp_path / "all"))
    assert again.exit_code == 2 and "not overwritten" in again.stderr


def test_import(run: Callable[..., Result], run_json: Callable[..., Any], tmp_path: Path) -> None:
    file, out = tmp_path / "r.json", tmp_path / "journal"
    file.write_text(json.dumps({"kernel_results": [BENCHMARK, {**BENCHMARK, "name": "other"}]}))
    options = ("data", "import", "tile_engine", str(file), "--out", str(out), "--arch", "gfx942")
    refused = run(*options)
    assert refused.exit_code == 2
    assert "r.json, result 1: 'other' is not a name of a tile_engine kernel" in refused.stderr
    assert not out.exists()
    found = run_json(*options, "--skip")
    assert (found["records"], len(found["refused"])) == (1, 1)
    (record,) = read_journal(out).records
    assert record.times is not None and record.times.us == pytest.approx(50)
    told = run(*options, "--skip")
    assert "1 record" in told.stdout and "left out: r.json, result 1" in told.stderr


def test_what_the_commands_refuse(run: Callable[..., Result], sweep: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.touch()
    for arguments, what in (
        (("export", str(sweep), "--out", "table.csv"), "table.csv ends in '.csv'. Can be written: .parquet."),
        (("export", str(sweep), "--out", "t.parquet", "--as", "rows"), "Known: records, measurements"),
        (("export", str(sweep), "--out", "t.parquet", "--cold"), "are for --as measurements"),
        (("import", "miopen", str(file), "--out", "j"), "MIOpen solvers"),
        (("import", "conv_gfx950", str(file), "--out", "j", "--arch", "gfx942"), "option of the format"),
        (("export", str(tmp_path / "nowhere"), "--out", "t.parquet"), "does not exist"),
    ):
        result = run("data", *arguments)
        assert result.exit_code == 2 and what in result.stderr, (arguments, result.stderr)
