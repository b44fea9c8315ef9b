"""Rendering the templates of build files, and quoting words for the shell."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from tilewright.codegen.build_files.recipe import Slot, Word


def fill(name: str, **context: Any) -> str:
    """The text of a template of this folder. A name that it uses and the context lacks is an error."""
    return _environment().get_template(name).render(context)


def shell_command(words: Iterable[Word], slots: Mapping[Slot, str], escape: Callable[[str], str]) -> str:
    """A command line: fixed words are quoted for the shell and then escaped for the build file; slots are put in
    as they are."""
    return " ".join(slots[word] if isinstance(word, Slot) else escape(shlex.quote(word)) for word in words)


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is no HTML
    )
