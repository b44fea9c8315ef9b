"""global_… instructions: memory by 64-bit addresses. Also translates scratch_…."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access import traffic
from tilewright.emulator.access.atomics import find_memory_atomic, run_memory_atomic
from tilewright.emulator.access.effects import Arrival, active_lanes, make_lane_step, reserve_counter, write_vectors
from tilewright.emulator.access.elements import LOADS, STORES, Element
from tilewright.emulator.access.gather import store
from tilewright.emulator.access.lds_dma import read_elements, translate_global_load_lds
from tilewright.emulator.access.operands import (
    CACHE_POLICY,
    check_modifiers,
    get_number,
    get_operands,
    get_scalar,
    get_vector,
    needs_old_value,
    read_pair,
)
from tilewright.emulator.access.private import make_scratch_offsets, translate_scratch_load, translate_scratch_store
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.memory import Mask

Addresses = Callable[[WaveGroup], NDArray[np.uint64]]  # of each lane

_MODIFIERS = CACHE_POLICY | {"offset"}


def translate_global(name: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a global_… instruction."""
    check_modifiers(instruction, code, _MODIFIERS)
    kind, _, rest = name.removeprefix("global_").partition("_")
    if kind == "load" and rest.startswith("lds_"):
        vaddr, saddr = get_operands(instruction, code, (2,))
        return translate_global_load_lds(
            instruction, code, rest.removeprefix("lds_"), make_addresses(instruction, code, vaddr, saddr)
        )
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = get_operands(instruction, code, (3,))
        register = get_vector(instruction, code, data, LOADS[rest].registers)
        return _load(make_addresses(instruction, code, vaddr, saddr), LOADS[rest], register, code)
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = get_operands(instruction, code, (3,))
        register = get_vector(instruction, code, data, STORES[rest].registers)
        return _store(make_addresses(instruction, code, vaddr, saddr), STORES[rest], register, code)
    if kind == "atomic":
        return _translate_atomic(rest, instruction, code)
    raise code.unknown(f"instruction {name}", instruction)


def translate_scratch(name: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a scratch_… instruction."""
    check_modifiers(instruction, code, _MODIFIERS)
    kind, _, rest = name.removeprefix("scratch_").partition("_")
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = get_operands(instruction, code, (3,))
        register = get_vector(instruction, code, data, LOADS[rest].registers)
        return translate_scratch_load(make_scratch_offsets(instruction, code, vaddr, saddr), LOADS[rest], register)
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = get_operands(instruction, code, (3,))
        register = get_vector(instruction, code, data, STORES[rest].registers)
        return translate_scratch_store(make_scratch_offsets(instruction, code, vaddr, saddr), STORES[rest], register)
    raise code.unknown(f"instruction {name}", instruction)


def make_addresses(instruction: Instruction, code: LoadedCode, vaddr: Operand, saddr: Operand | None) -> Addresses:
    """Make a getter of addresses: a vector pair, or a scalar pair plus an unsigned vector register; plus an offset."""
    immediate = np.uint64(get_number(instruction, code, "offset") % 2**64)
    if saddr is not None and saddr.kind != "none":
        pair, own = get_scalar(instruction, code, saddr, 2), get_vector(instruction, code, vaddr, 1)

        def add_base(group: WaveGroup) -> NDArray[np.uint64]:
            total: NDArray[np.uint64] = group.v[own].astype(np.uint64)
            total += (read_pair(group, pair) + immediate)[:, None]
            return total

        return add_base
    first = get_vector(instruction, code, vaddr, 2)
    return lambda group: read_vector_pair(group, first) + immediate


def read_vector_pair(group: WaveGroup, register: int) -> NDArray[np.uint64]:
    """Return the 64-bit value of each lane in two vector registers."""
    value: NDArray[np.uint64] = group.v[register + 1].astype(np.uint64)
    value <<= np.uint64(32)
    value |= group.v[register]
    return value


def _load(address: Addresses, element: Element, register: int, code: LoadedCode) -> Step:
    line_bytes = code.arch.memory.line_bytes

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        values = read_elements(group, address(group), element, mask, line_bytes)
        write_vectors(group, "load", Arrival(register, tuple(values), mask, element.keep))

    return make_lane_step("load", execute)


def _store(address: Addresses, element: Element, register: int, code: LoadedCode) -> Step:
    line_bytes = code.arch.memory.line_bytes

    def execute(group: WaveGroup) -> None:
        mask = active_lanes(group)
        if mask is None or mask.any():
            memory = group.batch.memory
            index = memory.check_access(address(group), element.size, mask)
            traffic.count_memory_write(group, index, element.size, mask, line_bytes)
            values = element.extract_stored(group.v[register : register + element.registers])
            store(memory.views, index, values, element.size, mask)
        reserve_counter(group, "store")

    return execute


def _translate_atomic(rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    operation = find_memory_atomic(rest, instruction, code)
    old = needs_old_value(instruction, code)
    operands = get_operands(instruction, code, (4,) if old else (3,))
    destination = get_vector(instruction, code, operands[0], operation.size // 4) if old else None
    vaddr, data, saddr = operands[-3:]
    register = get_vector(instruction, code, data, operation.registers)
    address = make_addresses(instruction, code, vaddr, saddr)

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        index = group.batch.memory.check_access(address(group), operation.size, mask)
        run_memory_atomic(group, operation, index, mask, register, destination)

    return make_lane_step("store" if destination is None else "load", execute)
