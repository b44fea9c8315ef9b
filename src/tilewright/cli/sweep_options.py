"""The options that `sweep` and `tune` share, and running a sweep here or on a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.cli.command import FILE, is_given, make_format_option
from tilewright.cli.measure_options import MeasureArguments, add_measure_options

if TYPE_CHECKING:
    from tilewright.bench.executor import Executor
    from tilewright.bench.plan import SweepPlan
    from tilewright.bench.quarantine import Quarantine
    from tilewright.bench.sweep import SweepOptions, SweepSummary

F = TypeVar("F", bound=Callable[..., Any])
INTERRUPTED = 130


def read_budget(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A number of measurements, or a share of them: 500, 0.1 or 10%."""
    if value is None:
        return None
    try:
        if value.endswith("%"):
            return float(value[:-1]) / 100
        return int(value) if value.isdecimal() else float(value)
    except ValueError as error:
        raise InvalidValueError(
            f"{value!r} is not a budget: give a number of measurements (500) or a share (0.1 or 10%)"
        ) from error


def add_problem_options(command: F) -> F:
    """Add the options that name problems."""
    for decorate in reversed(
        (
            click.option(
                "--problems",
                "file",
                type=FILE,
                metavar="FILE",
                help="Use the problems of a file, as `tilewright problems` lists them.",
            ),
            make_format_option(),
            click.option(
                "--problem", "texts", multiple=True, metavar="FIELD=N,…", help="Use this problem. May be repeated."
            ),
        )
    ):
        command = decorate(command)
    return command


def add_sweep_options(command: F, *, device_default: bool = True) -> F:
    """Add the options of a measurement and those of a sweep."""
    for decorate in reversed(
        (
            functools.partial(add_measure_options, device_default=device_default),
            click.option(
                "--budget",
                callback=read_budget,
                metavar="N|SHARE",
                help="Search with at most N measurements, or with a share of them (0.1 or 10%), instead of making all.",
            ),
            click.option("--retry-failed", is_flag=True, help="Measure failed tasks again."),
            click.option(
                "--quarantine",
                type=click.IntRange(0),
                default=3,
                show_default=True,
                metavar="N",
                help="Stop trying a kernel after N failures; 0 never stops.",
            ),
            click.option(
                "--fsync",
                type=click.Choice(["record", "batch", "never"]),
                default="record",
                show_default=True,
                help="When to fsync results: after each record, in batches, or never.",
            ),
            click.option(
                "--cluster",
                metavar="auto|local|ADDRESS",
                help="Run on a Ray cluster: a running one, a new one on this machine, or the one at ADDRESS.",
            ),
        )
    ):
        command = decorate(command)
    return command


@dataclass(frozen=True)
class SweepArguments:
    """The values of the sweep options, without those of `MeasureArguments`. The fields have the options' names."""

    retry_failed: bool
    quarantine: int
    fsync: str
    cluster: str | None
    budget: float | None

    def make_sweep_options(self, plan: SweepPlan, shard: str = "1/1") -> SweepOptions:
        """The options for `run_sweep`. An error if the plan has no tasks."""
        from tilewright.bench.plan import Shard
        from tilewright.bench.sweep import SweepOptions

        if not plan.count:
            raise InvalidValueError(
                "no problem matches these kernels: they differ in type, layout or another field that the kernels fix"
            )
        part = Shard.parse_text(shard)
        if self.budget is not None and part.count > 1:
            raise InvalidValueError(
                "--budget and --shard exclude each other: each round of a search depends on all results before it"
            )
        return SweepOptions(shard=part, retry_failed=self.retry_failed, quarantine=self.quarantine, fsync=self.fsync)

    @staticmethod
    def take_from(options: dict[str, Any]) -> SweepArguments:
        """Take them out of a command's options; those of `MeasureArguments` remain."""
        return SweepArguments(**{name: options.pop(name) for name in SweepArguments.__dataclass_fields__})


def run_sweep(
    plan: SweepPlan, folder: Path, asked: MeasureArguments, how: SweepArguments, part: SweepOptions
) -> SweepSummary:
    """Measure the tasks that a journal does not have yet, or those that a search on a budget chooses.

    Ctrl-C waits for running tasks and stops.
    """
    from tilewright.bench.budget import run_on_budget
    from tilewright.bench.quarantine import Quarantine
    from tilewright.bench.sweep import run_plan, stop_on_signals

    def run_part(chosen: SweepPlan) -> SweepSummary:
        kept_away = Quarantine(how.quarantine)
        executor = _make_executor(chosen, asked, kept_away, how.cluster)
        with stop_on_signals(executor) as stopping:
            return run_plan(chosen, folder, executor, part, quarantine=kept_away, stopping=stopping)

    return run_part(plan) if how.budget is None else run_on_budget(plan, folder, how.budget, run_part)


def _make_executor(plan: SweepPlan, asked: MeasureArguments, kept_away: Quarantine, cluster: str | None) -> Executor:
    if cluster is None:
        from tilewright.bench.local import LocalExecutor

        return LocalExecutor(
            asked.list_slots(plan.devices), asked.make_worker_config(), jobs=asked.jobs, refuse=kept_away.reject_task
        )
    ctx = click.get_current_context()
    for option in ("workers", "jobs"):
        if is_given(ctx, option):
            raise InvalidValueError(
                f"--{option} is for this machine only: on a cluster each node has processors for devices and builds "
                "(ray start --num-cpus N; TILEWRIGHT_JOBS for --cluster local)"
            )
    from tilewright.bench.cluster.executor import ClusterExecutor
    from tilewright.bench.cluster.session import LOCAL

    with report_task("starting a cluster" if cluster == LOCAL else "joining the cluster"):
        return ClusterExecutor(plan.devices, asked.make_worker_config(), address=cluster, quarantine=kept_away)
