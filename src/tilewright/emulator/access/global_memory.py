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
from tilewright.emulator.access.lds_dma import (
    find_dma_element,
    read_elements,
    translate_global_load_lds,
    translate_scratch_load_lds,
)
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
from tilewright.emulator.access.register_blocks import (
    BLOCK_REGISTERS,
    make_memory_places,
    make_private_places,
    translate_block_load,
    translate_block_store,
)
from tilewright.emulator.access.transpose import GLOBAL_TRANSPOSE_LANES, GLOBAL_TRANSPOSES, transpose_loaded
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.memory import Mask

Addresses = Callable[[WaveGroup], NDArray[np.uint64]]  # of each lane

_MODIFIERS = CACHE_POLICY | {"offset"}
BY_LANE = "addtid_b32"  # base + offset + lane · 4 (AMD's pseudo-code, GLOBAL_LOAD_ADDTID_B32)


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
    return _translate_special(name, kind, rest, instruction, code)


def _translate_special(name: str, kind: str, rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a load or store that does not move an element per lane at the address of the lane."""
    if kind == "load" and rest in GLOBAL_TRANSPOSES:
        return _translate_transposed(GLOBAL_TRANSPOSES[rest], instruction, code)
    if rest == BY_LANE:
        return _translate_by_lane(kind, instruction, code)
    if rest == "block":
        data, vaddr, saddr = find_block_operands(kind, instruction, code)
        places = make_memory_places(make_addresses(instruction, code, vaddr, saddr), code)
        return (translate_block_load if kind == "load" else translate_block_store)(places, data)
    raise code.unknown(f"instruction {name}", instruction)


def find_block_operands(kind: str, instruction: Instruction, code: LoadedCode) -> tuple[int, Operand, Operand]:
    """Return the first register of a block, and both parts of its address."""
    first, second, saddr = get_operands(instruction, code, (3,))
    data, vaddr = (first, second) if kind == "load" else (second, first)
    return get_vector(instruction, code, data, BLOCK_REGISTERS), vaddr, saddr


def _translate_by_lane(kind: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of global_load_addtid_b32 or global_store_addtid_b32."""
    data, saddr = get_operands(instruction, code, (2,))
    register = get_vector(instruction, code, data, 1)
    pair = get_scalar(instruction, code, saddr, 2)
    immediate = np.uint64(get_number(instruction, code, "offset") % 2**64)

    def add_lanes(group: WaveGroup) -> NDArray[np.uint64]:
        total: NDArray[np.uint64] = np.repeat((read_pair(group, pair) + immediate)[:, None], group.lanes, axis=1)
        total += np.arange(0, 4 * group.lanes, 4, dtype=np.uint64)
        return total

    table = LOADS if kind == "load" else STORES
    return (_load if kind == "load" else _store)(add_lanes, table["dword"], register, code)


def _translate_transposed(form: tuple[int, int], instruction: Instruction, code: LoadedCode) -> Step:
    check_transposing_lanes(instruction, code)
    size, bits = form
    data, vaddr, saddr = get_operands(instruction, code, (3,))
    register = get_vector(instruction, code, data, size // 4)
    address = make_addresses(instruction, code, vaddr, saddr)

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        if mask is not None and (mask.any(axis=1) != mask.all(axis=1)).any():
            raise code.unknown(f"{instruction.mnemonic} with lanes that exec disables", instruction)
        values = read_elements(group, address(group), Element(size), mask, code.arch.memory.line_bytes)
        write_vectors(group, "load", Arrival(register, tuple(transpose_loaded(values, bits)), mask))

    return make_lane_step("load", execute)


def check_transposing_lanes(instruction: Instruction, code: LoadedCode) -> None:
    """Raise for waves of 64 lanes: their transposing loads have other registers."""
    if code.lanes != GLOBAL_TRANSPOSE_LANES:
        raise code.unknown(f"{instruction.mnemonic} in waves of {code.lanes} lanes", instruction)


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
    if kind == "load" and rest.startswith("lds_"):
        vaddr, saddr = get_operands(instruction, code, (2,))
        element = find_dma_element(rest.removeprefix("lds_"), instruction, code)
        return translate_scratch_load_lds(
            instruction, code, element, make_scratch_offsets(instruction, code, vaddr, saddr)
        )
    if rest == "block":
        block, vaddr, saddr = find_block_operands(kind, instruction, code)
        places = make_private_places(make_scratch_offsets(instruction, code, vaddr, saddr))
        return (translate_block_load if kind == "load" else translate_block_store)(places, block)
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
