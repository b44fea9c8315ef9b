"""`tilewright sweep`: measure kernels on problems, on one machine or a cluster, and resume after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.base.user_progress import format_duration
from tilewright.cli.command import Command
from tilewright.cli.completion import complete_kernels
from tilewright.cli.measure_options import MeasureArguments, make_plan
from tilewright.cli.output import add_json_option, format_count, mark_good, print_facts, print_json
from tilewright.cli.output_paths import OutputFolder
from tilewright.cli.progress import report_progress
from tilewright.cli.sweep_options import INTERRUPTED, SweepArguments, add_problem_options, add_sweep_options, run_sweep
from tilewright.cli.verbosity import print_remark

if TYPE_CHECKING:
    from tilewright.bench.plan import SweepPlan
    from tilewright.bench.sweep import DryRun, SweepSummary


@click.command(
    cls=Command,
    examples=(
        "tilewright sweep fp16_rcr_essential --problems shapes.csv --device gpu:0 --device gpu:1 \\",
        "    --out monday",
        "tilewright sweep gemm-gfx942-… --problem m=64,n=64,k=32 --device emulated:gfx942 --mode fast \\",
        "    --out counts",
        "tilewright sweep --device replay:mi300 --replay mi300.parquet --out again",
        "tilewright sweep fp16_rcr_essential --problems shapes.csv --device gpu:0 --out monday --shard 2/8",
        "tilewright sweep fp16_rcr_essential --problems shapes.csv --device gpu:0 --out monday \\",
        "    --cluster 10.0.0.1:6379",
        "tilewright sweep fp16_rcr_essential --problems shapes.csv --device gpu:0 --out monday --dry-run",
        "tilewright sweep fp16_rcr_all --problems shapes.csv --device gpu:0 --out monday --budget 10%",
    ),
)
@click.argument("subjects", metavar="[KERNELS…]", nargs=-1, shell_complete=complete_kernels)
@add_problem_options
@click.option(
    "--out",
    type=OutputFolder(),
    required=True,
    metavar="FOLDER",
    help="The journal to write. An unfinished sweep in it is resumed.",
)
@add_sweep_options
@click.option("--shard", default="1/1", show_default=True, metavar="I/N", help="Measure only part I of N.")
@click.option("--dry-run", is_flag=True, help="Show what would be measured, and measure nothing.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    subjects: tuple[str, ...],
    file: Path | None,
    file_format: str | None,
    texts: tuple[str, ...],
    out: Path,
    shard: str,
    dry_run: bool,
    as_json: bool,
    **common: Any,
) -> None:
    """Measure kernels on problems and keep every result.

    KERNELS are kernel names or digests, preselected sets, kernel-set files (.toml, .json), or an op with -s.
    Each is measured on each problem of its kind, and built while others run. Every result is verified first;
    then it is timed on a GPU, and counted on an emulated device. A replayed device answers from
    records; without KERNELS and problems it replays all of them.

    Each device has its own process. If a kernel crashes the process or takes too long, this is
    recorded as its result; after --quarantine failures the kernel is not tried any more. Ctrl-C
    waits for running tasks and stops. The same command resumes the sweep, however it ended; a
    different sweep into the same folder is rejected.

    With --budget a search chooses what to measure: first the kernels with the best estimates, then
    those that may still be faster. The same command with a larger budget, or without one, continues
    it.

    With --cluster the devices are those of a Ray cluster; `local` starts one on this machine. GPU
    names such as gpu:0 then only mean that its GPUs are used.

    The exit code is 130 if the sweep was interrupted, and 1 if results are missing at the end.
    """
    from tilewright.bench.sweep import DryRun, make_dry_run

    how = SweepArguments.take_from(common)
    if dry_run and how.budget is not None:
        raise InvalidValueError("--dry-run shows the whole sweep, and --budget measures a part of it: give one of them")
    asked = MeasureArguments(**common)
    with report_progress(as_json=as_json, lines=True):
        with report_task("planning"):
            plan = make_plan(asked, subjects, texts, file, file_format, how.cluster)
        part = how.make_sweep_options(plan, shard)
        found = make_dry_run(plan, out, part) if dry_run else run_sweep(plan, out, asked, how, part)
    if isinstance(found, DryRun):
        _print_dry_run(plan, out, found, as_json)
        return
    if as_json:
        print_json(_to_json(plan, out, found))
    else:
        _print(plan, out, found)
    ctx.exit(INTERRUPTED if found.stopped else 1 if found.left else 0)


def _print_dry_run(plan: SweepPlan, out: Path, found: DryRun, as_json: bool) -> None:
    if as_json:
        idle = {"kernels": [kernel.slug for kernel in plan.idle], "problems": plan.untried}
        counts = {"tasks": found.tasks, "known": found.known, "left": found.left, "kernels": found.kernels}
        print_json({"journal": str(out), **counts, "devices": dict(plan.devices), "idle": idle})
        return
    print_facts(
        [
            (
                "tasks",
                f"{found.tasks:,} of {format_count(len(plan.kernels), 'kernel')} "
                f"× {format_count(len(plan.problems), 'problem')}",
            ),
            ("known", f"{found.known:,} in {out}"),
            ("left", f"{format_count(found.left, 'task')} of {format_count(found.kernels, 'kernel')}"),
            *_describe_idle(plan),
        ]
    )


def _describe_idle(plan: SweepPlan) -> list[tuple[str, str]]:
    return [
        *([("idle kernels", f"{len(plan.idle):,}, no problem is of their kind")] if plan.idle else []),
        *([("untried problems", f"{plan.untried:,}, no kernel is of their kind")] if plan.untried else []),
    ]


def _to_json(plan: SweepPlan, out: Path, summary: SweepSummary) -> dict[str, Any]:
    return {
        "journal": str(out),
        "tasks": plan.count,
        "kernels": len(plan.kernels),
        "problems": len(plan.problems),
        "devices": dict(plan.devices),
        "statuses": dict(sorted(summary.statuses.items())),
        "known": summary.known,
        "damaged": summary.damaged,
        "left": summary.left,
        "quarantined": list(summary.quarantined),
        "idle": {"kernels": [kernel.slug for kernel in plan.idle], "problems": plan.untried},
        "seconds": round(summary.seconds, 3),
        "stopped": summary.stopped,
    }


def _print(plan: SweepPlan, out: Path, summary: SweepSummary) -> None:
    counts = ", ".join(f"{count:,} {status}" for status, count in summary.statuses.most_common())
    facts = [
        (
            "measured now",
            f"{format_count(summary.done, 'task')} in {format_duration(summary.seconds)}"
            + (f": {counts}" * bool(counts)),
        ),
        *([("known before", format_count(summary.known, "task"))] if summary.known else []),
        *([("left", format_count(summary.left, "task"))] if summary.left else []),
        *([("quarantined", "\n".join(summary.quarantined))] if summary.quarantined else []),
        *_describe_idle(plan),
        ("journal", str(out)),
    ]
    print_facts(facts)
    if summary.left:
        print_remark("\nRun the same command to resume.")
    else:
        click.echo(mark_good("complete"))
