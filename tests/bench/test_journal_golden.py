"""The bytes of a journal's lines: files of years ago must be read, and equal records must have equal lines."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from journalled import counted, failed, task, timed

from tilewright.bench.journal import Journal, read_journal
from tilewright.bench.journal_lines import format_line
from tilewright.bench.journal_merge import select_best, write_merged
from tilewright.bench.record import Record
from tilewright.bench.table import export_table, read_table

SMALL = {"kernel": "k", "problem": '{"m":1}'}
LINES = {
    "time": (
        timed(**SMALL),
        '{"counters":{},"error_ulps":null,"key":"f3acf5b50a5a9166083a300fdf1e1cfa","kind":"time","message":"","schema":1,"share":0.25,'
        '"started":1.0,"status":"ok","task":{"arch":"gfx942","cold":false,"device":"gpu:0","kernel":"k","op":"gemm",'
        '"problem":"{\\"m\\":1}","versions":"tests 1"},"times":{"clock_mhz":null,"power_w":null,"runs":20,"us":10.0,'
        '"us_max":20.0,"us_min":5.0,"us_p10":7.5,"us_p90":15.0,"warmups":3},"took_s":0.0,"worker":"w",'
        '"check":"ce86c7ca6e0d41a98d0e32847460b5f4"}\n',
    ),
    "counters": (
        Record(
            task=task(device="emulated:gfx942", **SMALL), status="ok", kind="counters", counters={"w": 4, "valu": 9}
        ),
        '{"counters":{"valu":9,"w":4},"error_ulps":null,"key":"0d54404a1485d01e75a321a052fd9c5e","kind":"counters","message":"","schema":1,'
        '"share":null,"started":0.0,"status":"ok","task":{"arch":"gfx942","cold":false,"device":"emulated:gfx942",'
        '"kernel":"k","op":"gemm","problem":"{\\"m\\":1}","versions":"tests 1"},"times":null,"took_s":0.0,"worker":"",'
        '"check":"e0f2687f5f1815eef8a54e1ed8b60264"}\n',
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_these_bytes(name: str) -> None:
    record, line = LINES[name]
    assert format_line(record).decode() == line


@pytest.mark.parametrize("record", [timed(1, cold=True), counted(2, waves=4), failed(3)])
def test_a_record_is_written_with_all_its_fields(record: Record) -> None:
    assert record.to_json() == {"schema": 1, "key": record.key, **dataclasses.asdict(record)}


@pytest.mark.parametrize("share", [math.inf, math.nan])
def test_an_error_without_bound_is_kept(tmp_path: Path, share: float) -> None:
    """Outputs that were never written: no number of JSON says how wrong they are."""
    record = Record(task=task(), status="wrong", message="1 of 100 was never written", share=share, error_ulps=math.inf)
    with Journal(tmp_path / "sweep", "w") as journal:
        journal.append(record)
    value = json.loads(journal.file.read_text(), parse_constant=pytest.fail)  # no Infinity, which is no JSON
    assert (value["share"], value["error_ulps"]) == (str(share), "inf")
    write_merged(select_best(tmp_path / "sweep"), tmp_path / "all" / "merged.jsonl")
    export_table([record], tmp_path / "t.parquet")
    for found in (*read_journal(tmp_path / "all").records, *read_table(tmp_path / "t.parquet")):
        assert found.share == pytest.approx(share, nan_ok=True) and found.error_ulps == math.inf


def test_a_text_that_many_records_have_is_in_memory_once(tmp_path: Path) -> None:
    records = [timed(n, us=10.0 + n) for n in range(3)]
    with Journal(tmp_path, "w") as journal:
        for record in records:
            journal.append(record)
    export_table(records, tmp_path / "t.parquet")
    found = [*read_journal(tmp_path).records, *read_table(tmp_path / "t.parquet")]
    assert len(found) == 6 and len({id(record.task.problem) for record in found}) == 1
