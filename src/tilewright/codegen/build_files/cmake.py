"""Render CMakeLists.txt. No language is enabled: CMake only runs the commands of the recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial

from tilewright.codegen.build_files.recipe import (
    HEADERS,
    OBJECT_LIST,
    PRODUCTS,
    RECIPE,
    BuildStep,
    LibraryTarget,
    MachinePath,
    Slot,
    Word,
)
from tilewright.codegen.build_files.template import fill_template

FILE = "CMakeLists.txt"
_PLAIN = re.compile(r"[A-Za-z0-9_./=+,:-]+")


def render(library: LibraryTarget) -> str:
    """Render the text of CMakeLists.txt."""
    paths = library.recipe.paths
    return fill_template(
        "CMakeLists.txt.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=_format_literal(library.recipe.compiler),
        paths=[(each.variable, _name_local(each), _format_literal(each.path)) for each in paths],
        product=_format_product,
        command=partial(_format_command, paths),
        link=_format_words(paths, library.link_words, library.file, ""),
        headers=HEADERS,
        products=PRODUCTS,
        object_list=OBJECT_LIST,
        recipe=RECIPE,
    )


def _format_product(suffix: str) -> str:
    return f"{PRODUCTS}/${{kernel}}{suffix}"


def _format_command(paths: Sequence[MachinePath], step: BuildStep) -> str:
    return _format_words(paths, step.words, _format_product(step.product), step.source)


def _format_words(paths: Sequence[MachinePath], words: Iterable[Word], product: str, source: str) -> str:
    """Format the arguments of a command. Product paths are relative to the build folder, where CMake runs commands."""
    slots = {
        Slot.SOURCE: f'"${{here}}/${{kernel}}{source}"',
        Slot.PRODUCT: f'"{product}"',
        Slot.DEPFILE: f'"{product}.d"',
        Slot.UNIT: '"-cuid=${kernel}"',
        Slot.OBJECTS: f'"@${{here}}/{OBJECT_LIST}"',
    }
    return " ".join(slots[word] if isinstance(word, Slot) else _format_word(paths, word) for word in words)


def _format_word(paths: Sequence[MachinePath], text: str) -> str:
    """Format a word with variables instead of this machine's paths. Other text around them must be plain."""
    for each in sorted(paths, key=lambda each: -len(each.path)):
        before, found, after = text.partition(each.path)
        whole = found and (not after or after[0] in "/=")
        if whole and all(not part or _PLAIN.fullmatch(part) for part in (before, after)):
            return f'"{before}${{{_name_local(each)}}}{after}"'
    return _format_literal(text)


def _name_local(path: MachinePath) -> str:
    return path.variable.lower()


def _format_literal(text: str) -> str:
    """Format a text so that CMake reads it literally: as a bracket argument, unless it is plain."""
    if _PLAIN.fullmatch(text):
        return text
    level = "="
    while f"]{level}]" in text:
        level += "="
    return f"[{level}[{text}]{level}]"
