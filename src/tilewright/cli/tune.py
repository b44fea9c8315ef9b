"""`tilewright tune`: the fastest kernel for each problem, as a table that selection uses first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tilewright.base.errors import InvalidValueError, choose
from tilewright.base.events import Advance, task
from tilewright.cli.command import Command
from tilewright.cli.gpu_option import make_gpu_option
from tilewright.cli.measuring import Measuring, plan_of
from tilewright.cli.output import heading_line, json_option, plural, print_facts, print_json
from tilewright.cli.outputs import OutputFile
from tilewright.cli.progress import progress
from tilewright.cli.sweeping import INTERRUPTED, Sweeping, problem_options, sweeping_options, swept

if TYPE_CHECKING:
    from tilewright.bench.plan import Plan
    from tilewright.bench.record import Record
    from tilewright.bench.tune import Gains, Timed

SOURCE = click.Path(path_type=Path)
# Options that also apply if records are only read. All others set what a sweep measures.
READING = ("sources", "out", "op_name", "arch", "cold", "warm", "as_json")


@click.command(
    cls=Command,
    examples=(
        "tilewright tune monday --out winners.json",
        "tilewright tune monday tuesday.parquet --op gemm --gpu gfx942 --out winners.json",
        "tilewright tune monday --device gpu:0 --kernels fp16_rcr_essential --problems shapes.csv \\",
        "    --out winners.json",
        "tilewright tune monday --device gpu:0 --kernels fp16_rcr_essential --problems shapes.csv \\",
        "    --cluster auto --out winners.json",
    ),
)
@click.argument("sources", metavar="RECORDS…", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--out", type=OutputFile(".json"), required=True, metavar="FILE", help="The table of winners to write (.json)."
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
@problem_options
@sweeping_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    sources: tuple[Path, ...],
    out: Path,
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
    the options are those of `tilewright sweep`.

    Only times of correct results count, measured on a GPU or replayed from one. Counters of an
    emulated device are not times. If a kernel was measured several times, its median counts.

    The table is for `tilewright select --tuned` and `registry.with_tuned`: for exactly these problems
    its kernels are selected first. The command also shows the benefit of measuring: how much faster
    the winners are than the kernels that the estimate would select from the same candidates.

    The exit code is 130 if the sweep was interrupted, and 1 if results are missing. No table is
    written then.
    """
    from tilewright.bench.sources import open_sources
    from tilewright.bench.tune import timed
    from tilewright.select.tuned import TunedTable, write_tuned

    how = Sweeping.taken_from(common)
    asked = Measuring(**common)
    if asked.cold and warm:
        raise InvalidValueError("--cold and --warm exclude each other: give one of them")
    with progress(as_json=as_json, lines=bool(asked.device_names)):
        if asked.device_names:
            _check_times(asked.device_names)
            with task("planning"):
                plan = plan_of(asked, subjects, texts, file, file_format, how.cluster)
            _complete(ctx, plan, sources, asked, how)
        else:
            _check_reading(ctx)
        found = open_sources(*sources)
        with task("times", len(found)) as advance:
            cold = True if asked.cold else False if warm else None
            problems = timed(_wanted(found.records(), op_name, arch, advance), cold=cold)
        parts = _parts(problems)
    write_tuned(TunedTable(each.winner for each in problems), out)
    if as_json:
        document = [_document(part) for part in parts]
        print_json({"tuned": str(out), "problems": len(problems), "damaged": len(found.damaged), "parts": document})
        return
    for part in parts:
        heading_line(f"{part.op} on {part.arch}")
        print_facts(_facts(part))
    click.echo(f"\n{out}: the winners of {plural(len(problems), 'problem')}")
    for damage in found.damaged:
        click.echo(f"not read: {damage}", err=True)


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


def _complete(ctx: click.Context, plan: Plan, sources: Sequence[Path], asked: Measuring, how: Sweeping) -> None:
    """Measure the tasks that the journal does not have yet. Exits if results are still missing then."""
    if len(sources) > 1:
        raise InvalidValueError(f"a sweep has one journal, got {len(sources)}: give one folder")
    summary = swept(plan, sources[0], asked, how, how.part(plan))
    if summary.left:
        message = f"{plural(summary.left, 'task')} left, and no table written. Run the same command to resume."
        click.echo(message, err=True)
        ctx.exit(INTERRUPTED if summary.stopped else 1)


def _wanted(records: Iterable[Record], op_name: str | None, arch: str | None, advance: Advance) -> Iterator[Record]:
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
class _Part:
    """The results of one op on one GPU."""

    op: str
    arch: str
    problems: Sequence[Timed]
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


def _parts(problems: Sequence[Timed]) -> list[_Part]:
    from tilewright.bench.tune import gains

    grouped: dict[tuple[str, str], list[Timed]] = {}
    for each in problems:
        grouped.setdefault((each.winner.kernel.op, each.arch), []).append(each)
    return [_Part(op, arch, grouped[op, arch], gains(grouped[op, arch])) for op, arch in sorted(grouped)]


def _facts(part: _Part) -> list[tuple[str, str]]:
    from tilewright.ops.problem_text import short_text

    gains = part.gains
    facts = [
        ("problems", f"{len(part.problems):,}, with {part.times:,} times of {plural(part.kernels, 'kernel')}"),
        ("winners", plural(part.winners, "kernel")),
    ]
    if gains.times_faster is not None and gains.largest is not None:
        largest = gains.largest
        facts += [
            ("estimate", f"selects the winner for {gains.agreed:,} of {plural(len(gains.gains), 'problem')}"),
            ("gain", f"the winners are {gains.times_faster:.3f} times as fast as its selection on average"),
            ("largest gain", f"{largest.times_faster:.2f} times: {largest.winner.us:.4g} µs, its selection takes "
             f"{largest.chosen_us:.4g}"),
            ("", short_text(largest.winner.problem)),
        ]  # fmt: skip
    if gains.uncompared:
        facts.append(("not compared", f"{plural(gains.uncompared, 'problem')}: none of the kernels has an estimate"))
    return facts


def _document(part: _Part) -> dict[str, Any]:
    from tilewright.ops.problem_values import all_fields

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
            "problem": all_fields(largest.winner.problem),
            "times_faster": largest.times_faster,
            "kernel": largest.winner.kernel.slug,
            "us": largest.winner.us,
            "estimate_took": largest.chosen.slug,
            "estimate_took_us": largest.chosen_us,
        },
    }
