"""Parse operands in the notation of LLVM's disassembler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tilewright.emulator.instruction import EXEC, FLAT_SCRATCH, M0, SCALARS, TTMP, VCC, Operand

_XNACK_MASK = 104

# Named scalar registers: index and count.
_NAMED: Mapping[str, tuple[int, int]] = {
    name: place
    for whole, index in (("vcc", VCC), ("exec", EXEC), ("flat_scratch", FLAT_SCRATCH), ("xnack_mask", _XNACK_MASK))
    for name, place in ((whole, (index, 2)), (f"{whole}_lo", (index, 1)), (f"{whole}_hi", (index + 1, 1)))
} | {"m0": (M0, 1)}
_SPECIAL = re.compile(r"src_\w+")
_REGISTER = re.compile(r"(v|a|s|ttmp)(?:(\d+)|\[(\d+)(?::(\d+))?\])(?:\.([lh]))?")
_WHOLE = re.compile(r"-?(?:0x[0-9a-f]+|\d+)")
_DECIMAL = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\(.*\))?")
_WRAPPED = re.compile(r"(lit|lit64|sext|neg|abs)\((.*)\)")
_MOST = {"v": 256, "a": 256, "s": SCALARS, "ttmp": 16}


def parse_operand(text: str) -> Operand | None:
    """Parse an operand; None if its form is unknown."""
    if text in ("off", "null"):
        return Operand("none", name=text)
    if match := _REGISTER.fullmatch(text):
        return _parse_register(match)
    if text in _NAMED:
        index, count = _NAMED[text]
        return Operand("s", index, count)
    if _WHOLE.fullmatch(text):
        return Operand("const", value=int(text, 0))
    if _DECIMAL.fullmatch(text):
        return Operand("const", value=float(text))
    return _parse_modified(text)


def _parse_register(match: re.Match[str]) -> Operand | None:
    kind, single, first, last, half = match.groups()
    low = int(single or first)
    high = int(last) if last else low
    if high < low or high >= _MOST[kind]:
        return None
    if kind == "ttmp":
        return Operand("s", TTMP + low, high - low + 1)
    return Operand(kind, low, high - low + 1, half=half or "")  # type: ignore[arg-type]


def _parse_modified(text: str) -> Operand | None:
    """Parse an operand inside a sign, bars or a function; else a name."""
    if text.startswith("-"):
        inner = parse_operand(text[1:])
        return replace(inner, negated=not inner.negated) if inner else None
    if text.startswith("|") and text.endswith("|") and len(text) > 2:
        inner = parse_operand(text[1:-1])
        return replace(inner, absolute=True) if inner else None
    if match := _WRAPPED.fullmatch(text):
        inner = parse_operand(match[2])
        return _apply_function(match[1], inner) if inner else None
    if _SPECIAL.fullmatch(text):
        return Operand("special", name=text)
    return Operand("word", name=text) if _WORD.fullmatch(text) else None


def _apply_function(function: str, inner: Operand) -> Operand:
    if function == "sext":
        return replace(inner, sign_extended=True)
    if function == "neg":
        return replace(inner, negated=not inner.negated)
    return replace(inner, absolute=True) if function == "abs" else inner
