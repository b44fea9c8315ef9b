"""The options that `sweep` and `tune` share, and running a sweep here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import task
from tilewright.cli.command import Option
from tilewright.cli.measuring import FILE, Measuring, measuring_options

if TYPE_CHECKING:
    from tilewright.bench.executor import Executor
    from tilewright.bench.plan import Plan
    from tilewright.bench.quarantine import Quarantine
    from tilewright.bench.sweep import How, Summary

F = TypeVar("F", bound=Callable[..., Any])
INTERRUPTED = 130


def problem_options(command: F) -> F:
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
            click.option(
                "--format",
                "file_format",
                cls=Option,
                metavar="NAME",
                show_default="the suffix",
                help="Format of the file of --problems.",
            ),
            click.option(
                "--problem", "texts", multiple=True, metavar="FIELD=N,…", help="Use this problem. May be repeated."
            ),
        )
    ):
        command = decorate(command)
    return command


def sweeping_options(command: F) -> F:
    """Add the options of a measurement and those of a sweep."""
    for decorate in reversed(
        (
            measuring_options,
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
class Sweeping:
    """The values of the sweep options, without those of `MeasureArguments`. The fields have the options' names."""

    retry_failed: bool
    quarantine: int
    fsync: str
    cluster: str | None

    def part(self, plan: Plan, shard: str = "1/1") -> How:
        """The options for `run_sweep`. An error if the plan has no tasks."""
        from tilewright.bench.plan import Shard
        from tilewright.bench.sweep import How

        if not plan.count:
            raise InvalidValueError(
                "no problem matches these kernels: they differ in type, layout or another field that the kernels fix"
            )
        part = Shard.of_text(shard)
        return How(shard=part, retry_failed=self.retry_failed, quarantine=self.quarantine, fsync=self.fsync)

    @staticmethod
    def taken_from(options: dict[str, Any]) -> Sweeping:
        """Take them out of a command's options; those of `MeasureArguments` remain."""
        return Sweeping(**{name: options.pop(name) for name in Sweeping.__dataclass_fields__})


def swept(plan: Plan, folder: Path, asked: Measuring, how: Sweeping, part: How) -> Summary:
    """Measure the tasks that a journal does not have yet. Ctrl-C waits for running tasks and stops."""
    from tilewright.bench.quarantine import Quarantine
    from tilewright.bench.stopping import stopped_by_signals
    from tilewright.bench.sweep import sweep

    kept_away = Quarantine(how.quarantine)
    executor = _executor(plan, asked, kept_away, how.cluster)
    with stopped_by_signals(executor) as stopping:
        return sweep(plan, folder, executor, part, quarantine=kept_away, stopping=stopping)


def _executor(plan: Plan, asked: Measuring, kept_away: Quarantine, cluster: str | None) -> Executor:
    if cluster is None:
        from tilewright.bench.local import LocalExecutor

        return LocalExecutor(asked.seats(plan.devices), asked.crew(), jobs=asked.jobs, refuse=kept_away.refused)
    for option, given in (("--workers", asked.workers), ("--jobs", asked.jobs)):
        if given is not None:
            raise InvalidValueError(
                f"{option} is for this machine only: on a cluster each node has processors for devices and builds "
                "(ray start --num-cpus N; TILEWRIGHT_JOBS for --cluster local)"
            )
    from tilewright.bench.cluster.executor import ClusterExecutor
    from tilewright.bench.cluster.session import LOCAL

    with task("starting a cluster" if cluster == LOCAL else "joining the cluster"):
        return ClusterExecutor(plan.devices, asked.crew(), address=cluster, quarantine=kept_away)
