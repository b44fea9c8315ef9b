"""Build files that compile a folder of wrappers to one shared library: CMake, Ninja and Make."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.base.errors import InvalidValueError, choose
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
from tilewright.codegen.build_files.template import escape_dollars, fill_template, format_shell_command

# Characters with a special meaning in dependency files that the tools do not escape: a name with one of them is split
# or read as a rule. Determined by building with each printable character in a file name and in a folder name, with
# ninja 1.11, GNU make 4.3 and CMake 3.25 (for both); tests/codegen/test_wrap_odd_names.py repeats this.
_NINJA_REFUSED = frozenset("&'*;<>?\\^`|\t")
_MAKE_REFUSED = frozenset(":;=[\\|\t")
_CMAKE_REFUSED = _NINJA_REFUSED | _MAKE_REFUSED | frozenset("#$")
# CMake writes absolute paths into its files.
_CMAKE_REFUSED_FOLDERS = _CMAKE_REFUSED | frozenset('%]"')

_CMAKE_PLAIN = re.compile(r"[A-Za-z0-9_./=+,:-]+")  # needs no quoting
_NINJA_SLOTS = {
    Slot.SOURCE: "$in",
    Slot.PRODUCT: "$out",
    Slot.DEPFILE: "$out.d",
    Slot.UNIT: "-cuid=$kernel",
    Slot.OBJECTS: f"@{OBJECT_LIST}",
}
_MAKE_SLOTS = {
    Slot.SOURCE: "$<",
    Slot.PRODUCT: "$@",
    Slot.DEPFILE: "$@.d",
    Slot.UNIT: "-cuid=$*",
    Slot.OBJECTS: f"@{OBJECT_LIST}",
}


@dataclass(frozen=True)
class BuildSystem:
    """One kind of build file, and the characters it does not support in header names and its folder name."""

    name: str
    file: str
    render: Callable[[LibraryTarget], str]
    use: str  # the build command to show to users
    refused: frozenset[str]
    refused_folders: frozenset[str] = frozenset()

    def check_names(self, headers: Iterable[str], folder: str) -> None:
        """Raise `InvalidValueError` for a name that this build system does not support."""
        for what, path, refused in (
            *(("the header", header, self.refused) for header in headers),
            ("the folder", folder, self.refused_folders),
        ):
            found = next((character for character in path if character in refused), None)
            if found is not None:
                raise InvalidValueError(
                    f"{self.name} does not support {found!r} in the name of {what} {path!r}. "
                    "Rename it, or use another build system."
                )


def find_build_system(name: str) -> BuildSystem:
    """Find a build system by name."""
    known = {system.name: system for system in BUILD_SYSTEMS}
    return known[choose("build system", name, known)]


def _render_cmake(library: LibraryTarget) -> str:
    """Render CMakeLists.txt. No language is enabled: CMake only runs the commands of the recipe."""
    paths = library.recipe.paths
    return fill_template(
        "CMakeLists.txt.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=_format_cmake_literal(library.recipe.compiler),
        paths=[(each.variable, _name_cmake_variable(each), _format_cmake_literal(each.path)) for each in paths],
        product=_format_cmake_product,
        command=partial(_format_cmake_command, paths),
        link=_format_cmake_words(paths, library.link_words, library.file, ""),
        headers=HEADERS,
        products=PRODUCTS,
        object_list=OBJECT_LIST,
        recipe=RECIPE,
    )


def _format_cmake_product(suffix: str) -> str:
    return f"{PRODUCTS}/${{kernel}}{suffix}"


def _format_cmake_command(paths: Sequence[MachinePath], step: BuildStep) -> str:
    return _format_cmake_words(paths, step.words, _format_cmake_product(step.product), step.source)


def _format_cmake_words(paths: Sequence[MachinePath], words: Iterable[Word], product: str, source: str) -> str:
    """Format the arguments of a command. Product paths are relative to the build folder, where CMake runs commands."""
    slots = {
        Slot.SOURCE: f'"${{here}}/${{kernel}}{source}"',
        Slot.PRODUCT: f'"{product}"',
        Slot.DEPFILE: f'"{product}.d"',
        Slot.UNIT: '"-cuid=${kernel}"',
        Slot.OBJECTS: f'"@${{here}}/{OBJECT_LIST}"',
    }
    return " ".join(slots[word] if isinstance(word, Slot) else _format_cmake_word(paths, word) for word in words)


def _format_cmake_word(paths: Sequence[MachinePath], text: str) -> str:
    """Format a word with variables instead of this machine's paths. Other text around them must be plain."""
    for each in sorted(paths, key=lambda each: -len(each.path)):
        before, found, after = text.partition(each.path)
        whole = found and (not after or after[0] in "/=")
        if whole and all(not part or _CMAKE_PLAIN.fullmatch(part) for part in (before, after)):
            return f'"{before}${{{_name_cmake_variable(each)}}}{after}"'
    return _format_cmake_literal(text)


def _name_cmake_variable(path: MachinePath) -> str:
    return path.variable.lower()


def _format_cmake_literal(text: str) -> str:
    """Format a text so that CMake reads it literally: as a bracket argument, unless it is plain."""
    if _CMAKE_PLAIN.fullmatch(text):
        return text
    level = "="
    while f"]{level}]" in text:
        level += "="
    return f"[{level}[{text}]{level}]"


def _render_ninja(library: LibraryTarget) -> str:
    """Render build.ninja."""
    return fill_template(
        "build.ninja.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=escape_dollars(_format_shell_default(library.recipe.compiler)),
        command=lambda step: format_shell_command(step.words, _NINJA_SLOTS),
        link=format_shell_command(library.link_words, _NINJA_SLOTS),
        edge=_format_ninja_edge,
        object_list=OBJECT_LIST,
    )


def _format_ninja_edge(step: BuildStep, kernel: str) -> str:
    needed = " ".join(["", "|", *step.embedded_products(kernel)]) if step.embeds else ""
    return f"build {step.product_path(kernel)}: {step.name} {kernel}{step.source}{needed}"


def _format_shell_default(path: str) -> str:
    r"""Format a path as the default in `"${VARIABLE:-…}"`, where these characters need a backslash."""
    return "".join(f"\\{c}" if c in '\\"$`}' else c for c in path)


def _render_make(library: LibraryTarget) -> str:
    """Render a Makefile for GNU make."""
    return fill_template(
        "Makefile.j2",
        library=library,
        steps=library.recipe.steps,
        # In the value of a variable, unlike in a recipe, # would start a comment.
        compiler=escape_dollars(shlex.quote(library.recipe.compiler)).replace("#", "\\#"),
        command=lambda step: format_shell_command(step.words, _MAKE_SLOTS),
        link=format_shell_command(library.link_words, _MAKE_SLOTS),
        prerequisites=_format_make_prerequisites,
        products=PRODUCTS,
        object_list=OBJECT_LIST,
        recipe=RECIPE,
    )


def _format_make_prerequisites(step: BuildStep) -> str:
    return " ".join([f"%{step.source}", *(f"{PRODUCTS}/%{need}" for need in step.needs), RECIPE])


BUILD_SYSTEMS = (
    BuildSystem(
        "cmake",
        "CMakeLists.txt",
        _render_cmake,
        "cmake -B build && cmake --build build",
        _CMAKE_REFUSED,
        _CMAKE_REFUSED_FOLDERS,
    ),
    BuildSystem("ninja", "build.ninja", _render_ninja, "ninja", _NINJA_REFUSED),
    BuildSystem("make", "Makefile", _render_make, "make -j", _MAKE_REFUSED),
)
