"""Times are read from tables of measurements, tables of records and journals, and are the same whatever held them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.base.events import Event, Notice, add_listener
from tilewright.bench.journal import Journal
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.bench.table import export_table
from tilewright.learn.measurements import write_measurements
from tilewright.learn.read_times import read_times
from tilewright.ops import find_op
from tilewright.ops.problem_values import dump_problem

KERNELS = list(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"))[:3]


def records() -> list[Record]:
    made = []
    for number, (kernel, m) in enumerate((kernel, m) for kernel in KERNELS for m in (256, 512, 768)):
        text = dump_problem(tw.gemm.Problem(m=m, n=4096, k=512, dtype="fp16", layout="rcr"))
        task = Task(op="gemm", arch="gfx942", kernel=kernel.slug, problem=text, device="gpu:0")
        us = 10.0 + number
        times = TimeStats(us=us, us_min=us - 1, us_max=us + 1, us_p10=us, us_p90=us, runs=20, warmups=3)
        made.append(Record(task=task, status="ok", kind="time", times=times))
    made[4] = Record(task=made[4].task, status="timeout", message="took longer than 5 s")
    return made


def journal_of(folder: Path, rows: list[Record]) -> Path:
    with Journal(folder, "worker", fsync="never") as journal:
        for row in rows:
            journal.append(row)
    return folder


def test_the_order_of_a_journal_does_not_matter(tmp_path: Path) -> None:
    mixed = records()
    random.Random(1).shuffle(mixed)
    table = read_times(journal_of(tmp_path / "one", records()))
    assert (len(table), table.status.values) == (9, ("ok", "timeout"))
    assert read_times(journal_of(tmp_path / "other", mixed)).digest == table.digest


def test_tables_of_both_kinds_are_told_apart(tmp_path: Path) -> None:
    export_table(records(), tmp_path / "records.parquet")
    table = read_times(tmp_path / "records.parquet")
    write_measurements(tmp_path / "measurements.parquet", table)
    assert read_times(tmp_path / "measurements.parquet").digest == table.digest
    (tmp_path / "neither.parquet").write_text("nothing")
    with pytest.raises(FileFormatError, match="is not a Parquet file"):
        read_times(tmp_path / "neither.parquet")
    with pytest.raises(FileFormatError, match="does not exist"):
        read_times(tmp_path / "nowhere.parquet")


def test_damaged_lines_are_told(tmp_path: Path) -> None:
    folder = journal_of(tmp_path / "journal", records())
    (file,) = folder.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"10.0", b"11.0", 1))
    told: list[Event] = []
    with add_listener(told.append):
        assert len(read_times(folder)) == 8
    assert [event.message.split(":")[0] for event in told if isinstance(event, Notice)] == ["skipped"]


def test_counters_teach_nothing_about_time(tmp_path: Path) -> None:
    task = Task(op="gemm", arch="gfx942", kernel=KERNELS[0].slug, problem="{}", device="emulated:gfx942")
    counted = Record(task=task, status="ok", kind="counters", counters={"cache_lines": 3})
    with pytest.raises(InvalidValueError, match="counters and no time"):
        read_times(journal_of(tmp_path / "journal", [counted]))
