"""Render the templates of build files, and quote words for the shell."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from tilewright.codegen.build_files.recipe import Slot, Word
from tilewright.codegen.templates import load_templates


def fill_template(name: str, **context: Any) -> str:
    """Render a template of this folder. A name that is missing from the context is an error."""
    return _get_environment().get_template(name).render(context)


def format_shell_command(words: Iterable[Word], slots: Mapping[Slot, str]) -> str:
    """Format a command line for make or ninja: fixed words are quoted for the shell and then escaped for the file;
    slots are inserted as they are."""
    return " ".join(slots[word] if isinstance(word, Slot) else escape_dollars(shlex.quote(word)) for word in words)


def escape_dollars(text: str) -> str:
    """Escape a text for make and ninja: only the dollar sign is special in both."""
    return text.replace("$", "$$")


@functools.cache
def _get_environment() -> jinja2.Environment:
    return load_templates(Path(__file__).parent)
