"""Render the templates of build files, and quote words for the shell."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from tilewright.codegen.build_files.recipe import FolderFile, Slot, Word
from tilewright.codegen.templates import load_templates


def fill_template(name: str, **context: Any) -> str:
    """Render a template of this folder. A name that is missing from the context is an error."""
    return _get_environment().get_template(name).render(context)


def quote_text(text: str) -> str:
    """Quote a text for the shell and escape it for make and ninja."""
    return escape_dollars(shlex.quote(text))


def format_shell_command(
    words: Iterable[Word], slots: Mapping[Slot, str], format_text: Callable[[str], str] = quote_text
) -> str:
    """Format a command line for make or ninja, which run commands in their file's folder. Slots are inserted as they
    are, and fixed words with `format_text`."""

    def format_word(word: Word) -> str:
        if isinstance(word, Slot):
            return slots[word]
        return quote_text(word.name) if isinstance(word, FolderFile) else format_text(word)

    return " ".join(format_word(word) for word in words)


def escape_dollars(text: str) -> str:
    """Escape a text for make and ninja: only the dollar sign is special in both."""
    return text.replace("$", "$$")


@functools.cache
def _get_environment() -> jinja2.Environment:
    return load_templates(Path(__file__).parent)
