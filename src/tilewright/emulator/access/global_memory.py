"""global_… instructions: memory by 64-bit addresses. Also translates scratch_…."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access import traffic
from tilewright.emulator.access.atomics import memory_atomic, memory_operation
from tilewright.emulator.access.effects import Arrival, active, by_lanes, deliver, occupy
from tilewright.emulator.access.elements import LOADS, STORES, Element
from tilewright.emulator.access.gather import store
from tilewright.emulator.access.lds_dma import global_load_lds, read_elements
from tilewright.emulator.access.operands import (
    CACHE_POLICY,
    check_modifiers,
    expect,
    number,
    pair_of,
    returns,
    scalar,
    vector,
)
from tilewright.emulator.access.private import scratch_load, scratch_offsets, scratch_store
from tilewright.emulator.code import Code
from tilewright.emulator.group import Group, Step
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.memory import Mask

Addresses = Callable[[Group], NDArray[np.uint64]]  # of each lane

_MODIFIERS = CACHE_POLICY | {"offset"}


def translate_global(name: str, instruction: Instruction, code: Code) -> Step:
    """Return the step of a global_… instruction."""
    check_modifiers(instruction, code, _MODIFIERS)
    kind, _, rest = name.removeprefix("global_").partition("_")
    if kind == "load" and rest.startswith("lds_"):
        vaddr, saddr = expect(instruction, code, (2,))
        return global_load_lds(instruction, code, rest.removeprefix("lds_"), addresses(instruction, code, vaddr, saddr))
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = expect(instruction, code, (3,))
        register = vector(instruction, code, data, LOADS[rest].registers)
        return _load(addresses(instruction, code, vaddr, saddr), LOADS[rest], register, code)
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = expect(instruction, code, (3,))
        register = vector(instruction, code, data, STORES[rest].registers)
        return _store(addresses(instruction, code, vaddr, saddr), STORES[rest], register, code)
    if kind == "atomic":
        return _atomic(rest, instruction, code)
    raise code.unknown(f"instruction {name}", instruction)


def translate_scratch(name: str, instruction: Instruction, code: Code) -> Step:
    """Return the step of a scratch_… instruction."""
    check_modifiers(instruction, code, _MODIFIERS)
    kind, _, rest = name.removeprefix("scratch_").partition("_")
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = expect(instruction, code, (3,))
        register = vector(instruction, code, data, LOADS[rest].registers)
        return scratch_load(scratch_offsets(instruction, code, vaddr, saddr), LOADS[rest], register)
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = expect(instruction, code, (3,))
        register = vector(instruction, code, data, STORES[rest].registers)
        return scratch_store(scratch_offsets(instruction, code, vaddr, saddr), STORES[rest], register)
    raise code.unknown(f"instruction {name}", instruction)


def addresses(instruction: Instruction, code: Code, vaddr: Operand, saddr: Operand | None) -> Addresses:
    """Make a getter of addresses: a vector pair, or a scalar pair plus an unsigned vector register; plus an offset."""
    immediate = np.uint64(number(instruction, code, "offset") % 2**64)
    if saddr is not None and saddr.kind != "none":
        pair, own = scalar(instruction, code, saddr, 2), vector(instruction, code, vaddr, 1)

        def with_base(group: Group) -> NDArray[np.uint64]:
            total: NDArray[np.uint64] = group.v[own].astype(np.uint64)
            total += (pair_of(group, pair) + immediate)[:, None]
            return total

        return with_base
    first = vector(instruction, code, vaddr, 2)
    return lambda group: vector_pair(group, first) + immediate


def vector_pair(group: Group, register: int) -> NDArray[np.uint64]:
    """Return the 64-bit value of each lane in two vector registers."""
    value: NDArray[np.uint64] = group.v[register + 1].astype(np.uint64)
    value <<= np.uint64(32)
    value |= group.v[register]
    return value


def _load(address: Addresses, element: Element, register: int, code: Code) -> Step:
    line_bytes = code.arch.memory.line_bytes

    def act(group: Group, mask: Mask | None) -> None:
        values = read_elements(group, address(group), element, mask, line_bytes)
        deliver(group, "load", Arrival(register, tuple(values), mask, element.keep))

    return by_lanes("load", act)


def _store(address: Addresses, element: Element, register: int, code: Code) -> Step:
    line_bytes = code.arch.memory.line_bytes

    def step(group: Group) -> None:
        mask = active(group)
        if mask is None or mask.any():
            memory = group.batch.memory
            index = memory.check(address(group), element.size, mask)
            traffic.memory_write(group, index, element.size, mask, line_bytes)
            values = element.leaving(group.v[register : register + element.registers])
            store(memory.views, index, values, element.size, mask)
        occupy(group, "store")

    return step


def _atomic(rest: str, instruction: Instruction, code: Code) -> Step:
    operation = memory_operation(rest, instruction, code)
    old = returns(instruction, code)
    operands = expect(instruction, code, (4,) if old else (3,))
    destination = vector(instruction, code, operands[0], operation.size // 4) if old else None
    vaddr, data, saddr = operands[-3:]
    register = vector(instruction, code, data, operation.registers)
    address = addresses(instruction, code, vaddr, saddr)

    def act(group: Group, mask: Mask | None) -> None:
        index = group.batch.memory.check(address(group), operation.size, mask)
        memory_atomic(group, operation, index, mask, register, destination)

    return by_lanes("store" if destination is None else "load", act)
