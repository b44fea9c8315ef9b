"""Atomic operations on memory and LDS.

All lanes of all waves of a step run in lane order, wave after wave: a lane sees the results of the lanes before it,
even at the same address. The device defines no order; this is one of the allowed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access.effects import Arrival, active_lanes, reserve_counter, write_vectors
from tilewright.emulator.access.traffic import count_lanes
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import AlignmentFault
from tilewright.emulator.group import U32, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.float_functions import flush_subnormals
from tilewright.emulator.lds import MemoryViews
from tilewright.emulator.memory import Index, Mask

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class AtomicOperation:
    """`combine` computes the new value from the old one and the operands. `ufunc`, if any, does the same."""

    size: int
    dtype: np.dtype[Any]
    combine: Callable[..., Values]
    operands: int = 1
    ufunc: np.ufunc | None = None

    @property
    def registers(self) -> int:
        """Number of vector registers for the data of a memory instruction."""
        return self.operands * self.size // 4


def _increment(old: Values, limit: Values) -> Values:
    return np.where(old >= limit, 0, old + 1)


def _decrement(old: Values, limit: Values) -> Values:
    return np.where((old == 0) | (old > limit), limit, old - 1)


def _exchange(old: Values, new: Values, compare: Values) -> Values:
    result: Values = np.where(old == compare, new, old)
    return result


def _exchange_flushed(old: Values, new: Values, compare: Values) -> Values:
    """Compare and swap floats in a mode that flushes subnormal sources: operands and result are flushed.

    (ISA manuals of CDNA3, 9.2.2, and RDNA3, 13.2, "Denormal Handling"; RDNA4 has no such instruction.)
    """
    return flush_subnormals(_exchange(flush_subnormals(old), new, flush_subnormals(compare)))


def _exchange_flushed_compare_first(old: Values, compare: Values, new: Values) -> Values:
    return _exchange_flushed(old, new, compare)


def _wrap(old: Values, least: Values, more: Values) -> Values:
    result: Values = np.where(old >= least, old - least, old + more)
    return result


def _exchange_marked(old: Values, new: Values) -> Values:
    """Replace each half by one whose highest bit is set, without that bit (AMD's pseudo-code of DS_CONDXCHG32)."""
    marked = ((new >> np.uint64(31)) & np.uint64(0x1_0000_0001)) * np.uint64(0xFFFF_FFFF)
    result: Values = (old & ~marked) | (new & marked & np.uint64(0x7FFF_FFFF_7FFF_FFFF))
    return result


def _sum_flushed(old: Values, value: Values) -> Values:
    """Add with subnormal operands and results flushed to zero."""
    return flush_subnormals(flush_subnormals(old) + flush_subnormals(value))


def _make_packed_sum(dtype: Any) -> Callable[[Values, Values], Values]:
    """Return a function for two sums in one dword; bf16 is rounded from the exact sum in f32."""

    def combine(old: Values, value: Values) -> Values:
        left, right = np.ascontiguousarray(old).view(dtype), np.ascontiguousarray(value).view(dtype)
        total: Values = (left + right).astype(dtype)
        return total.view(np.uint32)

    return combine


_COMBINE: dict[str, tuple[Callable[..., Values], int, np.ufunc | None]] = {
    "add": (np.add, 1, np.add),
    "sub": (np.subtract, 1, np.subtract),
    "rsub": (lambda old, value: value - old, 1, None),
    "min": (np.fmin, 1, np.fmin),
    "max": (np.fmax, 1, np.fmax),
    "and": (np.bitwise_and, 1, np.bitwise_and),
    "or": (np.bitwise_or, 1, np.bitwise_or),
    "xor": (np.bitwise_xor, 1, np.bitwise_xor),
    "inc": (_increment, 1, None),
    "dec": (_decrement, 1, None),
    "sub_clamp": (lambda old, value: np.where(old < value, 0, old - value), 1, None),
    "cond_sub": (lambda old, value: np.where(old < value, old, old - value), 1, None),
    "swap": (lambda _, value: value, 1, None),
    "cmpswap": (_exchange, 2, None),
    # In gfx9's LDS form the compare value comes first.
    "cmpst": (lambda old, compare, new: _exchange(old, new, compare), 2, None),
    "mskor": (lambda old, mask, value: (old & ~mask) | value, 2, None),
}
# Bits of MODE, of all subnormal sources: see alu/float_mode.py.
KEEPS_F32, KEEPS_F64 = 0x10, 0x40
_INTEGER = tuple(_COMBINE)
_FLOAT = ("add", "min", "max", "cmpswap", "cmpst")
_BITS = ("and", "or", "xor", "swap", "cmpswap", "cmpst", "mskor")


def _build_table() -> dict[tuple[str, str], AtomicOperation]:
    table = {}
    for bits in (32, 64):
        for letter, names in (("u", _INTEGER), ("i", ("min", "max")), ("f", _FLOAT), ("b", _BITS)):
            dtype = np.dtype({"u": "u", "i": "i", "f": "f", "b": "u"}[letter] + str(bits // 8))
            for name in names:
                combine, operands, ufunc = _COMBINE[name]
                table[name, f"{letter}{bits}"] = AtomicOperation(bits // 8, dtype, combine, operands, ufunc)
    table["add_flushed", "f32"] = AtomicOperation(4, np.dtype(np.float32), _sum_flushed)
    for kind in ("f32", "f64"):
        size = int(kind[1:]) // 8
        table["cmpswap_flushed", kind] = AtomicOperation(size, np.dtype(f"f{size}"), _exchange_flushed, 2)
        table["cmpst_flushed", kind] = AtomicOperation(size, np.dtype(f"f{size}"), _exchange_flushed_compare_first, 2)
    table["wrap", "b32"] = AtomicOperation(4, np.dtype(np.uint32), _wrap, 2)
    table["condxchg32", "b64"] = AtomicOperation(8, np.dtype(np.uint64), _exchange_marked)
    for kind, element in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        table["pk_add", kind] = AtomicOperation(4, np.dtype(np.uint32), _make_packed_sum(np.dtype(element)))
    return table


OPERATIONS = _build_table()
_FLUSHED = {
    OPERATIONS[name, kind]: OPERATIONS[f"{name}_flushed", kind]
    for name in ("cmpswap", "cmpst")
    for kind in ("f32", "f64")
}

# gfx9 omits the type of integers, or puts it into the name.
_GFX9 = {
    **{name: (name, "u") for name in ("add", "sub", "inc", "dec", "and", "or", "xor", "swap", "cmpswap")},
    **{f"{sign}{name}": (name, kind) for sign, kind in (("s", "i"), ("u", "u")) for name in ("min", "max")},
}
# Renamed operations: names of gfx11 and gfx12, with the older name.
_RENAMED = {
    "wrxchg": "swap",
    "cmpstore": "cmpswap",
    "min_num": "min",
    "max_num": "max",
    "csub": "sub_clamp",
}


# GPUs whose memory flushes subnormals in f32 adds. In LLVM not flushing is a feature of the others; for these GPUs it
# emits a compare-and-swap loop if subnormal numbers matter.
_FLUSHED_ADDS = frozenset({"gfx90a"})


def find_atomic(rest: str, instruction: Instruction, code: LoadedCode) -> AtomicOperation:
    """Return the operation for the name after …_atomic_, or after ds_ without _rtn."""
    short, wide = (rest.removesuffix("_x2"), "64") if rest.endswith("_x2") else (rest, "32")
    if short in _GFX9:
        name, letter = _GFX9[short]
        return OPERATIONS[name, letter + wide]
    name, _, kind = rest.rpartition("_")
    found = OPERATIONS.get((_RENAMED.get(name, name), kind))
    if found is None:
        raise code.unknown(f"atomic operation {rest}", instruction)
    return found


def find_memory_atomic(rest: str, instruction: Instruction, code: LoadedCode) -> AtomicOperation:
    """Same as `find_atomic`, for memory."""
    found = find_atomic(rest, instruction, code)
    flushes = found is OPERATIONS["add", "f32"] and code.arch.name in _FLUSHED_ADDS
    return OPERATIONS["add_flushed", "f32"] if flushes else found


def choose_for_mode(operation: AtomicOperation, group: WaveGroup) -> AtomicOperation:
    """Return the operation as it is in the current mode of the waves: compare-and-swap of floats depends on it."""
    flushed = _FLUSHED.get(operation)
    if flushed is None:
        return operation
    keeps = KEEPS_F32 if operation.size == 4 else KEEPS_F64
    return operation if group.float_mode & keeps else flushed


def read_operand_values(operation: AtomicOperation, registers: Sequence[U32], mask: Mask | None) -> list[Values]:
    """Read the operands of the active lanes from vector registers, as flat arrays over lanes."""
    words = [(value if mask is None else value[mask]).reshape(-1) for value in registers]
    if operation.size == 4:
        return [np.ascontiguousarray(word).view(operation.dtype) for word in words]
    pairs = zip(words[::2], words[1::2], strict=True)
    return [np.stack(pair, axis=-1).view(operation.dtype)[..., 0] for pair in pairs]


def apply_atomic(
    operation: AtomicOperation, views: MemoryViews, index: Index, operands: Sequence[Values], want_old: bool
) -> Values | None:
    """Apply an operation for a list of lanes in order. Returns the old values if `want_old` is set."""
    array = (views.u32 if operation.size == 4 else views.u64).view(operation.dtype)
    slots = index // operation.size
    if operation.ufunc is not None and not want_old:
        operation.ufunc.at(array, slots, *operands)
        return None
    old = np.empty(slots.shape, operation.dtype)
    for turn in _group_by_turn(slots):
        here = slots[turn]
        before = array[here]
        old[turn] = before
        array[here] = operation.combine(before, *(operand[turn] for operand in operands))
    return old


def _group_by_turn(slots: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Group lanes that may run together: those that are first at their address, then the second ones, and so on."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, slots.size))
    if int(lengths.max()) == 1:
        return [order]
    rank = np.arange(slots.size) - np.repeat(starts, lengths)
    by_rank = np.argsort(rank, kind="stable")
    return np.split(order[by_rank], np.cumsum(np.bincount(rank))[:-1])


def to_registers(
    operation: AtomicOperation, old: Values, shape: tuple[int, int], mask: Mask | None, places: int = 1
) -> list[U32]:
    """Convert old values of the active lanes, at one or more places of each, to vector registers; others get 0."""
    count = places * operation.size // 4
    words = old.view(np.uint32).reshape(-1, count)
    registers = np.zeros((count, *shape), np.uint32)
    for k, register in enumerate(registers):
        if mask is None:
            register[...] = words[:, k].reshape(shape)
        else:
            register[mask] = words[:, k]
    return list(registers)


def check_alignment(index: Index, size: int, mask: Mask | None) -> None:
    """Raise if an address is not a multiple of the size of the atomic."""
    bad = (index & (size - 1)) != 0
    if mask is not None:
        bad &= mask
    if bad.any():
        row, lane = np.unravel_index(int(bad.argmax()), bad.shape)
        what = f"an atomic access of {size} bytes at an address that is {int(index[row, lane]) % size} past a multiple"
        raise AlignmentFault(what, CodePlace(wave=int(row), lane=int(lane)))


def run_memory_atomic(
    group: WaveGroup,
    operation: AtomicOperation,
    index: Index,
    mask: Mask | None,
    register: int,
    destination: int | None,
) -> None:
    """Run an atomic instruction at checked memory indices: the memory changes now, the old value arrives later.

    `mask` are the lanes that access memory; all active lanes get a value, 0 if they made no access.
    """
    check_alignment(index, operation.size, mask)
    count = count_lanes(group, mask)
    counters = group.batch.counters
    counters.atomics += count
    counters.global_write_bytes += operation.size * count
    operation = choose_for_mode(operation, group)
    operands = read_operand_values(operation, group.v[register : register + operation.registers], mask)
    places = index.reshape(-1) if mask is None else index[mask]
    old = apply_atomic(operation, group.batch.memory.views, places, operands, destination is not None)
    if old is None or destination is None:
        reserve_counter(group, "store")
        return
    counters.global_read_bytes += operation.size * count
    registers = to_registers(operation, old, (group.waves, group.lanes), mask)
    write_vectors(group, "load", Arrival(destination, tuple(registers), active_lanes(group)))
