"""`tilewright bench`: measure kernels on one problem and list the best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError, choose
from tilewright.base.events import report_task
from tilewright.cli.command import Command, Option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.measure_options import MeasureArguments, add_measure_options, make_plan
from tilewright.cli.output import add_json_option, format_count, mark_bad, print_heading, print_json, print_table
from tilewright.cli.progress import report_progress

if TYPE_CHECKING:
    from tilewright.bench.plan import SweepPlan
    from tilewright.bench.record import Record

# Counters and their headings in a narrow table.
COUNTERS = {
    "instructions_valu": "valu",
    "instructions_matrix": "matrix",
    "global_read_bytes": "B read",
    "global_write_bytes": "written",
    "cache_lines": "lines",
    "bank_conflict_cycles": "conflicts",
}
USUAL_COUNTER = "cache_lines"


@click.command(
    cls=Command,
    examples=(
        "tilewright bench fp16_rcr_essential --problem m=4096,n=4096,k=4096 --device gpu:0",
        "tilewright bench fp16_rcr_essential --limit 4 --problem m=64,n=64,k=64 --device emulated:gfx942 \\",
        "    --mode fast --by bank_conflict_cycles",
    ),
)
@click.argument("subjects", metavar="KERNELS…", nargs=-1, required=True, shell_complete=complete_kernels)
@click.option(
    "--problem",
    "text",
    required=True,
    metavar="FIELD=N,…",
    help="The problem fields that the kernels do not fix, such as sizes.",
)
@add_measure_options
@click.option(
    "--by",
    cls=Option,
    metavar="COUNTER",
    show_default=USUAL_COUNTER,
    help="Counter that kernels are sorted by on an emulated device.",
)
@add_json_option
@click.pass_context
def command(
    ctx: click.Context, /, *, subjects: tuple[str, ...], text: str, by: str | None, as_json: bool, **common: Any
) -> None:
    """Measure kernels on one problem and list the best first.

    KERNELS are kernel names or digests, preselected sets, kernel-set files (.toml, .json), or an op with -s.
    Kernels that are not built are built first. Each result is verified before it counts. On a GPU,
    kernels are sorted by median time. An emulated device has no times, so they are sorted by a
    counter.

    The exit code is 1 if no kernel could be measured.
    """
    asked = MeasureArguments(**common)
    with report_progress(as_json=as_json, steps=True):
        with report_task("planning"):
            plan = make_plan(asked, subjects, (text,), None, None)
            _check_order(by, plan)
        records = _measure_plan(plan, asked)
    order = _sort_records(records, by)
    if as_json:
        print_json({"problem": text, "records": [record.to_json() for record in order]})
    else:
        _print(order, by)
    ctx.exit(0 if any(record.ok for record in order) else 1)


def _measure_plan(plan: SweepPlan, asked: MeasureArguments) -> list[Record]:
    from tilewright.bench.executor import WorkItem
    from tilewright.bench.local import LocalExecutor

    executor = LocalExecutor(asked.list_slots(plan.devices), asked.make_worker_config(), jobs=asked.jobs)
    found: list[Record] = []
    try:
        with report_task("kernels", plan.count) as advance:
            names = (kernel.slug for block in plan.grids for kernel in block.kernels)
            for record in executor.run((WorkItem(each) for each in plan.iterate_tasks()), names):
                found.append(record)
                advance(record.task.kernel)
    finally:
        executor.close()
    return found


def _check_order(by: str | None, plan: SweepPlan) -> None:
    """Raise an error if kernels cannot be sorted by this counter, before anything is measured."""
    from dataclasses import fields

    from tilewright.emulator.launch import Counters

    if by is None:
        return
    if not all(device.startswith("emulated:") for device in plan.devices):
        raise InvalidValueError(
            "--by is for the counters of emulated devices; on other devices kernels are sorted by time"
        )
    if not by.startswith("instructions_"):
        known = [f.name for f in fields(Counters) if f.name not in ("steps", "instructions")]
        choose("counter", by, [*known, "instructions_valu", "instructions_…"])


def _sort_records(records: Sequence[Record], by: str | None) -> list[Record]:
    """Successful records, the best first, then failed ones."""
    name = by or USUAL_COUNTER

    def rank_record(record: Record) -> tuple[int, float, str]:
        value = record.times.us if record.times is not None else float(record.counters.get(name, 0))
        return (0 if record.ok else 1, value, record.task.kernel)

    return sorted(records, key=rank_record)


def _print(records: Sequence[Record], by: str | None) -> None:
    good = [record for record in records if record.ok]
    timed = [record for record in good if record.times is not None]
    counted = [record for record in good if record.counters]
    if timed:
        _print_times(timed)
    if counted:
        _print_counters(counted, by or USUAL_COUNTER)
    failed = [record for record in records if not record.ok]
    if failed:
        print_heading(f"{format_count(len(failed), 'kernel')} without a measurement")
        for record in failed:
            click.echo(f"{mark_bad(record.status)} {record.task.kernel}\n  {record.message}")


def _print_times(records: Sequence[Record]) -> None:
    from tilewright.bench.rates import compute_rates

    numbers = ("µs", "p10", "p90", "runs", "TFLOPS", "GB/s", "of limit")
    rows = []
    for record in records:
        times = record.times
        assert times is not None
        rate = compute_rates(record.task, times.us)
        rows.append(
            (
                f"{times.us:,.2f}",
                f"{times.us_p10:,.2f}",
                f"{times.us_p90:,.2f}",
                f"{times.runs:,}",
                "" if rate.tflops is None else f"{rate.tflops:,.2f}",
                "" if rate.gbs is None else f"{rate.gbs:,.1f}",
                "" if record.share is None else f"{record.share:.2f}",
                record.task.kernel,
            )
        )
    print_table((*numbers, "kernel"), rows, numbers=numbers)


def _print_counters(records: Sequence[Record], by: str) -> None:
    names = list(dict.fromkeys([by, *COUNTERS]))
    headings = [*(COUNTERS.get(name, name) for name in names), "of limit"]
    rows = [
        (
            *(f"{record.counters.get(name, 0):,}" for name in names),
            "" if record.share is None else f"{record.share:.2f}",
            record.task.kernel,
        )
        for record in records
    ]
    click.echo(f"An emulated device has counters instead of times. Sorted by {by}, the lowest first.\n")
    print_table((*headings, "kernel"), rows, numbers=headings)
