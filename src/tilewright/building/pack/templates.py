"""The templates of a pack's files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2

from tilewright.codegen.templates import load_templates
from tilewright.ops.in_c.statements import quote_c


def fill_template(template: str, **context: Any) -> str:
    """Fill a template of this folder."""
    return _get_environment().get_template(template).render(context)


@functools.cache
def _get_environment() -> jinja2.Environment:
    environment = load_templates(Path(__file__).parent)
    environment.filters["c_string"] = quote_c
    return environment
