"""Lines with a right checksum and a field that no record has: told with their number, and no other line suffers."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journalled import counted, failed, task, timed
from rambling_runner import CHANGES

from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.bench.gpu_model import get_gpu_model
from tilewright.bench.journal import read_journal, read_known_keys
from tilewright.bench.journal_lines import (
    DamagedLine,
    IntactLine,
    append_checksum,
    format_line,
    parse_record,
    parse_summary,
)
from tilewright.bench.journal_merge import select_best
from tilewright.bench.plan import parse_problem
from tilewright.bench.rates import Effort, compute_effort
from tilewright.bench.record import Record, Task, TimeStats, format_message
from tilewright.bench.replay import read_replay
from tilewright.bench.sources import open_sources
from tilewright.bench.table import export_table, read_table

FILE = Path("w.jsonl")
BAD = [name for name in CHANGES if name not in ("message huge",)]


def changed(record: Record, changes: dict[str, Any], times: dict[str, Any]) -> bytes:
    """The line of a record with some values replaced, and the checksum of that."""
    body = {**record.to_json(), **changes}
    if times and isinstance(body["times"], dict):
        body["times"] = {**body["times"], **times}
    return append_checksum(json.dumps(body, sort_keys=True, separators=(",", ":"))[:-1].encode())


@pytest.mark.parametrize("name", BAD)
def test_a_bad_field_is_told_at_reading_and_no_other_record_is_lost(tmp_path: Path, name: str) -> None:
    changes, times = CHANGES[name]
    bad = changed(timed(2) if times else counted(2, n=1), changes, times)
    (tmp_path / "w.jsonl").write_bytes(format_line(timed(1)) + bad + format_line(timed(3)))
    found = read_journal(tmp_path)
    assert found.records == [timed(1), timed(3)] and [each.line for each in found.damaged] == [2]
    selected = select_best(tmp_path)
    assert list(selected.iterate_records()) == [timed(1), timed(3)] and [each.line for each in selected.damaged] == [2]
    assert read_known_keys(tmp_path) == {timed(1).key, timed(3).key}


def test_an_export_leaves_a_bad_line_out_and_tells_it(tmp_path: Path) -> None:
    bad = changed(timed(2), {"took_s": "long"}, {})
    (tmp_path / "w.jsonl").write_bytes(format_line(timed(1)) + bad)
    opened = open_sources(tmp_path)
    assert export_table(opened.iterate_records(), tmp_path / "t.parquet", counters=opened.list_counters()) == 1
    assert list(read_table(tmp_path / "t.parquet")) == [timed(1)]
    assert [str(each).startswith(f"{tmp_path / 'w.jsonl'}:2: ") for each in opened.damaged] == [True]
    with pytest.raises(FileFormatError, match="took_s is 'long', must be a finite number"):
        read_replay("replay:x", tmp_path)


def test_of_a_bad_line_and_a_good_one_with_its_key_the_good_one_is_kept(tmp_path: Path) -> None:
    later = changed(timed(1, started=9.0), {"took_s": "long"}, {})
    (tmp_path / "w.jsonl").write_bytes(format_line(timed(1)) + later)
    assert list(select_best(tmp_path).iterate_records()) == [timed(1)]


_VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4)
_VALUES |= st.sampled_from(
    ["ok", "time", "none", "inf", 10**400, 1e300, 2**31, [], {}, {"a": 1}, {"é": 1}, "gpu", "\ud800"]
)


@given(st.sampled_from([timed(1), counted(2, waves=4), failed(3), timed(4, us=1e-7, started=1.5e9)]), st.data())
def test_a_summary_is_damage_where_the_record_is(record: Record, data: st.DataObject) -> None:
    body = record.to_json()
    for _ in range(data.draw(st.integers(0, 2))):
        places = [body, *(each for each in (body["task"], body["times"]) if isinstance(each, dict))]
        place = data.draw(st.sampled_from(places))
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(_VALUES)
    # A key that fits the changed task. A task that became an object with other fields has none.
    if data.draw(st.booleans()) and isinstance(body["task"], dict):
        with contextlib.suppress(InvalidValueError, TypeError):
            body["key"] = Task(**body["task"]).key
    line = IntactLine(
        FILE, 1, 0, append_checksum(json.dumps(body, sort_keys=True, separators=(",", ":"))[:-1].encode())[:-1]
    )
    whole, summary = parse_record(line), parse_summary(line)
    assert isinstance(whole, DamagedLine) == isinstance(summary, DamagedLine), (whole, summary)
    if isinstance(whole, Record) and not isinstance(summary, DamagedLine):
        assert summary == (whole.key, whole.ok, float(whole.started))


@pytest.mark.parametrize("number", [10**15, 2**53, 2**53 + 1, -(2**53) - 1, 10**17])
def test_integers_that_a_float_rounds_are_damage_in_both(number: int) -> None:
    body = timed(1).to_json() | {"error_ulps": number}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    line = IntactLine(FILE, 1, 0, append_checksum(text[:-1].encode())[:-1])
    rounded = float(number) != number or abs(number) > 2**53
    assert isinstance(parse_record(line), DamagedLine) == isinstance(parse_summary(line), DamagedLine) == rounded


@pytest.mark.parametrize("message", ['a "text" with \\ and \n', "µs and 四", "an emoji 🙂", "x" * 5000])
def test_lines_of_records_are_summarised(message: str) -> None:
    record = failed(1, message=message)
    line = IntactLine(FILE, 1, 0, format_line(record)[:-1])
    assert parse_summary(line) == (record.key, False, 1.0) and parse_record(line) == record


def test_the_usual_lines_are_summarised_without_making_records() -> None:
    """A cost, so with much room: it is five times as fast where nothing else runs."""
    lines = [
        IntactLine(FILE, 1, 0, format_line(record)[:-1]) for record in (timed(1), counted(2, waves=4), failed(3))
    ] * 100
    took = []
    for read in (parse_record, parse_summary):
        begun = time.process_time()
        for line in lines:
            read(line)
        took.append(time.process_time() - begun)
    assert took[1] < took[0] / 1.5


def test_deep_and_endless_json_with_a_right_checksum(tmp_path: Path) -> None:
    texts = [b"[" * 100_000, b'{"a":' * 100_000, b'{"counters":{' + b"9" * 5000, b"5", b'{"x":1']
    (tmp_path / "w.jsonl").write_bytes(b"".join(map(append_checksum, texts)) + format_line(timed(1)))
    found = read_journal(tmp_path)
    assert found.records == [timed(1)] and [each.line for each in found.damaged] == [1, 2, 3, 4, 5]
    assert len(select_best(tmp_path)) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"us": float("inf"), "us_max": float("inf")}, "us is inf, must be a finite number"),
        ({"us_p10": float("nan")}, "us_p10 is nan"),
        ({"runs": 1.0}, "runs is 1.0, must be an integer"),
        ({"clock_mhz": 10**400}, "clock_mhz is 1000"),
        ({"us": "10"}, "us is '10'"),
    ],
)
def test_times_check_themselves(changes: dict[str, Any], words: str) -> None:
    fields = {"us": 10.0, "us_min": 5.0, "us_max": 20.0, "us_p10": 7.0, "us_p90": 15.0, "runs": 20, "warmups": 3}
    with pytest.raises(InvalidValueError, match=words):
        TimeStats(**{**fields, **changes})


def test_a_record_holds_a_time_or_counters() -> None:
    with pytest.raises(InvalidValueError, match="not both"):
        Record(task=task(), status="ok", kind="time", times=timed().times, counters={"waves": 1})


def test_a_message_is_one_that_any_file_keeps() -> None:
    assert format_message(OSError("no such file: \udcff")) == "no such file: \\udcff"
    assert len(format_message("x" * 10_000)) == 2000


def test_problems_and_versions_that_nobody_can_read_cost_no_export(tmp_path: Path) -> None:
    deep = "[" * 100_000
    records = [timed(1, problem=deep), timed(2, op="unheard_of"), timed(3, versions=deep), timed(4)]
    assert compute_effort("gemm", deep) == Effort(None, None) and get_gpu_model(deep) is None
    assert export_table(records, tmp_path / "t.parquet") == 4
    assert list(read_table(tmp_path / "t.parquet")) == records
    for text in (deep, "5", '{"m":"x"}', "{}", '{"m":1e999}'):
        with pytest.raises(InvalidValueError):
            parse_problem("gemm", text)
