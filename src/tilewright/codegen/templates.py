"""Templates, read strictly: a name that a template uses and its context lacks is an error."""

from __future__ import annotations

from pathlib import Path

import jinja2


def templates_in(folder: Path) -> jinja2.Environment:
    """The templates of a folder. What they make is source text, so nothing is escaped for HTML."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
