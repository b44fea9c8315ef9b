"""Strict templates: a name that is missing from the context is an error."""

from __future__ import annotations

from pathlib import Path

import jinja2


def load_templates(folder: Path) -> jinja2.Environment:
    """Load the templates of a folder. Their output is source text, so nothing is escaped for HTML."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
