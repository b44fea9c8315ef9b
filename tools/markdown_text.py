"""Format the parts of generated Markdown documents."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

NOTE = "Written by `make docs` from the code. Do not edit it here."
WIDTH = 110  # width of paragraphs


def format_table(headings: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> str:
    """Format a Markdown table. The columns in `right` are right-aligned."""
    lines = [headings, ["---:" if heading in right else "---" for heading in headings], *rows]
    return "\n".join(f"| {' | '.join(_format_cell(cell) for cell in line)} |" for line in lines)


def _format_cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def format_code(value: object) -> str:
    """Format a value as code; an empty value stays empty."""
    return f"`{value}`" if str(value) else ""


def format_page(title: str, *parts: str) -> str:
    """Format a document from its title and parts."""
    return "\n\n".join([f"# {title}", NOTE, *(part for part in parts if part)]) + "\n"


def wrap_paragraph(text: str) -> str:
    """Wrap a paragraph into lines."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
