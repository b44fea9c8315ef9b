"""Evaluate choices on public measurements, and print a table: data, split, method, figures, target.

    python -m research.evaluate                   # all sets, about ten minutes
    python -m research.evaluate --bounded         # smaller runs, for CI
    python -m research.evaluate moe miopen --json

Efficiency is the best measured time divided by the time of the chosen kernel. docs/measuring-selection.md explains the
figures and their limits.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from research.table import Correlation, Line, Remark
from tilewright.base.errors import choose

SETS = ("conv", "hipblaslt", "moe", "attention", "miopen", "winners", "scaled_winners")
# Sets with an optional learning curve; the one of the convolutions is always printed.
CURVES = ("hipblaslt", "moe", "miopen")
FIGURES = ("mean", "median", "p10", "minimum", "top1", "top5")
WIDTH = 190  # of output to a file
MARKS = {True: "✓", False: "✗", None: ""}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"sets to evaluate: {', '.join(SETS)}; all by default")
    parser.add_argument("--bounded", action="store_true", help="smaller runs, for CI")
    parser.add_argument("--curve", action="store_true", help="print learning curves, too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    form.add_argument(
        "--markdown", action="store_true", help="print the table of figures as in docs/measuring-selection.md"
    )
    given = parser.parse_args(arguments)
    names = [choose("set", name, SETS) for name in given.names] or list(SETS)
    found: list[Line | Remark] = []
    for name in names:
        start = time.monotonic()
        found += importlib.import_module(f"research.{name}").run(given.bounded)
        if given.curve and name in CURVES:
            found.append(importlib.import_module(f"research.{name}").make_curve())
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    if given.json:
        print(json.dumps(to_json(found), indent=1))
    elif given.markdown:
        print(format_markdown(found))
    else:
        print_tables(found, Console(width=None if sys.stdout.isatty() else WIDTH))
    return 0


def to_json(found: Sequence[Line | Remark]) -> dict[str, list[dict[str, object]]]:
    """Convert all lines and remarks; figures are shares of one."""
    lines = [each.to_json() for each in found if isinstance(each, Line)]
    return {"lines": lines, "remarks": [each.to_json() for each in found if isinstance(each, Remark)]}


def format_markdown(found: Sequence[Line | Remark]) -> str:
    """Format the lines as a Markdown table. Cells that repeat the row above are empty."""
    rows = ["| data | split | method | mean | median | P10 | min | top-1 | top-5 | n | target |", "|" + "---|" * 11]
    data = split = ""
    for line in (each for each in found if isinstance(each, Line)):
        target = f"{line.target} {MARKS[line.reached]}".strip()
        same = line.data == data, line.data == data and line.split == split
        cells = (
            "" if same[0] else line.data,
            "" if same[1] else line.split,
            line.method,
            *format_figures(line),
            target,
        )
        rows.append("| " + " | ".join(cells) + " |")
        data, split = line.data, line.split
    return "\n".join(rows)


def print_tables(found: Sequence[Line | Remark], console: Console) -> None:
    """Print the table of figures, the remarks, and the number of reached targets."""
    lines = [each for each in found if isinstance(each, Line)]
    table = Table(title="Efficiency of choices, in % (rank correlations as they are)", box=SIMPLE)
    for heading in ("data", "split", "method"):
        table.add_column(heading, overflow="fold")
    for heading in ("mean", "median", "P10", "min", "top-1", "top-5", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("target", overflow="fold")
    table.add_column("", no_wrap=True)
    for line, following in zip_longest(lines, lines[1:]):
        last = following is not None and following.data != line.data
        row = (line.data, line.split, line.method, *format_figures(line), line.target, MARKS[line.reached])
        table.add_row(*row, end_section=last)
    console.print(table)
    for remark in (each for each in found if isinstance(each, Remark)):
        console.print(_make_remark_table(remark))
    judged = [line.reached for line in lines if line.reached is not None]
    console.print(f"targets reached: {sum(judged)} of {len(judged)}")


def format_figures(line: Line) -> tuple[str, ...]:
    """Format the figures of a line in the order of the table's columns."""
    result = line.result
    if isinstance(result, Correlation):
        return (f"rank {result.rank:.3f}", "", "", "", "", "", f"{result.rows:,}")
    return (*(f"{100 * getattr(result, name):.1f}" for name in FIGURES), f"{result.problems:,}")


def _make_remark_table(remark: Remark) -> Table:
    table = Table(title=remark.title, title_justify="left", box=SIMPLE)
    for heading in remark.columns:
        table.add_column(heading)
    for row in remark.rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    sys.exit(main())
