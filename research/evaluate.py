"""How well kernels are chosen on public measurements, as a table: data, split, method, figures, target.

    python -m research.evaluate                   # all sets, about ten minutes
    python -m research.evaluate --bounded         # smaller ones, for CI
    python -m research.evaluate moe miopen --json

Efficiency is the best measured time over the time of the chosen kernel. What it means and what limits it:
docs/measuring-selection.md.
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

SETS = ("conv", "hipblaslt", "moe", "attention", "miopen", "winners")
# Sets with a learning curve of their own; that of the convolutions is always shown.
CURVES = ("hipblaslt", "moe", "miopen")
FIGURES = ("mean", "median", "p10", "minimum", "top1", "top5")
WIDTH = 190  # of what is written to a file
MARKS = {True: "✓", False: "✗", None: ""}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"sets to evaluate: {', '.join(SETS)}; all by default")
    parser.add_argument("--bounded", action="store_true", help="smaller runs, for CI")
    parser.add_argument("--curve", action="store_true", help="learning curves too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    form.add_argument(
        "--markdown", action="store_true", help="the table of figures as docs/measuring-selection.md has it"
    )
    given = parser.parse_args(arguments)
    names = [choose("set", name, SETS) for name in given.names] or list(SETS)
    found: list[Line | Remark] = []
    for name in names:
        start = time.monotonic()
        found += importlib.import_module(f"research.{name}").run(given.bounded)
        if given.curve and name in CURVES:
            found.append(importlib.import_module(f"research.{name}").curve())
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    if given.json:
        print(json.dumps(as_json(found), indent=1))
    elif given.markdown:
        print(markdown(found))
    else:
        show(found, Console(width=None if sys.stdout.isatty() else WIDTH))
    return 0


def as_json(found: Sequence[Line | Remark]) -> dict[str, list[dict[str, object]]]:
    """All lines and remarks; figures are shares of one."""
    lines = [each.to_json() for each in found if isinstance(each, Line)]
    return {"lines": lines, "remarks": [each.to_json() for each in found if isinstance(each, Remark)]}


def markdown(found: Sequence[Line | Remark]) -> str:
    """The lines as a table of Markdown; what repeats the row above is left empty."""
    rows = ["| data | split | method | mean | median | P10 | min | top-1 | top-5 | n | target |", "|" + "---|" * 11]
    data = split = ""
    for line in (each for each in found if isinstance(each, Line)):
        target = f"{line.target} {MARKS[line.reached]}".strip()
        same = line.data == data, line.data == data and line.split == split
        shown = ("" if same[0] else line.data, "" if same[1] else line.split, line.method, *figures(line), target)
        rows.append("| " + " | ".join(shown) + " |")
        data, split = line.data, line.split
    return "\n".join(rows)


def show(found: Sequence[Line | Remark], console: Console) -> None:
    """The table of figures, then the remarks, then how many targets are reached."""
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
        row = (line.data, line.split, line.method, *figures(line), line.target, MARKS[line.reached])
        table.add_row(*row, end_section=last)
    console.print(table)
    for remark in (each for each in found if isinstance(each, Remark)):
        console.print(_remark(remark))
    judged = [line.reached for line in lines if line.reached is not None]
    console.print(f"targets reached: {sum(judged)} of {len(judged)}")


def figures(line: Line) -> tuple[str, ...]:
    """The figures of a line in the order of the table's columns."""
    result = line.result
    if isinstance(result, Correlation):
        return (f"rank {result.rank:.3f}", "", "", "", "", "", f"{result.rows:,}")
    return (*(f"{100 * getattr(result, name):.1f}" for name in FIGURES), f"{result.problems:,}")


def _remark(remark: Remark) -> Table:
    table = Table(title=remark.title, title_justify="left", box=SIMPLE)
    for heading in remark.columns:
        table.add_column(heading)
    for row in remark.rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    sys.exit(main())
