"""Tables of measurements: what is written is read, and what cannot be is refused with file, column and value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learn import synthetic
from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.learn.dataset import build_dataset
from tilewright.learn.measurements import COLUMNS, TextColumn, make_table, read_measurements, write_measurements


@pytest.fixture(scope="module")
def table():
    return synthetic.table(8)


def test_what_is_written_is_read(table, tmp_path: Path) -> None:
    write_measurements(tmp_path / "t.parquet", table)
    again = read_measurements(tmp_path / "t.parquet")
    assert again.digest == table.digest
    assert again.problem.to_list() == table.problem.to_list()
    np.testing.assert_array_equal(again.us, table.us)
    assert list(again.status.values) == ["failed", "ok"]


def test_the_same_table_gives_the_same_bytes(table, tmp_path: Path) -> None:
    for name in "ab":
        write_measurements(tmp_path / name, table)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_column_is_in_the_digest(table) -> None:
    seen = {table.digest}
    for name in COLUMNS:
        column = getattr(table, name)
        if isinstance(column, TextColumn):
            changed = TextColumn((*column.values[:-1], column.values[-1] + " "), column.codes)
        else:
            changed = np.where(np.arange(len(column)) == 0, 5, column).astype(column.dtype)
        seen.add(replace(table, **{name: changed}).digest)
    assert len(seen) == 1 + len(COLUMNS)


def test_a_failed_run_is_a_row_without_a_time(table) -> None:
    row = table.select_rows(table.status.codes == table.status.values.index("failed"))
    assert len(row) == 1
    assert np.isnan(row.us[0])


def _rewritten(table, path: Path, change) -> Path:
    """A file of the table whose Arrow table was changed."""
    write_measurements(path, table)
    pq.write_table(change(pq.read_table(path)), path)
    return path


CHANGES = {
    "column us: is missing": lambda t: t.drop_columns("us"),
    "column colour: is unknown. Known: op, arch": lambda t: t.append_column("colour", pa.array(["red"] * len(t))),
    "column runs: holds int64, must hold int32": lambda t: t.set_column(7, "runs", pa.array([1] * len(t), pa.int64())),
    "column kernel: is empty in 1 rows": lambda t: t.set_column(
        2, "kernel", pa.array([None, *t["kernel"].to_pylist()[1:]], pa.string())
    ),
    "column status: unknown status 'okay'. Did you mean 'ok'?": lambda t: t.set_column(
        5, "status", pa.array(["okay", *t["status"].to_pylist()[1:]])
    ),
    "column us: is -1 in row 0; it must be above zero": lambda t: t.set_column(
        4, "us", pa.array([-1.0, *t["us"].to_pylist()[1:]])
    ),
    "column us: is empty in row 0; it must be a time where status is 'ok'": lambda t: t.set_column(
        4, "us", pa.array([None, *t["us"].to_pylist()[1:]])
    ),
    "column us: is 3 in row 48; it must be empty where status is not 'ok'": lambda t: t.set_column(
        4, "us", pa.array([*t["us"].to_pylist()[:-1], 3.0])
    ),
    "column us_max: is 0.001 in row 0; it must not be below us": lambda t: t.set_column(
        9, "us_max", pa.array([0.001, *[None] * (len(t) - 1)], pa.float64())
    ),
    "column problem: '[1]' is not a JSON object": lambda t: t.set_column(
        3, "problem", pa.array(["[1]", *t["problem"].to_pylist()[1:]])
    ),
    "has schema '2', this version of Tilewright reads '1'": lambda t: t.replace_schema_metadata(
        {"tilewright.measurements": "2"}
    ),
    "it is not a table of measurements": lambda t: t.replace_schema_metadata({}),
}


@pytest.mark.parametrize("message", CHANGES)
def test_the_reader_names_file_column_and_value(table, tmp_path: Path, message: str) -> None:
    path = _rewritten(table, tmp_path / "changed.parquet", CHANGES[message])
    with pytest.raises(FileFormatError) as caught:
        read_measurements(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(table, tmp_path: Path) -> None:
    path = _rewritten(table, tmp_path / "t", lambda t: t.drop_columns(["us", "runs"]))
    with pytest.raises(FileFormatError, match="2 problems") as caught:
        read_measurements(path)
    assert {p.where for p in caught.value.problems} == {"column us", "column runs"}


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("op,arch\n")
    with pytest.raises(FileFormatError, match="is not a Parquet file"):
        read_measurements(tmp_path / "text")
    with pytest.raises(FileFormatError, match="does not exist"):
        read_measurements(tmp_path / "nothing")


def test_rows_that_cannot_be_are_no_table() -> None:
    row = synthetic.measurement(synthetic.kernels()[0], synthetic.problems(1)[0], 4.0)
    for change in ({"us": None}, {"us": float("inf")}, {"status": "failed"}, {"runs": 0}, {"us_min": 5.0}):
        with pytest.raises(InvalidValueError, match="are invalid"):
            make_table([replace(row, **change)])


def test_a_data_set_has_features_and_estimates_of_each_row(table) -> None:
    data = build_dataset(table, "gemm", synthetic.ARCH)
    assert (len(data), len(data.problems), len(data.kernels)) == (48, 8, 6)
    for row in (0, 13, 47):
        kernel, problem = data.kernels[data.kernel[row]], data.problems[data.problem[row]]
        assert data.estimate[row] == pytest.approx(synthetic.estimated_us(kernel, problem), rel=1e-12)
        assert data.us[row] == table.us[data.row[row]]
    assert data.features.shape == (48, len(data.names))
    assert data.axes == ("m", "n", "k")
    assert data.points[data.problem[0]] == pytest.approx(
        np.log2([getattr(data.problems[data.problem[0]], axis) for axis in data.axes])
    )


def test_repeats_become_their_median_or_stay(table) -> None:
    kernel, problem = synthetic.kernels()[0], synthetic.problems(1)[0]
    other = synthetic.kernels()[1]
    times = [(kernel, 9.0), (other, 2.0), (kernel, 1.0), (kernel, 4.0)]
    repeated = make_table([synthetic.measurement(k, problem, us) for k, us in times])
    data = build_dataset(repeated, "gemm", synthetic.ARCH)
    assert [(data.kernels[k], us) for k, us in zip(data.kernel, data.us, strict=True)] == [(kernel, 4.0), (other, 2.0)]
    assert data.row.tolist() == [0, 1]
    kept = build_dataset(repeated, "gemm", synthetic.ARCH, repeats="keep")
    assert kept.us.tolist() == [9.0, 2.0, 1.0, 4.0]
    with pytest.raises(InvalidValueError, match="repeats is 'mean'"):
        build_dataset(repeated, "gemm", synthetic.ARCH, repeats="mean")


def test_a_data_set_of_nothing_says_what_there_is(table) -> None:
    with pytest.raises(InvalidValueError, match="It has rows of: gemm on gfx942"):
        build_dataset(table, "gemm", "gfx950")
    with pytest.raises(InvalidValueError, match=r"kernel 'gemm-gfx942-nonsense' cannot be parsed"):
        row = synthetic.measurement(synthetic.kernels()[0], synthetic.problems(1)[0], 4.0)
        build_dataset(make_table([replace(row, kernel="gemm-gfx942-nonsense")]), "gemm", synthetic.ARCH)


def test_a_kernel_of_another_gpu_is_refused(table) -> None:
    row = synthetic.measurement(synthetic.kernels()[0], synthetic.problems(1)[0], 4.0)
    with pytest.raises(InvalidValueError, match="it is a kernel of gemm on gfx942, but its row is for gemm on gfx950"):
        build_dataset(make_table([replace(row, arch="gfx950")]), "gemm", "gfx950")
