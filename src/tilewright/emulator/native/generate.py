"""Generate C for every operation of the instruction table: one function each, over all lanes of a wave.

Equal operations share a function. `handler_numbers()` returns the index of each operation in the handler table that the
engine jumps through; `handlers.py` has the handwritten handlers, which come first.
"""

from __future__ import annotations

from functools import cache

from tilewright.emulator.isa.operation import Operation, choose_expression
from tilewright.emulator.isa.scalar import SAVE_EXEC, WRITE_EXEC
from tilewright.emulator.isa.table import COMPARE, SCALAR, all_operations
from tilewright.emulator.native.handlers import HANDLERS, list_signed_dots

_C_TYPES = {
    **{f"{letter}{bits}": f"{sign}int{bits}_t" for letter, sign in (("u", "u"), ("i", "")) for bits in (8, 16, 32, 64)},
    "f16": "_Float16",
    "f32": "float",
    "f64": "double",
}
_NAMES = "abcd"


def bit_width(kind: str) -> int:
    """Return the size of a type of the table in bits."""
    return int(kind[1:])


@cache
def handler_numbers() -> tuple[dict[Operation, int], dict[Operation, int]]:
    """Return the handler numbers of vector and of scalar operations. Equal operations have one number."""
    vector: dict[Operation, int] = {}
    scalar: dict[Operation, int] = {}
    count = len(HANDLERS)
    for table, operations in ((scalar, SCALAR.values()), (vector, _list_vectors())):
        for operation in operations:
            if operation not in table:
                table[operation] = count
                count += 1
    return vector, scalar


def _list_vectors() -> list[Operation]:
    # Operations that change exec have handwritten handlers.
    scalars = {*SCALAR, *SAVE_EXEC, *WRITE_EXEC}
    return [
        *(op for name, op in all_operations().items() if name not in scalars),
        *COMPARE.values(),
        *list_signed_dots(),
    ]


def generate_source() -> str:
    """Return the generated functions of the engine."""
    vector, scalar = handler_numbers()
    functions = [_generate_scalar(number, operation) for operation, number in scalar.items()]
    functions += [_generate_vector(number, operation) for operation, number in vector.items()]
    return "\n".join(functions)


def generate_handler_table() -> str:
    """Return the handler table, as the contents of a C array."""
    vector, scalar = handler_numbers()
    generated = [f"op_{number}" for number in sorted((*vector.values(), *scalar.values()))]
    return ",\n".join([*HANDLERS.values(), *generated, ""])


def _generate_scalar(number: int, operation: Operation) -> str:
    lines = [f"static int op_{number}(Wave *w, const Instruction *i) {{"]
    for k, (name, source) in enumerate(zip(_NAMES, operation.sources, strict=False)):
        lines.append(f"    const {_generate_scalar_source(name, source, k)};")
    if operation.expression:
        kind = _C_TYPES[operation.result]
        result = f"({kind})({operation.expression})"
        limited = choose_expression(operation, True)
        if limited != operation.expression:
            result = f"(limits_overflow(w) ? ({kind})({limited}) : {result})"
        if operation.result[0] == "f":
            result = f"flushed_result_{operation.result}(w, {result})"
        lines.append(f"    const {kind} r = {result};")
        lines.append(f"    set_scalar_{operation.result}(w, i, r);")
    if operation.scc:
        lines.append(f"    w->scc = ({operation.scc}) != 0;")
    return "\n".join([*lines, "    return NEXT;", "}"])


def _generate_scalar_source(name: str, source: str, k: int) -> str:
    kind = source.removeprefix("old ")
    if kind == "scc":
        return f"uint32_t {name} = w->scc"
    value = f"get_scalar_{kind}(w, &i->in[{k}])"
    if kind[0] == "f":
        value = f"flushed_source_{kind}(w, {value})"
    return f"{_C_TYPES[kind]} {name} = {value}"


def _generate_vector(number: int, operation: Operation) -> str:
    lines = [f"static int op_{number}(Wave *w, const Instruction *i) {{"]
    loads = []
    for k, (name, source) in enumerate(zip(_NAMES, operation.sources, strict=False)):
        kind = source.removeprefix("old ")
        # Class tests distinguish subnormal numbers in every mode.
        lines.append(_generate_declaration(name, kind, k, flushes="class_" not in operation.expression))
        loads.append(f"        const {_generate_load(name, kind)};")
    if choose_expression(operation, True) != operation.expression:
        lines.append("    const bool limits = limits_overflow(w);")
    lines += _generate_results(operation)
    lines += ["    EACH_LANE(w, l) {", *loads, *_generate_computation(operation), "    }"]
    return "\n".join([*lines, _generate_finish(operation), "}"])


def _generate_declaration(name: str, kind: str, k: int, flushes: bool) -> str:
    if kind == "mask":
        return f"    const uint64_t mask_{name} = mask_in(w, i->in[{k}].index);"
    sign = "0x8000u" if bit_width(kind) == 16 else "0x80000000u"
    if bit_width(kind) == 64:
        return f"    SOURCE_64({name}, {k}, {int(kind == 'f64')}, {int(flushes)})"
    flush = f"_{kind}" if kind in ("f32", "f16") and flushes else ""
    return f"    SOURCE{flush}({name}, {k}, {sign})"


def _generate_load(name: str, kind: str) -> str:
    if kind == "mask":
        return f"bool {name} = mask_{name} >> l & 1"
    if bit_width(kind) == 64:
        return f"{_C_TYPES[kind]} {name} = as_{kind}((uint64_t)high_{name}[l] << 32 | low_{name}[l])"
    return f"{_C_TYPES[kind]} {name} = as_{kind}(lanes_{name}[l])"


def _generate_results(operation: Operation) -> list[str]:
    lines = []
    if operation.result == "mask" or operation.second:
        lines.append("    _Alignas(64) uint8_t flags[LANES] = {0};")
    if operation.result != "mask":
        lines.append("    _Alignas(64) uint32_t out[LANES];")
        if bit_width(operation.result) == 64:
            lines.append("    _Alignas(64) uint32_t out_high[LANES];")
    return lines


def _generate_computation(operation: Operation) -> list[str]:
    if operation.result == "mask":
        return [f"        flags[l] = ({operation.expression}) != 0;"]
    kind = _C_TYPES[operation.result]
    limited = choose_expression(operation, True)
    value = f"({kind})({operation.expression})"
    if limited != operation.expression:
        value = f"limits ? ({kind})({limited}) : {value}"
    lines = [f"        const {kind} r = {value};"]
    if bit_width(operation.result) == 64:
        lines += [f"        const uint64_t bits = bits_{operation.result}(r);"]
        lines += ["        out[l] = (uint32_t)bits;", "        out_high[l] = (uint32_t)(bits >> 32);"]
    else:
        lines.append(f"        out[l] = bits_{operation.result}(r);")
    if operation.second:
        lines.append(f"        flags[l] = ({operation.second}) != 0;")
    return lines


def _generate_finish(operation: Operation) -> str:
    if operation.result == "mask":
        return "    return finish_mask(w, i, flags);"
    second = "    finish_second(w, i, flags);\n" if operation.second else ""
    if bit_width(operation.result) == 64:
        return f"{second}    return finish_64(w, i, out, out_high, {int(operation.result == 'f64')});"
    kind = {"f32": "F32", "f16": "F16"}.get(operation.result, f"BITS_{bit_width(operation.result)}")
    return f"{second}    return finish_{32 if bit_width(operation.result) == 32 else 16}(w, i, out, {kind});"
