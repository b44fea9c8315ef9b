"""Make records: instructions in the form that the native engine reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.emulator.native.handlers import NUMBERS
from tilewright.emulator.native.layout import (
    ANY_NUMBER,
    QUEUES,
    InstructionRecord,
    MatrixRecord,
    OperandRecord,
    Permutation,
    make_operand,
)


@dataclass(slots=True)
class LoweringTables:
    """Tables that records point to. `parts` are records that belong to others; they follow the code."""

    queues: Mapping[str, int]  # the queue of each kind of access: load, store, lds, scalar
    first_spare: int  # vector registers from here on belong to the engine
    permutations: list[Permutation] = field(default_factory=list)
    matrices: list[MatrixRecord] = field(default_factory=list)
    matrix_numbers: dict[Any, int | None] = field(default_factory=dict)  # indices in `matrices` by form
    parts: list[InstructionRecord] = field(default_factory=list)


def make_record(
    handler: str | int, out: OperandRecord | None = None, sources: Sequence[OperandRecord] = (), **fields: Any
) -> InstructionRecord:
    """Make a record from the name or number of its handler."""
    made = InstructionRecord(op=NUMBERS[handler] if isinstance(handler, str) else handler, **fields)
    made.out = out if out is not None else make_operand(0)
    for k in range(4):
        made.sources[k] = sources[k] if k < len(sources) else make_operand(0)
    if "wait" not in fields:
        made.wait = (_OCTET * QUEUES)(*[ANY_NUMBER] * QUEUES)
    return made


_OCTET: Any = type(InstructionRecord().wait)._type_
