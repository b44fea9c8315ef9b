"""Real sweeps on the emulated device: of each op a dozen kernels on a dozen problems each, verified and counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from swept_kernels import ARCH, SWEPT, Swept

from built_kernels import STORE, in_ci
from tilewright.bench.executor import Limits, WorkerConfig
from tilewright.bench.journal import merge_records, read_journal
from tilewright.bench.local import LocalExecutor
from tilewright.bench.plan import SweepPlan
from tilewright.bench.record import Record
from tilewright.bench.report.page import write_report
from tilewright.bench.sources import run_query
from tilewright.bench.sweep import SweepOptions, run_plan
from tilewright.bench.table import export_table
from tilewright.bench.versions import format_versions
from tilewright.building.store.tiers import Tiers

pytestmark = [pytest.mark.compile, pytest.mark.slow]
DEVICE = f"emulated:{ARCH}"
LEAST = 12
# CI sweeps the kernels of its list, the deep tier a dozen of each op.
CASES = [(asked, False) for asked in SWEPT] + [pytest.param(asked, True, marks=pytest.mark.deep) for asked in SWEPT]


@pytest.mark.parametrize(("asked", "whole"), CASES, ids=lambda each: each.op if isinstance(each, Swept) else None)
def test_a_sweep_of_an_op(asked: Swept, whole: bool, tmp_path: Path) -> None:
    settings = {"mode": "fast"}
    kernels = [kernel for kernel in asked.kernels() if whole or in_ci(kernel)]
    plan = SweepPlan(list(asked.problems()), kernels, {DEVICE: ARCH}, settings, format_versions(DEVICE))
    executor = LocalExecutor([(DEVICE, ARCH)] * 2, WorkerConfig(settings, Limits(seconds=300)), tiers=Tiers(STORE))
    summary = run_plan(plan, tmp_path, executor, SweepOptions(fsync="batch"))

    assert len(plan.kernels) >= (LEAST if whole else 2)
    assert plan.idle == ()
    assert summary.done == plan.count
    # Kernels refuse problems with options that they were not built for; nothing else may happen.
    assert set(summary.statuses) <= {"ok", "unsupported"}
    records = merge_records(read_journal(tmp_path).records).values()
    assert sorted(record.key for record in records) == sorted(task.key for task in plan.iterate_tasks())
    measured = Counter(record.task.kernel for record in records if record.ok)
    assert set(measured) == {kernel.slug for kernel in plan.kernels}
    assert min(measured.values()) >= LEAST
    assert executor.starts == 2  # nothing died on the way

    for record in records:
        if record.ok:
            assert (record.kind, record.times) == ("counters", None)  # the emulated device has no time
            assert record.share is not None
            assert record.share <= 1
            assert record.counters["waves"] > 0
            assert record.counters["global_write_bytes"] > 0
        else:
            assert record.message
    if asked.op == "gemm":
        _check_counts([record for record in records if record.ok])
    _check_table(tmp_path, list(records))


def _check_counts(records: Sequence[Record]) -> None:
    """What a kernel does at the least is known: it writes every element of the output, and multiplies all."""
    for record in records:
        problem = json.loads(record.task.problem)
        assert record.counters["global_write_bytes"] >= 2 * problem["m"] * problem["n"]
        assert record.counters["matrix_flops"] >= 2 * problem["m"] * problem["n"] * problem["k"]


def _check_table(folder: Path, records: Sequence[Record]) -> None:
    """The journal as a table, asked and reported: counters stay counters, and no time appears."""
    table = folder / "records.parquet"
    assert export_table(records, table) == len(records)
    good = [record for record in records if record.ok]
    answer = run_query("SELECT count(*), sum(counter_waves), count(us) FROM records WHERE kind = 'counters'", table)
    assert [tuple(map(int, row)) for row in answer.rows] == [(len(good), sum(r.counters["waves"] for r in good), 0)]
    page = folder / "page.html"
    write_report(page, records)
    assert "<html" in page.read_text() and "counters" in page.read_text()
