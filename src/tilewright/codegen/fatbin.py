"""Code objects as clang's offload bundle, written with assembler directives only.

The host pass of a HIP source leaves one symbol undefined: the start of its device code. The assembly rendered here
defines it, so that embedding code objects in a library needs no tool except the compiler.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from tilewright.base.errors import InvalidValueError

# clang's OffloadBundler.cpp: the magic text of an uncompressed bundle.
MAGIC = "__CLANG_OFFLOAD_BUNDLE__"
# Code objects are mapped page by page, and clang aligns them and the bundle to this (CGCUDANV.cpp, "CodeAlign").
PAGE = 4096
# The first entry of HIP's bundles: the host, without content. HIP reads only the others.
HOST_ENTRY = "host-x86_64-unknown-linux-gnu-"
# "hipv4" is the name of HIP's entries since code object version 4 (clang's manual, "Bundle Entry ID").
DEVICE_ENTRY = "hipv4-amdgcn-amd-amdhsa--"

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GPU = re.compile(r"gfx[0-9a-f]+(:[a-z]+[+-])*")
# Characters that the assembler reads literally between quotes.
_FILE = re.compile(r"[A-Za-z0-9_./+-]+")


def fatbin_symbol(unit: str) -> str:
    """The symbol that the host pass leaves undefined in a unit compiled with `-cuid=<unit>`.

    clang appends the low half of the unit's MD5 to it, in hexadecimal without leading zeros
    (CGCUDANV.cpp and ASTContext::getCUIDHash).
    """
    digest = hashlib.md5(unit.encode(), usedforsecurity=False).digest()
    return f"__hip_fatbin_{int.from_bytes(digest[:8], 'little'):x}"


def render_fatbin(code_objects: Mapping[str, str], symbol: str) -> str:
    """Render assembly that defines `symbol` as a bundle of code objects: GPU → file, relative to where it is assembled.

    The bytes of each file are included when the assembly is assembled.
    """
    _require_match(_SYMBOL, symbol, "an assembler symbol")
    if not code_objects:
        raise InvalidValueError(f"{symbol} needs at least 1 code object, got 0")
    for gpu, file in code_objects.items():
        _require_match(_GPU, gpu, "a GPU")
        _require_match(_FILE, file, "a file name that the assembler reads literally")
    entries = [_format_entry(HOST_ENTRY, ".Lhost_begin - .Lbundle", "0")]
    contents = []
    for number, (gpu, file) in enumerate(code_objects.items()):
        begin, end = f".Lcode{number}_begin", f".Lcode{number}_end"
        entries.append(_format_entry(f"{DEVICE_ENTRY}{gpu}", f"{begin} - .Lbundle", f"{end} - {begin}"))
        contents += [f"\t.balign {PAGE}", f"{begin}:", f'\t.incbin "{file}"', f"{end}:"]
    lines = [
        '\t.section .hip_fatbin,"a",@progbits',
        f"\t.globl {symbol}",
        f"\t.hidden {symbol}",
        f"\t.balign {PAGE}",
        f"{symbol}:",
        ".Lbundle:",
        f'\t.ascii "{MAGIC}"',
        f"\t.quad {len(entries)}",
        *(line for entry in entries for line in entry),
        f"\t.balign {PAGE}",
        ".Lhost_begin:",
        *contents,
        # Without this section the linker would make the stack of the whole program executable.
        '\t.section .note.GNU-stack,"",@progbits',
    ]
    return "\n".join(lines) + "\n"


def _format_entry(name: str, offset: str, size: str) -> tuple[str, ...]:
    return (f"\t.quad {offset}", f"\t.quad {size}", f"\t.quad {len(name)}", f'\t.ascii "{name}"')


def _require_match(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise InvalidValueError(f"{text!r} is not {what}: it must match {pattern.pattern}")
