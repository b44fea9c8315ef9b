"""`tilewright coverage`: the problems that lack a row in aiter's tuned tables, and what the estimate takes for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import FILE, Command
from tilewright.cli.gpu_option import PROJECT, make_gpu_option
from tilewright.cli.output import add_json_option, format_count, print_json, print_table
from tilewright.cli.progress import report_progress

if TYPE_CHECKING:
    from tilewright.ops.aiter_table import Key, TableFamily
    from tilewright.ops.op import Op
    from tilewright.select.table_coverage import TableCoverage, TableEntry

NUMBERS = ("row µs", "estimate µs", "expected µs", "loss %")


@click.command(
    cls=Command,
    examples=(
        "tilewright coverage bf16_tuned_gemm.csv --problems bf16_untuned_gemm.csv --gpu gfx950",
        "tilewright coverage bf16_tuned_gemm.csv --problems server.log --gpu gfx942 --all",
    ),
)
@click.argument("tables", metavar="TABLE…", nargs=-1, required=True, type=FILE)
@click.option(
    "--problems",
    "files",
    type=FILE,
    multiple=True,
    required=True,
    metavar="FILE",
    help="The problems to look up: a table (.csv), or a log. May be repeated.",
)
@make_gpu_option("arch_name", "Use the rows of this GPU.", required=True, default=PROJECT)
@click.option("--all", "show_all", is_flag=True, help="Also list the problems that have a row of their own.")
@add_json_option
def command(
    *, tables: tuple[Path, ...], files: tuple[Path, ...], arch_name: str, show_all: bool, as_json: bool
) -> None:
    """Show which problems lack a row in aiter's tuned tables.

    TABLE is a tuned table of aiter (.csv). A problem without a row for the GPU and its number of units
    takes the row of another size, if aiter looks that up, else aiter's default. Problems come from
    aiter's tables, tuned or not, and from lines of a log that say "not found tuned config".

    For each problem you see the kernel that the estimate takes from the op's portfolio, and its
    estimated time. The expected time of a tuned row is this estimate, multiplied by measured over
    estimated time of the three problems with a row that are nearest. The loss is the time that the
    estimate's kernel takes more than that. What aiter's default takes is unknown.

    The exit code is 1 if a problem has no row of its own.
    """
    from tilewright import arch as archs
    from tilewright.ops.aiter_table import read_tuned_times
    from tilewright.select.table_coverage import OWN, compute_coverage

    arch = archs.load(arch_name)
    op, family = _find_family(tables)
    with report_progress(as_json=as_json):
        rows = {key: us for table in tables for key, us in read_tuned_times(family, table, arch).items()}
        found = compute_coverage(op, family, arch, rows, [key for file in files for key in _list_keys(family, file)])
    if not found.entries:
        raise InvalidValueError(f"{op.name} has none of the problems: {next(iter(found.refused.values()))}")
    if as_json:
        print_json({"op": op.name, "gpu": arch.name, "units": arch.compute.units, **_to_json(family, found)})
    else:
        _print(family, found, f"{op.name} on {arch.name} with {arch.compute.units} units", show_all)
    if any(each.state != OWN for each in found.entries):
        click.get_current_context().exit(1)


def _find_family(tables: Sequence[Path]) -> tuple[Op, TableFamily]:
    """The op and the family that all tables belong to, by their names."""
    from tilewright.ops import list_ops

    known = [(op, family) for op in list_ops() for family in op.aiter_tables]
    found = [(op, family) for op, family in known if all(family.names_file(table.name) for table in tables)]
    if len(found) == 1:
        return found[0]
    names = "; ".join(f"{op.name}: {family.describe_names()}" for op, family in known)
    files = ", ".join(table.name for table in tables)
    raise InvalidValueError(f"no family has all of the tables {files}. Words in the names of known tables: {names}.")


def _list_keys(family: TableFamily, file: Path) -> list[Key]:
    from tilewright.base.documents import read_text
    from tilewright.ops.aiter_table import list_keys, list_logged_keys

    if file.suffix.lower() == ".csv":
        return [key for _, key in list_keys(family, file)]
    keys = [key for _, key in list_logged_keys(family, read_text(file))]
    if not keys:
        names = family.describe_names()
        raise InvalidValueError(f"{file} has no line with “not found tuned config” for tables named {names}")
    return keys


def _to_json(family: TableFamily, found: TableCoverage) -> dict[str, Any]:
    return {
        "errors": list(found.errors),
        "problems": [
            {
                **dict(zip(family.columns, each.key, strict=True)),
                "row": each.state,
                "row_us": each.us,
                "kernel": each.kernel and each.kernel.slug,
                "estimate_us": each.estimate_us,
                "expected_us": found.expect_us(each),
                "loss": found.expect_loss(each),
            }
            for each in found.entries
        ],
        "refused": [{"problem": list(key), "reason": reason} for key, reason in found.refused.items()],
    }


def _print(family: TableFamily, found: TableCoverage, title: str, show_all: bool) -> None:
    from tilewright.select.table_coverage import NONE, OTHER, OWN

    shown = [each for each in found.entries if show_all or each.state != OWN]
    differing = [place for place in range(len(family.columns)) if len({each.key[place] for each in found.entries}) > 1]
    headings = (*(family.columns[place] for place in differing), "row", *NUMBERS, "kernel")
    rows = [
        (*(each.key[place] for place in differing), _describe_row(family, each), *_format_numbers(found, each))
        for each in shown
    ]
    print_table(headings, rows, numbers=(*headings[: len(differing)], *NUMBERS), title=title)
    same = [
        (name, cell) for name, cell in zip(family.columns, found.entries[0].key, strict=True) if name not in headings
    ]
    click.echo(f"\nall of them: {' '.join(f'{name}={cell}' for name, cell in same)}" if same else "")
    counts = {state: sum(each.state == state for each in found.entries) for state in (OWN, OTHER, NONE)}
    click.echo(
        f"\n{format_count(len(found.entries), 'problem')}: {counts[OWN]:,} with a row, {counts[OTHER]:,} with the row "
        f"of another size, {counts[NONE]:,} without"
    )
    if errors := found.errors:
        low, high = errors[len(errors) // 10], errors[-1 - len(errors) // 10]
        rows_text = format_count(len(errors), "row")
        click.echo(
            f"expected times of {rows_text}, each from the others: 80 % are {low:.2f} to {high:.2f} of the row's"
        )
    for key, reason in found.refused.items():
        click.echo(f"not estimated: {' '.join(key)}: {reason}", err=True)


def _describe_row(family: TableFamily, entry: TableEntry) -> str:
    if entry.row is None or entry.row == entry.key:
        return entry.state
    changed = zip(family.columns, entry.row, entry.key, strict=True)
    return " ".join(f"{name}={cell}" for name, cell, own in changed if cell != own)


def _format_numbers(found: TableCoverage, entry: TableEntry) -> tuple[str, ...]:
    def show(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    share = found.expect_loss(entry)
    loss = None if share is None else 100 * share
    fields = "-".join(entry.kernel.slug.split("-")[2:-1]) if entry.kernel is not None else "no kernel computes it"
    times = (entry.us, entry.estimate_us, found.expect_us(entry))
    return (*(show(time, ".4g") for time in times), show(loss, ".0f"), fields)
