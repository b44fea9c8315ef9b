"""`tilewright tune`: the fastest kernel for each problem, as a table that selection uses first."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tilewright.base.atomic_write import write_text
from tilewright.base.errors import InvalidValueError, choose
from tilewright.base.events import Advance, report_task
from tilewright.cli.command import Command
from tilewright.cli.gpu_option import make_gpu_option
from tilewright.cli.measure_options import MeasureArguments, make_plan
from tilewright.cli.output import add_json_option, format_count, print_facts, print_heading, print_json
from tilewright.cli.output_paths import OutputFile
from tilewright.cli.progress import report_progress
from tilewright.cli.sweep_options import INTERRUPTED, SweepArguments, add_problem_options, add_sweep_options, run_sweep

if TYPE_CHECKING:
    from tilewright.bench.plan import SweepPlan
    from tilewright.bench.record import Record
    from tilewright.bench.tune import Gains, ProblemTimes
    from tilewright.ops.aiter_table import AiterTable

SOURCE = click.Path(path_type=Path)
# Options that also apply if records are only read. All others set what a sweep measures.
READING = ("sources", "out", "aiter", "op_name", "arch", "cold", "warm", "as_json")


@click.command(
    cls=Command,
    examples=(
        "tilewright tune monday --out winners.json",
        "tilewright tune monday tuesday.parquet --op gemm --gpu gfx942 --out winners.json",
        "tilewright tune monday --device gpu:0 --kernels fp16_rcr_essential --problems shapes.csv \\",
        "    --out winners.json",
        "tilewright tune monday --device gpu:0 --kernels fp16_rcr_essential --problems shapes.csv \\",
        "    --cluster auto --out winners.json",
        "tilewright tune monday --device gpu:0 --kernels fp16_rcr_all --problems shapes.csv \\",
        "    --budget 10% --out winners.json",
    ),
)
@click.argument("sources", metavar="RECORDS…", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--out", type=OutputFile(".json"), required=True, metavar="FILE", help="The table of winners to write (.json)."
)
@click.option(
    "--aiter", type=OutputFile(".csv"), metavar="FILE", help="Also write the winners as a tuned table of aiter (.csv)."
)
@click.option("--op", "op_name", metavar="OP", help="Use only records of this op.")
@make_gpu_option("arch", "Use only records of this GPU, such as gfx942.", of_records=True)
@click.option("--warm", is_flag=True, help="Use only times with warm caches; the opposite of --cold.")
@click.option(
    "--kernels",
    "subjects",
    multiple=True,
    metavar="KERNELS",
    help="Kernels to sweep, as for `tilewright sweep`. May be repeated.",
)
@add_problem_options
@functools.partial(add_sweep_options, device_default=False)
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    sources: tuple[Path, ...],
    out: Path,
    aiter: Path | None,
    op_name: str | None,
    arch: str | None,
    warm: bool,
    subjects: tuple[str, ...],
    file: Path | None,
    file_format: str | None,
    texts: tuple[str, ...],
    as_json: bool,
    **common: Any,
) -> None:
    """Find the fastest kernel for each measured problem.

    RECORDS are any number of sweep journals (folders) and tables of records (.parquet). With
    --device, RECORDS is one journal, and its sweep is run or completed first, here or on a --cluster;
    the options are those of `tilewright sweep`. With --budget only a part is measured, which a search
    chooses.

    Only times of correct results count, measured on a GPU or replayed from one. Counters of an
    emulated device are not times. If a kernel was measured several times, its median counts.

    The table is for `tilewright select --tuned` and `registry.with_tuned`: for exactly these problems
    its kernels are selected first. The command also shows the benefit of measuring: how much faster
    the winners are than the kernels that the estimate would select from the same candidates.

    --aiter writes them as aiter's tuned tables have them, for an op that declares such tables. Its
    kernel names are Tilewright's: aiter must be given these kernels.

    The exit code is 130 if the sweep was interrupted, and 1 if results are missing. No table is
    written then.
    """
    from tilewright.bench.sources import open_sources
    from tilewright.bench.tune import group_times
    from tilewright.select.tuned import TunedTable, write_tuned

    how = SweepArguments.take_from(common)
    asked = MeasureArguments(**common)
    if asked.cold and warm:
        raise InvalidValueError("--cold and --warm exclude each other: give one of them")
    with report_progress(as_json=as_json, lines=bool(asked.device_names)):
        if asked.device_names:
            _check_times(asked.device_names)
            with report_task("planning"):
                plan = make_plan(asked, subjects, texts, file, file_format, how.cluster)
            _finish_sweep(ctx, plan, sources, asked, how)
        else:
            _check_reading(ctx)
        found = open_sources(*sources)
        with report_task("times", len(found)) as advance:
            cold = True if asked.cold else False if warm else None
            problems = group_times(_filter_records(found.iterate_records(), op_name, arch, advance), cold=cold)
        parts = _group_problems(problems)
    table = None if aiter is None else _make_aiter_table(problems)
    write_tuned(TunedTable(each.winner for each in problems), out)
    if aiter is not None and table is not None:
        write_text(aiter, table.to_text())
    if as_json:
        document = [_to_json(part) for part in parts]
        print_json({"tuned": str(out), "problems": len(problems), "damaged": len(found.damaged), "parts": document})
        return
    for part in parts:
        print_heading(f"{part.op} on {part.arch}")
        print_facts(_describe_group(part))
    click.echo(f"\n{out}: the winners of {format_count(len(problems), 'problem')}")
    for damage in found.damaged:
        click.echo(f"not read: {damage}", err=True)


def _make_aiter_table(problems: Sequence[ProblemTimes]) -> AiterTable:
    """The winners of one op as a tuned table of aiter, with the rows of all GPUs."""
    from tilewright import arch as archs
    from tilewright.ops import find_op, list_ops
    from tilewright.ops.aiter_table import choose_family, make_tuned_table

    names = sorted({each.winner.kernel.op for each in problems})
    if len(names) > 1:
        raise InvalidValueError(f"a table of aiter has problems of one op, not of {', '.join(names)}: give --op")
    families = find_op(names[0]).aiter_tables
    if not families:
        known = ", ".join(op.name for op in list_ops() if op.aiter_tables)
        raise InvalidValueError(f"{names[0]} declares no tables of aiter. Ops that do: {known}.")
    entries = [(archs.load(each.arch), each.winner) for each in problems]
    rows = [(arch, winner.kernel, winner.problem, winner.us) for arch, winner in entries]
    return make_tuned_table(choose_family(families, [winner.problem for _, winner in entries]), rows)


def _check_times(devices: Sequence[str]) -> None:
    """Reject devices without times before anything is built: no kernel could win there."""
    for name in devices:
        if name.partition(":")[0] == "emulated":
            raise InvalidValueError(
                f"tune needs times, and {name} has counters only. Measure on a GPU (--device gpu:0) or replay "
                "its times (--device replay:NAME --replay RECORDS). To record counters, use `tilewright sweep`."
            )


def _check_reading(ctx: click.Context) -> None:
    """Reject sweep options if no device is given: nothing is measured then."""
    for option in ctx.command.params:
        given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in READING:
            raise InvalidValueError(f"{option.opts[0]} is a sweep option: give the device too (--device)")


def _finish_sweep(
    ctx: click.Context, plan: SweepPlan, sources: Sequence[Path], asked: MeasureArguments, how: SweepArguments
) -> None:
    """Measure the tasks that the journal does not have yet. Exits if results are still missing then."""
    if len(sources) > 1:
        raise InvalidValueError(f"a sweep has one journal, got {len(sources)}: give one folder")
    summary = run_sweep(plan, sources[0], asked, how, how.make_sweep_options(plan))
    if summary.left:
        message = f"{format_count(summary.left, 'task')} left, and no table written. Run the same command to resume."
        click.echo(message, err=True)
        ctx.exit(INTERRUPTED if summary.stopped else 1)


def _filter_records(
    records: Iterable[Record], op_name: str | None, arch: str | None, advance: Advance
) -> Iterator[Record]:
    """The records of an op and a GPU. A name without records is an error that lists the known ones."""
    held: dict[str, dict[str, None]] = {"op": {}, "arch": {}}
    for record in records:
        advance()
        held["op"][record.task.op] = held["arch"][record.task.arch] = None
        if op_name in (None, record.task.op) and arch in (None, record.task.arch):
            yield record
    for name, value in (("op", op_name), ("arch", arch)):
        if value is not None:
            choose(f"{name} of the records", value, sorted(held[name]))


@dataclass(frozen=True)
class _TunedGroup:
    """The results of one op on one GPU."""

    op: str
    arch: str
    problems: Sequence[ProblemTimes]
    gains: Gains

    @property
    def kernels(self) -> int:
        return len({kernel for each in self.problems for kernel in each.us})

    @property
    def winners(self) -> int:
        return len({each.winner.kernel for each in self.problems})

    @property
    def times(self) -> int:
        return sum(len(each.us) for each in self.problems)


def _group_problems(problems: Sequence[ProblemTimes]) -> list[_TunedGroup]:
    from tilewright.bench.tune import compute_gains

    grouped: dict[tuple[str, str], list[ProblemTimes]] = {}
    for each in problems:
        grouped.setdefault((each.winner.kernel.op, each.arch), []).append(each)
    return [_TunedGroup(op, arch, grouped[op, arch], compute_gains(grouped[op, arch])) for op, arch in sorted(grouped)]


def _describe_group(part: _TunedGroup) -> list[tuple[str, str]]:
    from tilewright.ops.problem_text import format_short_problem

    gains = part.gains
    facts = [
        ("problems", f"{len(part.problems):,}, with {part.times:,} times of {format_count(part.kernels, 'kernel')}"),
        ("winners", format_count(part.winners, "kernel")),
    ]
    if gains.times_faster is not None and gains.largest is not None:
        largest = gains.largest
        facts += [
            ("estimate", f"selects the winner for {gains.agreed:,} of {format_count(len(gains.gains), 'problem')}"),
            ("gain", f"the winners are {gains.times_faster:.3f} times as fast as its selection on average"),
            ("largest gain", f"{largest.times_faster:.2f} times: {largest.winner.us:.4g} µs, its selection takes "
             f"{largest.chosen_us:.4g}"),
            ("", format_short_problem(largest.winner.problem)),
        ]  # fmt: skip
    if gains.uncompared:
        facts.append(
            ("not compared", f"{format_count(gains.uncompared, 'problem')}: none of the kernels has an estimate")
        )
    return facts


def _to_json(part: _TunedGroup) -> dict[str, Any]:
    from tilewright.ops.problem_values import list_all_fields

    gains, largest = part.gains, part.gains.largest
    return {
        "op": part.op,
        "arch": part.arch,
        "problems": len(part.problems),
        "kernels": part.kernels,
        "times": part.times,
        "winners": part.winners,
        "compared": len(gains.gains),
        "estimate_took_winner": gains.agreed,
        "times_faster": gains.times_faster,
        "largest_gain": largest
        and {
            "problem": list_all_fields(largest.winner.problem),
            "times_faster": largest.times_faster,
            "kernel": largest.winner.kernel.slug,
            "us": largest.winner.us,
            "estimate_took": largest.chosen.slug,
            "estimate_took_us": largest.chosen_us,
        },
    }
