"""Output on stdout: one JSON document, or text and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Help texts have at most this many columns.
COLUMNS = 100
# Tables that do not go to a terminal are as wide as their content: each row is one line, for grep and awk.
PLAIN_COLUMNS = 1_000_000

F = TypeVar("F", bound=Callable[..., Any])


def add_json_option(command: F) -> F:
    """Add the flag --json, which every command has."""
    text = "Print one JSON document to stdout instead of text."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


def print_json(value: Any) -> None:
    """Print the one document of a command with --json."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def make_console() -> Console:
    """The console for tables. It has colours on terminals only, and does not interpret markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PLAIN_COLUMNS
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def _print_trimmed(renderable: RenderableType) -> None:
    """Print without trailing blanks, which get in the way of copying and comparing."""
    target = make_console()
    with target.capture() as captured:
        target.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    numbers: Sequence[str] = (),
    whole: Sequence[str] = (),
    clipped: Sequence[str] = (),
    title: str = "",
) -> None:
    """Print a table. Columns in `numbers` are right-aligned.

    In a terminal, columns in `whole` are never wrapped, and those in `clipped` are cut at the edge instead of wrapped.
    Elsewhere, nothing is wrapped or cut, and each row is one line.
    """
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
        # Clipped columns get the remaining width, and the others their own.
        expand=bool(clipped) and sys.stdout.isatty(),
    )
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in numbers else "left",
            no_wrap=heading in whole or heading in numbers or heading in clipped,
            overflow="ellipsis" if heading in clipped else "fold",
            ratio=1 if heading in clipped else None,
        )
    for row in rows:
        table.add_row(*(row if sys.stdout.isatty() else map(_flatten_cell, row)))
    if title:
        print_heading(title)
    _print_trimmed(table)


def _flatten_cell(cell: RenderableType) -> RenderableType:
    """A cell as one line without style."""
    from rich.text import Text

    text = cell.plain if isinstance(cell, Text) else cell
    return " ".join(text.split("\n")) if isinstance(text, str) else text


def print_heading(text: str) -> None:
    """Print a heading with a blank line before it."""
    click.echo(f"\n{click.style(text, bold=True)}")


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line, with aligned values."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    _print_trimmed(table)


def mark_good(text: str) -> str:
    """A text in the colour of success."""
    return click.style(text, fg="green")


def mark_bad(text: str) -> str:
    """A text in the colour of failure."""
    return click.style(text, fg="red", bold=True)


def format_count(count: int, noun: str) -> str:
    """`1 kernel`, `2,000 kernels`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
