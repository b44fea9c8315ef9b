"""What `sweep` and `tune` have in common: the options of a sweep, and carrying it out here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import task
from tilewright.cli.measuring import FILE, Measuring, measuring_options

if TYPE_CHECKING:
    from tilewright.bench.executor import Executor
    from tilewright.bench.plan import Plan
    from tilewright.bench.quarantine import Quarantine
    from tilewright.bench.sweep import How, Summary

F = TypeVar("F", bound=Callable[..., Any])
INTERRUPTED = 130


def problem_options(command: F) -> F:
    """The options that name problems."""
    for decorate in reversed(
        (
            click.option(
                "--problems", "file", type=FILE, metavar="FILE", help="The problems of a file: see `problems`."
            ),
            click.option("--format", "file_format", metavar="NAME", help="Of --problems, if its suffix does not tell."),
            click.option("--problem", "texts", multiple=True, metavar="FIELD=N,…", help="A problem; repeatable."),
        )
    ):
        command = decorate(command)
    return command


def sweeping_options(command: F) -> F:
    """The options that say where and how is measured, and how a sweep goes about it."""
    for decorate in reversed(
        (
            measuring_options,
            click.option("--retry-failed", is_flag=True, help="Measure again what failed before."),
            click.option(
                "--quarantine",
                type=click.IntRange(0),
                default=3,
                show_default=True,
                metavar="N",
                help="After N failures a kernel is not tried any more; 0: it always is.",
            ),
            click.option(
                "--fsync",
                type=click.Choice(["record", "batch", "never"]),
                default="record",
                show_default=True,
                help="When results are on the disk: each at once, some together, when the system likes.",
            ),
            click.option("--cluster", metavar="auto|local|ADDRESS", help="On a Ray cluster: see docs/scaling.md."),
        )
    ):
        command = decorate(command)
    return command


@dataclass(frozen=True)
class Sweeping:
    """What the options of a sweep say beside those of `Measuring`. The fields are the names of the options."""

    retry_failed: bool
    quarantine: int
    fsync: str
    cluster: str | None

    def part(self, plan: Plan, shard: str = "1/1") -> How:
        """The same for `sweep`. An error if the plan has nothing to do."""
        from tilewright.bench.plan import Shard
        from tilewright.bench.sweep import How

        if not plan.count:
            raise InvalidValueError(
                "no problem is of these kernels' kind: they differ in type, layout or what else they fix"
            )
        part = Shard.of_text(shard)
        return How(shard=part, retry_failed=self.retry_failed, quarantine=self.quarantine, fsync=self.fsync)

    @staticmethod
    def taken_from(options: dict[str, Any]) -> Sweeping:
        """Take them out of a command's options; those of `Measuring` remain."""
        return Sweeping(**{name: options.pop(name) for name in Sweeping.__dataclass_fields__})


def swept(plan: Plan, folder: Path, asked: Measuring, how: Sweeping, part: How) -> Summary:
    """Measure what the journal in a folder does not have yet; Ctrl-C finishes what runs."""
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
                f"{option} is for this machine alone: on a cluster each node has processors for devices and builds "
                "(ray start --num-cpus N; TILEWRIGHT_JOBS for --cluster local)"
            )
    from tilewright.bench.cluster.executor import ClusterExecutor
    from tilewright.bench.cluster.session import LOCAL

    with task("starting a cluster" if cluster == LOCAL else "joining the cluster"):
        return ClusterExecutor(plan.devices, asked.crew(), address=cluster, quarantine=kept_away)
