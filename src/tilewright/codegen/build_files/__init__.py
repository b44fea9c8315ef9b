"""Build files that compile a folder of wrappers to one shared library: CMake, Ninja and Make."""

from __future__ import annotations

import re
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
    FolderFile,
    LibraryTarget,
    MachinePath,
    Slot,
    Word,
    split_word,
)
from tilewright.codegen.build_files.template import escape_dollars, fill_template, format_shell_command, quote_text

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
        paths=[(each.variable, _name_variable(each), _format_cmake_literal(each.path)) for each in paths],
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


def _format_cmake_word(paths: Sequence[MachinePath], word: str | FolderFile) -> str:
    """Format a word with variables instead of this machine's paths. Other text around them must be plain."""
    if isinstance(word, FolderFile):
        return f'"${{here}}/{word.name}"'
    split = split_word(word, paths)
    if split and all(not part or _CMAKE_PLAIN.fullmatch(part) for part in (split.before, split.after)):
        return f'"{split.before}${{{_name_variable(split.path)}}}{split.after}"'
    return _format_cmake_literal(word)


def _name_variable(path: MachinePath) -> str:
    """The variable of a build file that holds the path that is used."""
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
    paths = library.recipe.paths
    format_command = partial(
        format_shell_command,
        slots=_NINJA_SLOTS,
        format_text=lambda text: _format_shell_word(paths, text, "${{{}}}"),
    )
    return fill_template(
        "build.ninja.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=_format_default(library.recipe.compiler),
        paths=[(p.variable, _name_variable(p), _format_default(p.path)) for p in paths],
        command=lambda step: format_command(step.words),
        link=format_command(library.link_words),
        edge=_format_ninja_edge,
        object_list=OBJECT_LIST,
    )


def _format_ninja_edge(step: BuildStep, kernel: str) -> str:
    needed = " ".join(["", "|", *step.embedded_products(kernel)]) if step.embeds else ""
    return f"build {step.product_path(kernel)}: {step.name} {kernel}{step.source}{needed}"


def _format_default(path: str) -> str:
    r"""Format a path as the default in `"${VARIABLE:-…}"`, where these characters need a backslash. The shell that runs
    the commands of ninja and make reads the variable: so values may have blanks."""
    return escape_dollars("".join(f"\\{c}" if c in '\\"$`}' else c for c in path))


def _render_make(library: LibraryTarget) -> str:
    """Render a Makefile for GNU make."""
    paths = library.recipe.paths
    format_command = partial(
        format_shell_command,
        slots=_MAKE_SLOTS,
        format_text=lambda text: _format_shell_word(paths, text, "$({})"),
    )
    return fill_template(
        "Makefile.j2",
        library=library,
        steps=library.recipe.steps,
        compiler=_escape_comments(quote_text(library.recipe.compiler)),
        paths=[(p.variable, _name_variable(p), _escape_comments(_format_default(p.path))) for p in paths],
        command=lambda step: format_command(step.words),
        link=format_command(library.link_words),
        prerequisites=_format_make_prerequisites,
        products=PRODUCTS,
        object_list=OBJECT_LIST,
        recipe=RECIPE,
    )


def _escape_comments(value: str) -> str:
    """Escape the value of a make variable: unlike in a recipe, # would start a comment."""
    return value.replace("#", "\\#")


def _format_shell_word(paths: Sequence[MachinePath], text: str, reference: str) -> str:
    """Format a word for make or ninja, with variables instead of this machine's paths."""
    split = split_word(text, paths)
    if split is None:
        return quote_text(text)
    before, after = (quote_text(part) if part else "" for part in (split.before, split.after))
    return f'{before}"{reference.format(_name_variable(split.path))}"{after}'


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
