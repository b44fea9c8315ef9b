"""The scalar unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.alu.constants import FLAGS, find_aperture, make_constant, read_flag
from tilewright.emulator.alu.float_mode import FloatMode, make_mode_step
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.operands import Getter, apply_function, match_sources
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import EXEC, Operand
from tilewright.emulator.isa.float_functions import flush_subnormals
from tilewright.emulator.isa.numpy_form import make_function
from tilewright.emulator.isa.operation import TYPES, Array, Operation, choose_expression
from tilewright.emulator.isa.scalar import SAVE_EXEC, WRITE_EXEC
from tilewright.emulator.isa.table import SCALAR

Writer = Callable[[WaveGroup, Array], None]


def translate_scalar(site: InstructionContext) -> Step | None:
    """Return the step of a scalar instruction; None for other instructions."""
    if site.name in SAVE_EXEC:
        return _make_exec_step(site, SAVE_EXEC[site.name], save=True)
    if site.name in WRITE_EXEC:
        return _make_exec_step(site, WRITE_EXEC[site.name], save=False)
    operation = SCALAR.get(site.name)
    if operation is None:
        return None
    site.check_modifiers()
    kinds = (*operation.sources, operation.result)
    return make_mode_step(site, kinds, lambda mode: _make_step(site, operation, mode))


def _make_step(site: InstructionContext, operation: Operation, mode: FloatMode) -> Step:
    sources = _make_sources(site, operation, mode)
    scc = make_function(operation.scc, len(sources), "r") if operation.scc else None
    if not operation.result:
        return _make_test_step(sources, scc)
    write = _make_writer(site, site.destination, operation.result)
    function = make_function(choose_expression(operation, mode.limits), len(sources))
    flush = operation.result in mode.results
    kind = TYPES[operation.result]

    if scc is None and not flush:
        compute = apply_function(function, sources)
        return lambda group: write(group, compute(group))
    if scc is not None and not flush and len(sources) == 2:
        return _make_quick_step(sources, function, scc, write, kind)

    def execute(group: WaveGroup) -> None:
        values = [source(group) for source in sources]
        result = function(*values).astype(kind, copy=False)
        if scc is not None:
            group.scc[...] = scc(*values, result)
        write(group, flush_subnormals(result) if flush else result)

    return execute


def _make_quick_step(
    sources: tuple[Getter, ...],
    function: Callable[..., Array],
    scc: Callable[..., Array],
    write: Writer,
    kind: np.dtype[Any],
) -> Step:
    """Make a step for two sources, a result and SCC: the most common form."""
    first, second = sources

    def execute(group: WaveGroup) -> None:
        a, b = first(group), second(group)
        result = function(a, b)
        if result.dtype != kind:
            result = result.astype(kind)
        group.scc[...] = scc(a, b, result)
        write(group, result)

    return execute


def _make_test_step(sources: tuple[Getter, ...], scc: Callable[..., Array] | None) -> Step:
    assert scc is not None  # an operation without a result is a test
    test = scc

    def execute(group: WaveGroup) -> None:
        group.scc[...] = test(*[source(group) for source in sources], None)

    return execute


def _make_sources(site: InstructionContext, operation: Operation, mode: FloatMode) -> tuple[Getter, ...]:
    operands = site.instruction.operands[1 if operation.result else 0 :]
    getters: list[Getter] = []
    for source in match_sources(site, operation, operands):
        if source.kind == "scc":
            getters.append(lambda group: group.scc.astype(np.uint32))
            continue
        getter = make_scalar_source(site, source.required_operand, source.kind)
        getters.append(_flush_source(getter) if source.kind in mode.sources else getter)
    return tuple(getters)


def _flush_source(getter: Getter) -> Getter:
    return lambda group: flush_subnormals(getter(group))


def make_scalar_source(site: InstructionContext, operand: Operand, kind: str) -> Getter:
    """Make a source of a type: an array [waves] or [1]."""
    if operand.sign_extended or operand.half:
        raise site.unknown(f"an operand of {site.instruction.mnemonic}")
    getter = _make_unsigned_source(site, operand, kind)
    if not (operand.negated or operand.absolute):
        return getter
    if not kind.startswith("f"):
        raise site.unknown(f"a sign modifier on a source of {site.instruction.mnemonic}")
    absolute, negated = operand.absolute, operand.negated

    def apply_signs(group: WaveGroup) -> Array:
        value = np.abs(getter(group)) if absolute else getter(group)
        return np.negative(value) if negated else value

    return apply_signs


def _make_unsigned_source(site: InstructionContext, operand: Operand, kind: str) -> Getter:
    dtype = TYPES[kind]
    if operand.kind == "const":
        fixed = make_constant(site, operand, kind)
        return lambda _: fixed
    if operand.kind == "special":
        return _make_special_source(site, operand, kind)
    if operand.kind != "s" or dtype.itemsize == 1:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return _make_register_source(site, operand, kind)


def _make_register_source(site: InstructionContext, operand: Operand, kind: str) -> Getter:
    dtype = TYPES[kind]
    if dtype.itemsize == 8:
        pair = site.scalar_register(operand, 2)
        return lambda group: group.s64[pair].view(dtype)
    register = site.scalar_register(operand, 1)
    if kind == "u32":
        return lambda group: group.s[register]
    if kind == "i32":
        return lambda group: group.si[register]
    if dtype.itemsize == 4:
        return lambda group: group.s[register].view(dtype)
    return lambda group: group.s[register].astype(np.uint16).view(dtype)


def _make_special_source(site: InstructionContext, operand: Operand, kind: str) -> Getter:
    if operand.name in FLAGS:
        name, dtype = operand.name, TYPES[kind]
        if kind.startswith("f"):
            raise site.unknown(f"{name} as a float")
        return lambda group: read_flag(group, name).astype(dtype)
    value = find_aperture(site, operand, kind)
    if value is None:
        raise site.unknown(f"the source {operand.name}")
    fixed = np.array([value], np.uint64).view(TYPES[kind])
    return lambda _: fixed


def _make_writer(site: InstructionContext, operand: Operand, kind: str) -> Writer:
    """Return a function that writes a result to a scalar register (pair)."""
    if operand.kind == "none" and operand.name == "null":
        return lambda _group, _values: None
    dtype = TYPES[kind]
    register = site.scalar_register(operand, 2 if dtype.itemsize == 8 else 1)
    if dtype.itemsize == 8:
        write = _make_pair_writer(register, dtype)
    elif dtype.itemsize == 4:
        write = _make_register_writer(register, dtype)
    else:
        write = _make_half_writer(register, dtype)
    if register not in (EXEC, EXEC + 1):
        return write

    def write_exec(group: WaveGroup, values: Array) -> None:
        write(group, values)
        group.update_exec_mask()

    return write_exec


def _make_pair_writer(register: int, dtype: np.dtype[np.generic]) -> Writer:
    def write(group: WaveGroup, values: Array) -> None:
        group.s64[register].view(dtype)[...] = values

    return write


def _make_register_writer(register: int, dtype: np.dtype[np.generic]) -> Writer:
    if dtype == np.uint32:

        def write(group: WaveGroup, values: Array) -> None:
            group.s[register][...] = values

        return write

    def write_other(group: WaveGroup, values: Array) -> None:
        group.s[register].view(dtype)[...] = values

    return write_other


def _make_half_writer(register: int, dtype: np.dtype[np.generic]) -> Writer:
    """Write 16 bits; the upper bits become 0."""

    def write(group: WaveGroup, values: Array) -> None:
        group.s[register][...] = values.astype(dtype, copy=False).view(np.uint16)

    return write


def _make_exec_step(site: InstructionContext, operation: Operation, save: bool) -> Step:
    """Set exec to an operation of a source and exec; the destination gets the old exec, or the new one."""
    site.check_modifiers()
    if len(site.instruction.operands) != 2:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    count = 2 if operation.result == "u64" else 1
    destination, operand = site.instruction.operands
    write = _make_writer(site, destination, operation.result)
    source = make_scalar_source(site, operand, operation.result)
    function = make_function(operation.expression, 2)

    def execute(group: WaveGroup) -> None:
        place = group.s64[EXEC] if count == 2 else group.s[EXEC]
        before = place.copy()
        after = function(source(group), before)
        write(group, before if save else after)
        place[...] = after
        group.scc[...] = after != 0
        group.update_exec_mask()

    return execute
