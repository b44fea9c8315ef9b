"""A kernel in the form that the native engine runs, and its bytes for a cache."""

from __future__ import annotations

import ctypes
import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from tilewright.emulator.faults import Fault
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.native.handlers import NUMBERS
from tilewright.emulator.native.layout import InstructionRecord, MatrixRecord, Permutation

SPARE_REGISTERS = 2  # of the engine, after those of the kernel
# Records whose `offset` is an address in memory: it depends on the place where the code object is loaded.
LOCATED = frozenset(NUMBERS[name] for name in ("get_pc", "set_pc", "swap_pc", "call"))


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """Records in the order of their addresses, with details of each."""

    records: ctypes.Array[InstructionRecord]
    count: int  # records that are instructions; the rest are parts of them
    permutations: ctypes.Array[Permutation]
    matrices: ctypes.Array[MatrixRecord]
    instructions: Sequence[Instruction]
    faults: Mapping[int, Fault]  # of unknown instructions, by index
    index: array[int]  # by address / 4: 32-bit numbers
    addresses: array[int]
    classes: Mapping[str, array[int]]  # indices of the instructions in each class
    flops: Mapping[int, int]  # of matrix instructions, by index
    barriers: tuple[int, ...]  # indices
    located: tuple[int, ...]  # indices of records in `LOCATED`
    has_atomics: bool  # on memory

    def find_entry(self, address: int) -> int:
        return self.index[address // 4]


@dataclass(frozen=True, slots=True)
class UnsupportedInstruction:
    """An instruction that only the NumPy engine supports."""

    instruction: Instruction


class _PickledInstructions(Sequence[Instruction]):
    """Instructions that are read when one is needed: only for faults."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._read: tuple[Instruction, ...] | None = None

    def _get(self) -> tuple[Instruction, ...]:
        if self._read is None:
            self._read = pickle.loads(self._data)
        return self._read

    @overload
    def __getitem__(self, at: int) -> Instruction: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Instruction]: ...
    def __getitem__(self, at: int | slice) -> Instruction | Sequence[Instruction]:
        return self._get()[at]

    def __len__(self) -> int:
        return len(self._get())

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self._get())


def make_array(kind: Any, items: Sequence[Any]) -> Any:
    """Return an array of structures. It has at least one element, because an empty array has no address."""
    made = (kind * max(len(items), 1))()
    for number, item in enumerate(items):
        made[number] = item
    return made


def to_bytes(lowered: LoweredKernel | UnsupportedInstruction, base: int) -> bytes:
    """Return the bytes of a kernel that was lowered for a code object at `base`."""
    if isinstance(lowered, UnsupportedInstruction):
        return pickle.dumps(lowered)
    fields = {name: getattr(lowered, name) for name in LoweredKernel.__slots__}
    records = type(lowered.records).from_buffer_copy(lowered.records)
    _add_base(records, lowered.located, -base)
    fields |= {
        "records": bytes(records),
        "permutations": bytes(lowered.permutations),
        "matrices": bytes(lowered.matrices),
        "instructions": pickle.dumps(tuple(lowered.instructions)),
    }
    return pickle.dumps(fields)


def from_bytes(data: bytes, base: int) -> LoweredKernel | UnsupportedInstruction:
    """Return the kernel in bytes of `to_bytes`, for a code object at `base`."""
    fields = pickle.loads(data)
    if isinstance(fields, UnsupportedInstruction):
        return fields
    for name, kind in (("records", InstructionRecord), ("permutations", Permutation), ("matrices", MatrixRecord)):
        fields[name] = (kind * (len(fields[name]) // ctypes.sizeof(kind))).from_buffer_copy(fields[name])
    _add_base(fields["records"], fields["located"], base)
    fields["instructions"] = _PickledInstructions(fields["instructions"])
    return LoweredKernel(**fields)


def _add_base(records: Any, located: Sequence[int], base: int) -> None:
    for number in located:
        records[number].offset += base
