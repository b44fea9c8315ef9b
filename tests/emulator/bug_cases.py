"""The kernels of seeded_bugs/: reading the cases, compiling them, and running one with all checks."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tilewright.arch import load
from tilewright.building import compile_device, find_toolchain
from tilewright.emulator import EmulatedDevice, Extent, Fault, Launch, Memory, Mode
from tilewright.emulator.sanitizer.findings import Finding, make_fault_finding

FOLDER = Path(__file__).with_name("seeded_bugs")
CHECKS = "uninitialized,races,barriers,progress"
_CASE = re.compile(r"// case (\w+): ([\w-]+)(?:, grid (\d+))?")
_ELEMENTS = 4096


@dataclass(frozen=True)
class BugCase:
    name: str
    file: str
    finding: str
    groups: int
    lines: frozenset[int]  # that the report must name


@cache
def read_cases() -> dict[str, BugCase]:
    found: dict[str, BugCase] = {}
    for path in sorted(FOLDER.glob("*.hip")):
        last: list[str] = []
        marks: dict[str, set[int]] = {}
        heads: dict[str, re.Match[str]] = {}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := _CASE.match(line):
                last = [match[1]]
                heads[match[1]] = match
                marks[match[1]] = set()
            elif line.endswith("// here"):
                marks[last[0]].add(number)
        for name, head in heads.items():
            found[name] = BugCase(name, path.name, head[2], int(head[3] or 1), frozenset(marks[name]))
    return found


def compile_cases(file: str, gpu: str, fixed: bool, folder: Path) -> bytes:
    """Return the code object with all kernels of a file."""
    out = folder / f"{file}.{gpu}.{fixed}.co"
    if not out.exists():
        flags = ("-gline-tables-only", "-Wno-everything", *(("-DFIXED",) if fixed else ()))
        outcome = compile_device(
            (FOLDER / file).read_text(),
            load(gpu),
            find_toolchain(with_ck=False),
            out,
            files={"cases.hpp": (FOLDER / "cases.hpp").read_text()},
            extra_flags=flags,
        )
        assert outcome.ok, outcome.log
    return out.read_bytes()


def run_case(device: EmulatedDevice, code: bytes, case: BugCase, mode: Mode = Mode.STRICT) -> list[Finding]:
    """Run a kernel with all checks; return all findings, a fault among them."""
    return run_cases(device, code, [case], mode)[case.name]


def run_cases(
    device: EmulatedDevice, code: bytes, cases: list[BugCase], mode: Mode = Mode.STRICT
) -> dict[str, list[Finding]]:
    memory = device.memory
    memory.track_writes()
    module = device.load(code)
    found: dict[str, list[Finding]] = {}
    for case in cases:
        findings: list[Finding] = found.setdefault(case.name, [])
        out, given, raw = (memory.allocate(4 * _ELEMENTS, label) for label in ("out", "in", "raw"))
        flags = memory.allocate(4 * 64, "flags")
        memory.fill(out, 0, 4 * _ELEMENTS)
        memory.fill(flags, 0, 4 * 64)
        memory.write(given, np.arange(_ELEMENTS, dtype=np.int32).tobytes())
        arguments = struct.pack("QQQQi", out, given, flags, raw, 1000)
        launch = Launch(Extent(case.groups), Extent(256), arguments)
        try:
            device.launch(
                module.kernels[case.name], launch, mode, checks=CHECKS, found=findings.append, limit=50_000_000
            )
        except Fault as fault:
            findings.append(make_fault_finding(fault, device.arch.name))
        for address in (out, given, raw, flags):
            memory.free(address)
    device.unload(module)
    return found


def make_device(gpu: str) -> EmulatedDevice:
    return EmulatedDevice(load(gpu), Memory(1 << 28))
