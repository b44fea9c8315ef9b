"""Records as Parquet: everything comes back, rates are right, and counters are never taken for time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journalled import PROBLEM, counted, failed, task, timed

import tilewright as tw
from tilewright.base.errors import FileFormatError, InvalidValueError, JournalError
from tilewright.bench.rates import compute_effort, compute_rates
from tilewright.bench.record import STATUSES, Record, TimeStats
from tilewright.bench.table import COLUMNS, RECORDS, ROWS, SCHEMA_KEY, export_table, read_table
from tilewright.ops.problem_values import dump_problem

MIXED = [timed(1), timed(2, cold=True), counted(3, waves=4, valu=9), counted(4, waves=5), failed(5, "wrong")]


def row(path: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = pq.read_table(path).to_pylist()[number]
    return found


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    assert export_table(MIXED, path) == 5
    assert list(read_table(path)) == MIXED
    assert [each.name for each in tmp_path.iterdir()] == ["records.parquet"]


numbers = st.floats(1e-3, 1e9)
records = st.builds(
    lambda number, status, text, us, clock: (
        Record(
            task=task(number, versions=text),
            status="ok",
            kind="time",
            times=TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=1, warmups=0, clock_mhz=clock),
        )
        if status == "ok"
        else failed(number, status, message=text)
    ),
    st.integers(0, 99),
    st.sampled_from(STATUSES),
    st.text(),
    numbers,
    st.none() | numbers,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(records, max_size=8))
def test_any_records_come_back(tmp_path_factory: pytest.TempPathFactory, listed: list[Record]) -> None:
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    export_table(listed, path)
    assert list(read_table(path)) == listed


def test_many_records_are_few_groups_of_rows(tmp_path: Path) -> None:
    """More records than are in memory at once, and one group of rows: small groups are slow to ask."""
    path = tmp_path / "t.parquet"
    many = [timed(n, us=1.0 + n) for n in range(RECORDS + 1)]
    assert export_table(iter(many), path, counters=[]) == len(many)
    assert pq.ParquetFile(path).num_row_groups == 1 and len(many) < ROWS
    assert list(read_table(path)) == many


def test_columns_say_what_a_row_holds(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    export_table(MIXED, path)
    schema = pq.read_schema(path)
    assert schema.names == [*COLUMNS, "counter_valu", "counter_waves"]
    assert schema.metadata[SCHEMA_KEY.encode()] == b"1"
    time, counters, failure = row(path, 0), row(path, 2), row(path, 4)
    assert (time["kind"], time["us"], time["counter_waves"]) == ("time", 10.0, None)
    assert (counters["kind"], counters["counter_waves"], counters["counter_valu"]) == ("counters", 4, 9)
    assert (failure["kind"], failure["status"], failure["message"]) == ("none", "wrong", "signal 11")
    assert row(path, 3)["counter_valu"] is None
    for name in ("us", "us_min", "us_max", "us_p10", "us_p90", "runs", "tflops", "gbs"):
        assert time[name] is not None and counters[name] is None and failure[name] is None
    assert row(path, 1)["cold"] is True and time["cold"] is False


def test_rates_follow_from_the_problem(tmp_path: Path) -> None:
    export_table([timed(us=10), counted(waves=1)], tmp_path / "t.parquet")
    flops, moved = 2 * 256 * 512 * 1024, 2 * (256 * 1024 + 1024 * 512 + 256 * 512)
    found = row(tmp_path / "t.parquet", 0)
    assert (found["flops"], found["bytes_moved"]) == (flops, moved)
    assert found["tflops"] == pytest.approx(flops / 10e-6 / 1e12, rel=1e-12)
    assert found["gbs"] == pytest.approx(moved / 10e-6 / 1e9, rel=1e-12)
    # Where there is no time, what the problem computes and moves is known all the same.
    assert row(tmp_path / "t.parquet", 1)["flops"] == flops
    assert compute_rates(task(), 20.0).tflops == pytest.approx(found["tflops"] / 2)


def test_an_op_that_does_not_tell_its_traffic_moves_each_tensor_once() -> None:
    problem = tw.fmha.Problem(
        family="forward", mode="batch", dtype="fp16", batch=2, heads=4, kv_heads=2, seqlen_q=64, seqlen_k=128,
        hdim_q=32, hdim_v=32,
    )  # fmt: skip
    found = compute_effort("fmha", dump_problem(problem))
    query, key, value, out = 2 * 4 * 64 * 32, 2 * 2 * 128 * 32, 2 * 2 * 128 * 32, 2 * 4 * 64 * 32
    assert (found.flops, found.bytes_moved) == (problem.flops, 2 * (query + key + value + out))


def test_counters_must_be_announced(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="'waves' is not in `counters`: valu"):
        export_table(iter([counted(waves=1)]), tmp_path / "t.parquet", counters=["valu"])
    assert list(tmp_path.iterdir()) == []
    assert (
        export_table(iter([]), tmp_path / "t.parquet", counters=[]) == 0
        and list(read_table(tmp_path / "t.parquet")) == []
    )


def test_a_table_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    export_table(MIXED, path)
    before = path.read_bytes()

    def broken() -> Any:
        yield timed(1)
        raise RuntimeError("the source fails")

    with pytest.raises(RuntimeError, match="the source fails"):
        export_table(broken(), path, counters=[])
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(JournalError, match="cannot be written after 0 rows"):
        export_table(MIXED, tmp_path / "nowhere" / "t.parquet")


def _changed(path: Path, change: Any) -> None:
    pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda t: t.replace_schema_metadata({}), "not a table of records"),
        (lambda t: t.replace_schema_metadata({SCHEMA_KEY: "2"}), "schema '2'.* reads '1'"),
        (lambda t: t.drop_columns(["status"]), "column status: is missing"),
        (lambda t: t.append_column("speed", pa.array([1] * 5)), "column speed: is unknown"),
        (lambda t: t.set_column(0, "key", pa.array([1] * 5)), "column key: holds int64, must hold string"),
        (lambda t: t.set_column(0, pa.field("key", "string", False), pa.array(["00"] * 5)), "row 0.*its key is 00"),
    ],
)
def test_a_table_that_cannot_be(tmp_path: Path, change: Any, what: str) -> None:
    path = tmp_path / "t.parquet"
    export_table(MIXED, path)
    _changed(path, change)
    with pytest.raises(FileFormatError, match=f"(?s){what}"):
        list(read_table(path))


def test_a_row_with_counters_and_a_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    export_table([counted(1)], path)
    place = list(COLUMNS).index("us")
    _changed(path, lambda t: t.set_column(place, pa.field("us", "double", True), pa.array([1.0])))
    with pytest.raises(FileFormatError, match="row 0: is not a record"):
        list(read_table(path))


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="does not exist"):
        list(read_table(tmp_path / "t.parquet"))
    (tmp_path / "t.parquet").write_text("nothing")
    with pytest.raises(FileFormatError, match="is not a Parquet file"):
        list(read_table(tmp_path / "t.parquet"))


def test_the_problem_of_these_tests() -> None:
    assert compute_effort("gemm", PROBLEM).flops == 2 * 256 * 512 * 1024
