"""Parse the text of LLVM's disassembler into instructions. Nothing else reads that text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from tilewright.arch.spec import Arch
from tilewright.base.errors import ToolchainError
from tilewright.base.knobs import PYPI
from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import CodeObjectError, UnknownInstructionFault
from tilewright.emulator.instruction import EXEC, FLAT_SCRATCH, M0, SCALARS, TTMP, VCC, Instruction, Modifier, Operand
from tilewright.emulator.tools import get_given_tools

_ENCODING = re.compile(r"(\w+?)_(e64_dpp|e32|e64|dpp|sdwa)")
_MODIFIER = re.compile(r"([a-z_0-9]+):(.+)")
_WHOLE = re.compile(r"-?(?:0x[0-9a-f]+|\d+)")
# Modifiers without a value.
_FLAGS = frozenset({
    "offen", "idxen", "glc", "slc", "dlc", "sc0", "sc1", "nt", "scc", "nv", "lds", "gds", "tfe", "clamp",
    "row_mirror", "row_half_mirror", "wave_shl", "wave_rol", "wave_shr", "wave_ror",
})  # fmt: skip
# The rest of these lines is not a list of operands, but counters and hints in their own notation.
_WORDED = re.compile(r"s_waitcnt(_depctr)?|s_wait_alu|s_delay_alu|s_version")
# The lower 16 bits of the first word are the distance from the next instruction to the target, in words.
_RELATIVE = re.compile(r"s_branch|s_cbranch_\w+|s_call_b64|s_call_i64|s_subvector_loop_\w+")
_XNACK_MASK = 104
# Named scalar registers: index and count.
_NAMED: Mapping[str, tuple[int, int]] = {
    name: place
    for whole, index in (("vcc", VCC), ("exec", EXEC), ("flat_scratch", FLAT_SCRATCH), ("xnack_mask", _XNACK_MASK))
    for name, place in ((whole, (index, 2)), (f"{whole}_lo", (index, 1)), (f"{whole}_hi", (index + 1, 1)))
} | {"m0": (M0, 1)}
_SPECIAL = re.compile(r"src_\w+")
_REGISTER = re.compile(r"(v|a|s|ttmp)(?:(\d+)|\[(\d+)(?::(\d+))?\])(?:\.([lh]))?")
_DECIMAL = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\(.*\))?")
_WRAPPED = re.compile(r"(lit|lit64|sext|neg|abs)\((.*)\)")
# LLVM's remark behind a constant that it would not encode there itself, such as a float as the scale of v_mfma_scale.
_REMARK = re.compile(r"/\*Invalid immediate\*/")
_MOST = {"v": 256, "a": 256, "s": SCALARS, "ttmp": 16}


def disassemble(code: bytes, arch: Arch) -> tuple[DisassembledLine, ...]:
    """Return the instructions of a code object as text. Code that the disassembler rejects is a `CodeObjectError`."""
    import tempfile  # noqa: PLC0415 - both take long to import

    from tilewright.building.code_object import read_disassembly  # noqa: PLC0415

    objdump = find_objdump()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "kernel.co"
        path.write_bytes(code)
        try:
            return read_disassembly(path, arch, objdump)
        except ToolchainError as error:
            raise CodeObjectError(f"it cannot be disassembled: {error}") from error


@cache
def find_objdump() -> Path | None:
    """Return the path of LLVM's disassembler in the current toolchain; None if it lists code when it compiles it."""
    if (given := get_given_tools()) is not None:
        return given.objdump
    from tilewright.building.discover import discover  # noqa: PLC0415 - takes long to import

    found = discover()
    if found.chosen == PYPI:
        return None
    parts = {part.name: part for part in found.parts}
    objdump = parts.get("objdump")
    if objdump is None or objdump.path is None or not objdump.ok:
        lacking = objdump or next(iter(parts.values()))
        raise ToolchainError(f"the emulated device needs LLVM's disassembler: {lacking}")
    return objdump.path


def parse_line(line: DisassembledLine) -> Instruction:
    """Parse a line into an instruction, or raise `UnknownInstructionFault` that names the unknown part."""
    halves = line.text.split(" :: ")
    if len(halves) > 2:
        raise _make_unknown_fault("more than two instructions in one", line)
    second = _parse_half(halves[1], line, None) if len(halves) == 2 else None
    return _parse_half(halves[0], line, second)


def find_branch_target(line: DisassembledLine) -> int | None:
    """Return the target of a relative branch or call, or None for any other instruction."""
    if not _RELATIVE.fullmatch(line.text.partition(" ")[0]):
        return None
    distance = (line.words[0] & 0xFFFF ^ 0x8000) - 0x8000
    return line.address + 4 + 4 * distance


def _parse_half(text: str, line: DisassembledLine, other: Instruction | None) -> Instruction:
    printed, _, rest = text.partition(" ")
    match = _ENCODING.fullmatch(printed)
    mnemonic, encoding = (match[1], match[2]) if match else (printed, "")
    target = find_branch_target(line)
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, Modifier] = {}
    if _WORDED.fullmatch(printed):
        operands = (Operand("word", name=rest.strip()),)
    elif target is not None:
        # Calls name the return-address register first.
        before = _split_text(rest, ",")[:-1]
        operands = (*(_read_operand(text, line) for text in before), Operand("const", value=target))
    else:
        operands, modifiers = _parse_operands(_REMARK.sub("", rest), line)
    return Instruction(line.address, line.size, mnemonic, operands, line.text, encoding, modifiers, other)


def _parse_operands(rest: str, line: DisassembledLine) -> tuple[tuple[Operand, ...], Mapping[str, Modifier]]:
    """Commas separate operands; modifiers follow after spaces, or stand alone."""
    operands: list[Operand] = []
    modifiers: dict[str, Modifier] = {}
    for piece in _split_text(rest, ","):
        first, *others = _split_text(piece, " ")
        if _is_modifier(first):
            others = [first, *others]
        else:
            operands.append(_read_operand(first, line))
        for text in others:
            name, value = _parse_modifier(text, line)
            if name in modifiers:
                raise _make_unknown_fault(f"the modifier '{name}' twice", line)
            modifiers[name] = value
    return tuple(operands), modifiers


def _is_modifier(text: str) -> bool:
    return text in _FLAGS or _MODIFIER.fullmatch(text) is not None


def _read_operand(text: str, line: DisassembledLine) -> Operand:
    operand = parse_operand(text)
    if operand is None:
        raise _make_unknown_fault(f"the operand '{text}'", line)
    return operand


@lru_cache(65536)
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


def _parse_modifier(text: str, line: DisassembledLine) -> tuple[str, Modifier]:
    if text in _FLAGS:
        return text, True
    match = _MODIFIER.fullmatch(text)
    if match is None:
        raise _make_unknown_fault(f"the modifier '{text}'", line)
    name, value = match.groups()
    if _WHOLE.fullmatch(value):
        return name, int(value, 0)
    if value.startswith("[") and value.endswith("]"):
        items = [item.strip() for item in value[1:-1].split(",")]
        if not all(_WHOLE.fullmatch(item) for item in items):
            raise _make_unknown_fault(f"the modifier '{text}'", line)
        return name, tuple(int(item, 0) for item in items)
    if value.startswith("swizzle("):
        # The name of a pattern; its value is the offset field of the encoding (DS, bits 0 to 15).
        return name, line.words[0] & 0xFFFF
    return name, value


def _split_text(text: str, separator: str) -> list[str]:
    """Split a text at separators that are not inside brackets."""
    if "[" not in text and "(" not in text:
        return [part for each in text.split(separator) if (part := each.strip())]
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in "[(":
            depth += 1
        elif character in "])":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _make_unknown_fault(what: str, line: DisassembledLine) -> UnknownInstructionFault:
    return UnknownInstructionFault(f"{what} is not supported", CodePlace(address=line.address, instruction=line.text))
