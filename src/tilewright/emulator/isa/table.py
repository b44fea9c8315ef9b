"""All operations by name; `names.normalize_name` returns the name of an instruction."""

from __future__ import annotations

from functools import cache

from tilewright.arch.spec import Arch
from tilewright.emulator.isa.compare import SCALAR_COMPARE, VECTOR_COMPARE
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.packed import DOT, PACKED, SATURATED_PACKED
from tilewright.emulator.isa.scalar import SAVE_EXEC, WRITE_EXEC
from tilewright.emulator.isa.scalar import SCALAR as _SCALAR
from tilewright.emulator.isa.vector_convert import CONVERT, CONVERT_SMALL
from tilewright.emulator.isa.vector_float import VECTOR_FLOAT
from tilewright.emulator.isa.vector_half import KEEPS_OTHER_HALF, SATURATED_HALF, VECTOR_HALF
from tilewright.emulator.isa.vector_integer import SATURATED_INTEGER, VECTOR_INTEGER

__all__ = [
    "COMPARE", "CONVERT_SMALL", "DOT", "KEEPS_OTHER_HALF", "PACKED", "SATURATED", "SATURATED_PACKED", "SAVE_EXEC",
    "SCALAR", "VECTOR", "WRITE_EXEC", "all_operations", "keeps_other_half", "vector_operations",
]  # fmt: skip

SCALAR: dict[str, Operation] = {**_SCALAR, **SCALAR_COMPARE}
COMPARE: dict[str, Operation] = VECTOR_COMPARE
VECTOR: dict[str, Operation] = {**VECTOR_INTEGER, **VECTOR_FLOAT, **VECTOR_HALF, **CONVERT}
SATURATED: dict[str, Operation] = {**SATURATED_INTEGER, **SATURATED_HALF}


@cache
def vector_operations(encoding: str) -> dict[str, Operation]:
    """Return VECTOR and the conversions of 8-bit floats in an encoding (`Arch.numbers.fp8`)."""
    return {**VECTOR, **CONVERT_SMALL[encoding]}


def keeps_other_half(name: str, arch: Arch) -> bool:
    """Whether an operation with a 16-bit result keeps the other half of its destination."""
    return not arch.family.startswith("cdna") or name in KEEPS_OTHER_HALF


def all_operations() -> dict[str, Operation]:
    """Return all entries of all tables, for tests and generators."""
    parts = {
        "": {**SCALAR, **SAVE_EXEC, **WRITE_EXEC, **COMPARE, **VECTOR, **DOT},
        "fnuz ": CONVERT_SMALL["fnuz"],
        "ocp ": CONVERT_SMALL["ocp"],
        "packed ": PACKED,
        "saturated ": SATURATED,
        "saturated packed ": SATURATED_PACKED,
    }
    return {start + name: operation for start, table in parts.items() for name, operation in table.items()}
