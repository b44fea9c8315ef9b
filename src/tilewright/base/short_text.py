"""Short texts of large values: one line for a prompt, a small table for a page or a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence

# Characters of a value at a prompt: about three lines of a terminal.
LONGEST = 240
# Rows of a table: more scroll away.
MOST_ROWS = 20


def format_count(number: int, noun: str, plural: str = "") -> str:
    """`1 kernel`, `1,250 kernels`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def join_counts(*counts: tuple[int, str]) -> str:
    """`8 built, 1 failed`: the counts that are not zero."""
    return ", ".join(f"{number:,} {what}" for number, what in counts if number)


def cut(text: str, longest: int = LONGEST) -> str:
    """A text with at most this many characters. A longer one ends with `…`."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def format_text_table(columns: Sequence[str], rows: Sequence[Sequence[object]], total: int | None = None) -> str:
    """A table of text with aligned columns. With more than `MOST_ROWS` rows, the last line counts the others.

    `total` is the number of all rows, if only the first ones are given.
    """
    shown = [[_format_cell(cell) for cell in row] for row in rows[:MOST_ROWS]]
    widths = [max(len(name), *(len(row[i]) for row in shown)) if shown else len(name) for i, name in enumerate(columns)]
    lines = [_join_cells(columns, widths), *(_join_cells(row, widths) for row in shown)]
    return "\n".join([*lines, *_describe_rest(len(rows) if total is None else total, len(shown))])


def format_html_table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]], total: int | None = None
) -> str:
    """The same as HTML, for notebooks."""
    shown = rows[:MOST_ROWS]
    head = _join_tags("th", columns, html.escape)
    body = "".join(f"<tr>{_join_tags('td', map(_format_cell, row), html.escape)}</tr>" for row in shown)
    rest = "".join(f"<p>{html.escape(line)}</p>" for line in _describe_rest(total or len(rows), len(shown)))
    return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>{rest}"


def _join_tags(tag: str, texts: Iterable[str], escape: Callable[[str], str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _join_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _describe_rest(total: int, shown: int) -> list[str]:
    return [f"… and {total - shown:,} more"] if total > shown else []


def _format_cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
