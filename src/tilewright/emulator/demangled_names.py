"""Kernel names as the source has them: C++ compilers write them into code objects in a mangled form.

A C++ library translates them inside of this process. Names that it does not know (that of GCC 12 knows no 16-bit
floats) are translated by LLVM's `llvm-cxxfilt`, if it is next to the disassembler. Without both, a name stays mangled.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

from tilewright.base.errors import ToolchainError

# GCC's and LLVM's C++ libraries; each has `__cxa_demangle` of the Itanium C++ ABI.
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
_MANGLED = "_Z"
# GCC's translator needs stack in proportion to the name, some 100 bytes per character: this is 2 of 8 MiB.
_LONGEST = 20_000
# Letters of a short name. Template arguments of CK Tile's kernels have thousands of letters.
_SHORT = 80
_FILTER_SECONDS = 20
_CUT = "<…>"
_ANONYMOUS = "(anonymous namespace)"
_DEPTHS = {"(": 1, "<": 1, ")": -1, ">": -1}
_OPERATORS = re.compile(r"operator(\(\)|<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>)|->")


@lru_cache(maxsize=1024)
def demangle(symbol: str) -> str:
    """Return the full name of a symbol with its parameters: `add(float const*, float*, int)`.

    A symbol that is not mangled, or that no library translates, is returned as it is.
    """
    if not symbol.startswith(_MANGLED) or len(symbol) > _LONGEST or "\0" in symbol:
        return symbol
    for translate in (*_list_library_translators(), _run_filter):
        if (name := translate(symbol)) is not None:
            return name
    return symbol


@lru_cache(maxsize=1024)
def shorten_name(symbol: str) -> str:
    """Return the name of a symbol without return type and parameters, for tables: `add`, `scale<float, 4>`.

    Template arguments are cut if the name is longer than 80 characters. Equal short names may belong to two kernels.
    """
    full = demangle(symbol)
    if full == symbol:
        return symbol
    name = _drop_return_type(_drop_parameters(full))
    return name if len(name) <= _SHORT else _cut_template_arguments(name)


def _drop_parameters(name: str) -> str:
    """Drop the last parentheses outside of other brackets, and the text after them."""
    depth, end = 0, len(name)
    for at, letter in _list_brackets(name):
        if letter == "(" and depth == 0 and not name.startswith(_ANONYMOUS, at):
            end = at
        depth += _DEPTHS[letter]
    return name[:end]


def _drop_return_type(name: str) -> str:
    """Drop the text before the last space outside of brackets: templates are mangled with their return type."""
    brackets = dict(_list_brackets(name))
    depth, start = 0, 0
    for at, letter in enumerate(name):
        if letter == " " and depth == 0:
            start = at + 1
        depth += _DEPTHS[letter] if at in brackets else 0
    return name[start:]


def _cut_template_arguments(name: str) -> str:
    parts, depth, start = [], 0, 0
    for at, letter in _list_brackets(name):
        if letter == "<" and depth == 0:
            parts.append(name[start:at] + _CUT)
        depth += _DEPTHS[letter]
        if letter == ">" and depth == 0:
            start = at + 1
    return "".join(parts) + name[start:]


def _list_brackets(name: str) -> list[tuple[int, str]]:
    """List the brackets of a name with their places; those of operators, such as `operator<<`, are none."""
    operators = {at for match in _OPERATORS.finditer(name) for at in range(*match.span())}
    return [(at, letter) for at, letter in enumerate(name) if letter in _DEPTHS and at not in operators]


def _run_filter(symbol: str) -> str | None:
    """Translate a name with llvm-cxxfilt; None if it is not there or does not know the name."""
    path = _find_filter()
    if path is None:
        return None
    from tilewright.building.process import read_tool_output  # noqa: PLC0415 - takes long to import

    try:
        name = read_tool_output([str(path), symbol], timeout_s=_FILTER_SECONDS).strip()
    except ToolchainError:  # a name is worth less than the message in which it stands
        return None
    return name if name != symbol else None


@cache
def _find_filter() -> Path | None:
    from tilewright.emulator.disassembly import find_objdump  # noqa: PLC0415 - it imports faults, which have names

    try:
        objdump = find_objdump()
    except ToolchainError:  # the error is reported where code is disassembled
        return None
    if objdump is None:
        return None
    path = objdump.with_name(objdump.name.replace("objdump", "cxxfilt"))
    return path if path != objdump and path.is_file() else None


@cache
def _list_library_translators() -> tuple[Callable[[str], str | None], ...]:
    found = []
    for name in _LIBRARIES:
        try:
            found.append(_make_translator(ctypes.CDLL(name)))
        except OSError:  # this library is not installed
            continue
    return tuple(found)


def _make_translator(library: ctypes.CDLL) -> Callable[[str], str | None]:
    function = library.__cxa_demangle
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    function.restype = ctypes.c_void_p  # not c_char_p: the text must be freed
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free.restype = None

    def translate(symbol: str) -> str | None:
        text = function(symbol.encode(), None, None, None)
        if text is None:
            return None
        try:
            return ctypes.string_at(text).decode(errors="replace")
        finally:
            free(text)

    return translate
