"""Decode all code objects in a folder: can the emulated device load each, and does it know every instruction?

    python tools/decode_code_objects.py FOLDER [--json FILE]

The GPU of a file is the first part of its path that names one (…/gfx942/…/kernel.co).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import tilewright.arch
from tilewright.base.errors import TilewrightError
from tilewright.building.code_object import parse_lines
from tilewright.building.disassembled import DisassembledLine
from tilewright.building.discover import discover
from tilewright.building.process import read_tool_output
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_object import read_code_object
from tilewright.emulator.descriptor import read_descriptor
from tilewright.emulator.faults import Fault
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.native.lower import lower_line_alone
from tilewright.emulator.program import FaultStep, Program, make_listing

_REGISTERS = 512
# Numbers of registers and offsets, which do not decide whether an instruction is known.
_SINGLE = re.compile(r"\b([asv])\d+\b")
_RANGE = re.compile(r"\b([asv])\[(\d+):(\d+)\]")
_OFFSET = re.compile(r"(offset[01]?):(?:-?\d+|0x[0-9a-f]+)")


@dataclass
class Figures:
    """What was found for one GPU."""

    files: int = 0
    loaded: int = 0
    known: int = 0  # files with only known instructions
    native: int = 0  # files with only instructions of the native engine
    instructions: int = 0
    unknown: Counter[str] = field(default_factory=Counter)  # by reason
    numpy_only: Counter[str] = field(default_factory=Counter)  # by mnemonic
    errors: list[str] = field(default_factory=list)


def find_gpu(path: Path) -> str | None:
    """Return the GPU that a path names."""
    return next((part for part in path.parts if part in EMULATED), None)


def normalize(text: str) -> str:
    """Return the form of an instruction: its text without the numbers of registers and offsets."""
    text = _RANGE.sub(lambda m: f"{m[1]}[{int(m[2]) % 2}+{int(m[3]) - int(m[2])}]", text)
    text = _OFFSET.sub(r"\1:#", _SINGLE.sub(r"\1#", text))
    return text.split()[0] if text.startswith(("s_branch", "s_cbranch")) else text


@cache
def make_code(gpu: str) -> LoadedCode:
    """Return a kernel's surroundings with as many registers as the GPU has."""
    arch = tilewright.arch.load(gpu)
    return LoadedCode(arch, "kernel", arch.wave_size, _REGISTERS // 2 if gpu.startswith("gfx9") else 0, 0)


class Decoder:
    """Decides for each form of an instruction once."""

    def __init__(self, gpu: str) -> None:
        self._gpu = gpu
        self._texts: dict[str, tuple[str, str]] = {}
        self._forms: dict[str, tuple[str, str]] = {}

    def decode(self, printed: str) -> tuple[str, str] | None:
        """Return "native", "numpy" or "unknown", with the reason; None for a line without an instruction."""
        text, separator, _ = printed.partition("//")
        if not separator:
            return None
        if text not in self._texts:
            form = normalize(text.strip())
            if form not in self._forms:
                (line,) = parse_lines(printed)
                self._forms[form] = self._decode_form(line)
            self._texts[text] = self._forms[form]
        return self._texts[text]

    def _decode_form(self, line: DisassembledLine) -> tuple[str, str]:
        code = make_code(self._gpu)
        listing = make_listing([line])
        program = Program(lambda: listing, code, _REGISTERS)
        _, _, step = program.translate_at(line.address)
        if isinstance(step, FaultStep):
            return "unknown", str(step.fault).splitlines()[0]
        try:
            lowered = lower_line_alone(program, code, line.address)
        except Fault:
            lowered = None
        return ("numpy", line.text.split()[0]) if lowered is None else ("native", "")


def decode_file(path: Path, gpu: str, objdump: str, decoder: Decoder, figures: Figures) -> None:
    """Add a file to the figures."""
    figures.files += 1
    try:
        found = read_code_object(path.read_bytes())
        for kernel in found.kernels:
            address, descriptor = found.find_descriptor(kernel)
            read_descriptor(descriptor, address, gpu)
        listing = read_tool_output([objdump, "--disassemble", f"--mcpu={gpu}", str(path)], timeout_s=600)
    except TilewrightError as error:
        figures.errors.append(f"{path}: {error}")
        return
    figures.loaded += 1
    kinds: set[str] = set()
    for printed in listing.splitlines():
        result = decoder.decode(printed)
        if result is None:
            continue
        figures.instructions += 1
        kind, reason = result
        kinds.add(kind)
        if kind == "unknown":
            figures.unknown[reason] += 1
        elif kind == "numpy":
            figures.numpy_only[reason] += 1
    figures.known += "unknown" not in kinds
    figures.native += kinds <= {"native"}


def find_objdump() -> str:
    """Return the path of LLVM's disassembler."""
    found = next((part.path for part in discover().parts if part.name == "objdump" and part.ok), None)
    if found is None:
        raise SystemExit("LLVM's disassembler is missing: `tilewright doctor` shows the toolchain.")
    return str(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with *.co files, searched with all its subfolders")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as JSON")
    given = parser.parse_args()
    objdump = find_objdump()
    figures: dict[str, Figures] = {}
    decoders: dict[str, Decoder] = {}
    for path in sorted(given.folder.rglob("*.co")):
        gpu = find_gpu(path)
        if gpu is None:
            print(f"{path}: its path names no emulated GPU ({', '.join(EMULATED)})", file=sys.stderr)
            return 2
        decode_file(path, gpu, objdump, decoders.setdefault(gpu, Decoder(gpu)), figures.setdefault(gpu, Figures()))
    for gpu, one in figures.items():
        print(f"{gpu}: {one.files} files, {one.loaded} loaded, {one.known} with only known instructions, ", end="")
        print(f"{one.native} of them native; {one.instructions} instructions, {one.unknown.total()} unknown")
        for reason, count in (*one.unknown.most_common(), *one.numpy_only.most_common()):
            print(f"  {count} × {reason}")
        for error in one.errors:
            print(f"  {error}")
    if given.json is not None:
        rows = {gpu: {**vars(one), "errors": len(one.errors)} for gpu, one in figures.items()}
        given.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return int(any(one.known < one.files for one in figures.values()))


if __name__ == "__main__":
    raise SystemExit(main())
