"""The instruction table compiled as C: one loop per operation, called through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

import tilewright.emulator.isa
from tilewright.emulator.isa.operation import TYPES, Operation

HEADER = Path(tilewright.emulator.isa.__file__).with_name("functions.h")


def c_type(kind: str) -> str:
    kind = kind.removeprefix("old ")
    return {"mask": "bool", "scc": "u32"}.get(kind, kind)


def numpy_type(kind: str) -> np.dtype:
    kind = kind.removeprefix("old ")
    return {"mask": np.dtype(np.bool_), "scc": np.dtype(np.uint32)}.get(kind) or TYPES[kind]


def _loop(number: int, operation: Operation) -> str:
    result = c_type(operation.result) if operation.result else "u32"
    lines = [f"void op{number}(long n, void **in, {result} *out, bool *other) {{", "for (long k = 0; k < n; k++) {"]
    for place, (name, kind) in enumerate(zip("abcd", operation.sources, strict=False)):
        lines.append(f"{c_type(kind)} {name} = (({c_type(kind)} *)in[{place}])[k];")
    lines.append(f"{result} r = {operation.expression or '0'}; out[k] = r;")
    lines.append(f"other[k] = {operation.scc or operation.second or 'false'}; }} }}")
    return "\n".join(lines)


class CompiledTable:
    """Every operation of a table, compiled."""

    def __init__(self, table: dict[str, Operation], folder: Path) -> None:
        self.numbers = {name: number for number, name in enumerate(table)}
        self.table = table
        source, library = folder / "table.c", folder / "table.so"
        loops = "\n".join(_loop(self.numbers[name], operation) for name, operation in table.items())
        source.write_text(f'#include "{HEADER}"\n{loops}\n')
        flags = [
            "-std=c11",
            "-O1",
            "-fwrapv",
            "-ffp-contract=off",
            "-Wall",
            "-Werror",
            "-Wno-unused",
            "-mf16c",
            "-mfma",
        ]
        flags += ["-Wno-tautological-compare", "-shared", "-fPIC"]
        subprocess.run(["clang-22", *flags, str(source), "-o", str(library), "-lm"], check=True)
        self.library = ctypes.CDLL(str(library))

    def run(self, name: str, sources: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The result, and SCC or the lane mask beside it."""
        operation = self.table[name]
        count = sources[0].size
        out = np.zeros(count, numpy_type(operation.result) if operation.result else np.uint32)
        other = np.zeros(count, np.bool_)
        pointers = (ctypes.c_void_p * 4)(*[source.ctypes.data for source in sources])
        self.library[f"op{self.numbers[name]}"](
            ctypes.c_long(count), pointers, out.ctypes.data_as(ctypes.c_void_p), other.ctypes.data_as(ctypes.c_void_p)
        )
        return out, other
