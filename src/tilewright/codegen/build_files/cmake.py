"""Render CMakeLists.txt. No language is enabled: CMake only runs the commands of the recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.codegen.build_files.recipe import (
    HEADERS,
    OBJECT_LIST,
    PRODUCTS,
    RECIPE,
    BuildStep,
    LibraryTarget,
    Slot,
    Word,
)
from tilewright.codegen.build_files.template import fill_template

FILE = "CMakeLists.txt"
_PLAIN = re.compile(r"[A-Za-z0-9_./=+,:-]+")


def render(library: LibraryTarget) -> str:
    """Render the text of CMakeLists.txt."""
    return fill_template(
        "CMakeLists.txt.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=_format_literal(library.recipe.compiler),
        product=_format_product,
        command=_format_command,
        link=_format_words(library.link_words, library.file, ""),
        headers=HEADERS,
        products=PRODUCTS,
        object_list=OBJECT_LIST,
        recipe=RECIPE,
    )


def _format_product(suffix: str) -> str:
    return f"{PRODUCTS}/${{kernel}}{suffix}"


def _format_command(step: BuildStep) -> str:
    return _format_words(step.words, _format_product(step.product), step.source)


def _format_words(words: Iterable[Word], product: str, source: str) -> str:
    """Format the arguments of a command. Product paths are relative to the build folder, where CMake runs commands."""
    slots = {
        Slot.SOURCE: f'"${{here}}/${{kernel}}{source}"',
        Slot.PRODUCT: f'"{product}"',
        Slot.DEPFILE: f'"{product}.d"',
        Slot.UNIT: '"-cuid=${kernel}"',
        Slot.OBJECTS: f'"@${{here}}/{OBJECT_LIST}"',
    }
    return " ".join(slots[word] if isinstance(word, Slot) else _format_literal(word) for word in words)


def _format_literal(text: str) -> str:
    """Format a text so that CMake reads it literally: as a bracket argument, unless it is plain."""
    if _PLAIN.fullmatch(text):
        return text
    level = "="
    while f"]{level}]" in text:
        level += "="
    return f"[{level}[{text}]{level}]"
