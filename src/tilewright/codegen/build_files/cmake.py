"""Render CMakeLists.txt. No language is enabled: CMake only runs the commands of the recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.codegen.build_files.recipe import (
    HEADERS,
    OBJECT_LIST,
    PRODUCTS,
    RECIPE,
    Library,
    Slot,
    Step,
    Word,
)
from tilewright.codegen.build_files.template import fill

FILE = "CMakeLists.txt"
_PLAIN = re.compile(r"[A-Za-z0-9_./=+,:-]+")


def render(library: Library) -> str:
    """Render the text of CMakeLists.txt."""
    return fill(
        "CMakeLists.txt.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=_literal(library.recipe.compiler),
        product=_product,
        command=_command,
        link=_words(library.link_words, library.file, ""),
        headers=HEADERS,
        products=PRODUCTS,
        object_list=OBJECT_LIST,
        recipe=RECIPE,
    )


def _product(suffix: str) -> str:
    return f"{PRODUCTS}/${{kernel}}{suffix}"


def _command(step: Step) -> str:
    return _words(step.words, _product(step.product), step.source)


def _words(words: Iterable[Word], product: str, source: str) -> str:
    """Format the arguments of a command. Product paths are relative to the build folder, where CMake runs commands."""
    slots = {
        Slot.SOURCE: f'"${{here}}/${{kernel}}{source}"',
        Slot.PRODUCT: f'"{product}"',
        Slot.DEPFILE: f'"{product}.d"',
        Slot.UNIT: '"-cuid=${kernel}"',
        Slot.OBJECTS: f'"@${{here}}/{OBJECT_LIST}"',
    }
    return " ".join(slots[word] if isinstance(word, Slot) else _literal(word) for word in words)


def _literal(text: str) -> str:
    """Format a text so that CMake reads it literally: as a bracket argument, unless it is plain."""
    if _PLAIN.fullmatch(text):
        return text
    level = "="
    while f"]{level}]" in text:
        level += "="
    return f"[{level}[{text}]{level}]"
