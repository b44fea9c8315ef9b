"""What a build tells while it runs: the order, the time that is left, what runs now, and the trace."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from engine import build, heard, scale

from tilewright.base import events
from tilewright.building.build_progress import Span, build_trace
from tilewright.building.compile_costs import costs_file, read_costs, record_cost
from tilewright.building.graph import DEVICE, HOST, LINK
from tilewright.building.store.local import Store

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]


def _working(listed: list[events.Event]) -> list[events.Working]:
    return [event for event in listed if isinstance(event, events.Working)]


def test_the_longest_begin_first(shared_store: Path) -> None:
    store = Store(shared_store)
    build(shared_store, [2000])
    for factor, cost in ((2001, 0.1), (2002, 0.9), (2003, 0.3), (2004, 0.6)):
        record_cost(store, scale(factor), cost)
    built = build(shared_store, [2001, 2002, 2003, 2004], jobs=1)
    began = [built.units[span.key].kernel for span in built.spans if span.step == DEVICE]
    assert began == [scale(factor) for factor in (2002, 2004, 2003, 2001)]


def test_the_time_left_is_told_and_runs_down(tmp_path: Path, shared_store: Path, warm: Callable[[Path], Path]) -> None:
    factors = range(2010, 2018)
    build(shared_store, [2009])
    with heard() as listed:
        built = build(shared_store, factors, jobs=2)
    told = [event.left_s for event in _working(listed)]
    assert all(left is not None and math.isfinite(left) and left >= 0 for left in told)
    numbers = [left for left in told if left is not None]
    third = len(numbers) // 3
    first, last = sum(numbers[:third]) / third, sum(numbers[-third:]) / third
    assert last < first
    assert numbers[-1] < 0.3 * max(numbers)
    # The first guess is right to a factor; machines are busy.
    assert numbers[0] < 10 * built.wall_s
    with heard() as listed:
        build(warm(tmp_path / "without-record"), [2009])
    assert _working(listed)[0].left_s is None


def test_what_runs_now_really_runs(shared_store: Path) -> None:
    kernels = {scale(factor).slug for factor in range(2020, 2026)}
    with heard() as listed:
        built = build(shared_store, range(2020, 2026), jobs=2)
    seen = [event.on for event in _working(listed)]
    assert {slug for on in seen for slug in on} == kernels
    assert max(len(on) for on in seen) <= 3  # two are compiled, one is linked
    assert seen[-1] == ()
    done: set[str] = set()
    for event in listed:
        if isinstance(event, events.Advanced) and event.task == "build":
            done.add(event.detail)
        if isinstance(event, events.Working):
            assert not done & set(event.on)
    assert done == kernels
    assert built.compiled == len(kernels)


def test_the_trace_of_a_real_build(shared_store: Path) -> None:
    built = build(shared_store, range(2030, 2036), jobs=2)
    trace = json.loads(json.dumps(build_trace(built.spans, built.units)))
    rows: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    steps: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            continue
        assert event["ph"] == "X"
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        span = (event["ts"], event["ts"] + event["dur"])
        rows[event["tid"]].append(span)
        steps[event["args"]["key"]][event["cat"]] = span
        assert span[1] <= built.wall_s * 1e6
    for spans in rows.values():
        ordered = sorted(spans)
        assert all(one[1] <= other[0] for one, other in pairwise(ordered))
    assert len(rows) <= 3  # two compile, one links
    assert len(steps) == 6
    for of_kernel in steps.values():
        assert set(of_kernel) == {DEVICE, HOST, LINK}
        assert of_kernel[LINK][0] >= max(of_kernel[DEVICE][1], of_kernel[HOST][1])
    named = {event["tid"] for event in trace["traceEvents"] if event["ph"] == "M" and event["name"] == "thread_name"}
    assert named == set(rows)
    # A library is linked as soon as it can be, not after all are compiled.
    links = sorted(of_kernel[LINK][0] for of_kernel in steps.values())
    assert links[0] < max(of_kernel[DEVICE][0] for of_kernel in steps.values())


def test_rows_of_a_trace_never_overlap_by_rounding(shared_store: Path) -> None:
    unit = next(iter(build(shared_store, [2000]).units.values()))
    ends = [0.0, 0.6e-6, 1.2e-6, 2.7e-6, 3.1e-6]
    spans = [Span(unit.key, DEVICE, one, other, 0) for one, other in pairwise(ends)]
    steps = [event for event in build_trace(spans, {unit.key: unit})["traceEvents"] if event["ph"] == "X"]
    for one, other in pairwise(steps):
        assert one["ts"] + one["dur"] <= other["ts"]


def test_a_record_that_is_rubbish_costs_only_the_guess(shared_store: Path) -> None:
    build(shared_store, [2000])
    with costs_file(Store(shared_store)).open("ab") as record:
        record.write(b'\xff\x00{"slug": 1}\n[]\nnull\n{"slug":"a","kind":"b","cpu_s":"x"}\n{"slug":"cut o')
    assert read_costs(Store(shared_store)).by_slug[scale(2000).slug] > 0
    assert build(shared_store, [2040]).failures == {}
