"""Measure kernels: one problem, or sweeps over many problems and devices that keep every result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.bench.cluster.executor import ClusterExecutor
    from tilewright.bench.executor import Limits, WorkerConfig
    from tilewright.bench.journal import Journal, merge_records, read_journal, read_known_keys
    from tilewright.bench.local import LocalExecutor
    from tilewright.bench.measure import measure_task
    from tilewright.bench.plan import SweepPlan, parse_problem
    from tilewright.bench.record import Record, Task, TimeStats
    from tilewright.bench.report.page import write_report
    from tilewright.bench.results import SweepResult, TuneResult
    from tilewright.bench.sources import open_sources, run_query
    from tilewright.bench.sweep import SweepOptions, SweepSummary, run_plan
    from tilewright.bench.timing import TimingSettings
    from tilewright.bench.tune import compute_gains, group_times, make_tuned_table
    from tilewright.bench.versions import format_versions
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.bench.cluster.executor": ("ClusterExecutor",),
            "tilewright.bench.executor": ("Limits", "WorkerConfig"),
            "tilewright.bench.journal": ("Journal", "merge_records", "read_journal", "read_known_keys"),
            "tilewright.bench.local": ("LocalExecutor",),
            "tilewright.bench.measure": ("measure_task",),
            "tilewright.bench.plan": ("SweepPlan", "parse_problem"),
            "tilewright.bench.record": ("Record", "Task", "TimeStats"),
            "tilewright.bench.report.page": ("write_report",),
            "tilewright.bench.results": ("SweepResult", "TuneResult"),
            "tilewright.bench.sources": ("open_sources", "run_query"),
            "tilewright.bench.sweep": ("SweepOptions", "SweepSummary", "run_plan"),
            "tilewright.bench.timing": ("TimingSettings",),
            "tilewright.bench.tune": ("compute_gains", "group_times", "make_tuned_table"),
            "tilewright.bench.versions": ("format_versions",),
        },
    )

__all__ = [
    "ClusterExecutor",
    "Journal",
    "Limits",
    "LocalExecutor",
    "Record",
    "SweepOptions",
    "SweepPlan",
    "SweepResult",
    "SweepSummary",
    "Task",
    "TimeStats",
    "TimingSettings",
    "TuneResult",
    "WorkerConfig",
    "compute_gains",
    "format_versions",
    "group_times",
    "make_tuned_table",
    "measure_task",
    "merge_records",
    "open_sources",
    "parse_problem",
    "read_journal",
    "read_known_keys",
    "run_plan",
    "run_query",
    "write_report",
]
