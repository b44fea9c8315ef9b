"""The instruction table: every entry means the same in Python and in C."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import numpy as np
import pytest
from edge_values import edge_values, same
from isa_in_c import HEADER, CompiledTable, numpy_type

from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.isa.numpy_form import FUNCTIONS, find_direct_ufunc, make_function
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.packed import find_signed_dot
from tilewright.emulator.isa.table import VECTOR, all_operations
from tilewright.emulator.isa.vector import bitop3

COUNT = 2048
SIGNED_DOTS = {
    f"{name} {a}{b}": operation
    for name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4")
    for a in (0, 1)
    for b in (0, 1)
    if (operation := find_signed_dot(name, bool(a), bool(b))) is not None
}
TABLE = {**all_operations(), **SIGNED_DOTS, **{f"v_bitop3_b32 {k}": bitop3(k, "u32") for k in range(256)}}

# Binding strength in C; Python puts & ^ | above comparisons.
C_LEVELS = [["|"], ["^"], ["&"], ["==", "!="], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"], ["*"]]
SYMBOLS = {
    ast.BitOr: "|", ast.BitXor: "^", ast.BitAnd: "&", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=", ast.LShift: "<<", ast.RShift: ">>", ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
    ast.Invert: "~", ast.USub: "-",
}  # fmt: skip


def expressions() -> list[str]:
    parts = {part for op in TABLE.values() for part in (op.expression, op.scc, op.second, op.limited) if part}
    return sorted(parts)


def python_reading(node: ast.expr) -> str:
    """An expression with all its parentheses, as Python reads it. Anything outside the shared subset fails."""
    if isinstance(node, ast.BinOp):
        return f"({python_reading(node.left)} {SYMBOLS[type(node.op)]} {python_reading(node.right)})"
    if isinstance(node, ast.Compare):
        (operator,), (right,) = node.ops, node.comparators
        return f"({python_reading(node.left)} {SYMBOLS[type(operator)]} {python_reading(right)})"
    if isinstance(node, ast.UnaryOp):
        return f"({SYMBOLS[type(node.op)]}{python_reading(node.operand)})"
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        assert not node.keywords
        return f"{node.func.id}({', '.join(map(python_reading, node.args))})"
    if isinstance(node, ast.Name):
        assert node.id in "abcdr"
        return node.id
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    return repr(node.value)


class CReading:
    """The same as C reads it."""

    def __init__(self, text: str) -> None:
        self.tokens = re.findall(r"0x[0-9A-Fa-f]+|\d+\.\d+|\d+|\w+|<<|>>|[<>=!]=|[-+*&|^~<>(),]", text)

    def whole(self, level: int = 0) -> str:
        if level == len(C_LEVELS):
            return self.single()
        left = self.whole(level + 1)
        while self.tokens and self.tokens[0] in C_LEVELS[level]:
            left = f"({left} {self.tokens.pop(0)} {self.whole(level + 1)})"
        return left

    def single(self) -> str:
        token = self.tokens.pop(0)
        if token == "(":
            inner = self.whole()
            assert self.tokens.pop(0) == ")"
            return inner
        if token in "~-":
            return f"({token}{self.single()})"
        if token[0].isdigit():
            return repr(float(token) if "." in token else int(token, 0))
        if self.tokens[:1] != ["("]:
            return token
        arguments = []
        while self.tokens.pop(0) != ")":
            arguments.append(self.whole())
        return f"{token}({', '.join(arguments)})"


def test_both_languages_read_every_expression_alike() -> None:
    assert len(expressions()) > 300
    for text in expressions():
        assert python_reading(ast.parse(text, mode="eval").body) == CReading(text).whole(), text


def test_a_precedence_that_differs_is_seen() -> None:
    text = "a & b != 0"
    assert python_reading(ast.parse(text, mode="eval").body) != CReading(text).whole()


def in_header(name: str, header: str) -> bool:
    """Whether a function is written out, or made for each type by a macro of the header."""
    if re.search(rf"\b{name}\b", header):
        return True
    kind = name.rpartition("_")[2]
    small = re.search(r"(fp8|bf8|fp6|bf6|fp4)_(fnuz|ocp)", name)
    shapes = [name.removesuffix(kind) + "##kind"]
    if small:
        shapes += [name.replace(small[0], "name##"), name.replace(small[0], "##name")]
    if f"ELEMENTARY({name.removesuffix('_' + kind)}," in header:
        shapes.append(f"name##_{kind}")
    return any(shape + "(" in header for shape in shapes)


def test_every_function_is_in_python_and_in_c() -> None:
    called = {name for text in expressions() for name in re.findall(r"(\w+)\(", text)}
    header = "".join(path.read_text() for path in sorted(HEADER.parent.glob("*.h")))
    assert called - FUNCTIONS.keys() == set()
    assert {name for name in called if not in_header(name, header)} == set()
    assert not in_header("min_f8", header.replace("##kind", ""))


def inputs(operation: Operation, seed: int) -> list[np.ndarray]:
    sources = []
    for place, kind in enumerate(operation.sources):
        values = edge_values(numpy_type(kind), COUNT, 7 * seed + place)
        sources.append(values & np.uint32(1) if kind == "scc" else values)
    return sources


def in_numpy(operation: Operation, sources: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    result: np.ndarray = np.zeros(COUNT, np.uint32)
    other: np.ndarray = np.zeros(COUNT, np.bool_)
    with np.errstate(all="ignore"):
        if operation.expression:
            made = make_function(operation.expression, len(sources))(*sources)
            result = np.broadcast_to(made, (COUNT,)).astype(numpy_type(operation.result))
        if operation.scc or operation.second:
            other = make_function(operation.scc or operation.second, len(sources), "r")(*sources, result)
    return result, other


@pytest.mark.parametrize("start", range(0, len(TABLE), 128))
def test_every_entry_runs_in_numpy(start: int) -> None:
    for seed, (name, operation) in enumerate(list(TABLE.items())[start : start + 128]):
        _, other = in_numpy(operation, inputs(operation, seed))
        assert other.dtype == np.bool_, name
        assert operation.expression or operation.scc, name


def test_plain_operators_need_no_temporary() -> None:
    for name in ("v_add_u32", "v_subrev_u32", "v_xor_b32", "v_mul_f32", "v_add_f32", "v_min_i32"):
        assert find_direct_ufunc(VECTOR[name]) is not None, name
    assert find_direct_ufunc(VECTOR["v_lshl_add_u32"]) is None
    subtracted = find_direct_ufunc(VECTOR["v_subrev_u32"])
    assert subtracted is not None
    assert subtracted.order == (1, 0)


def test_bitop3_follows_its_truth_table() -> None:
    a, b, c = (np.array([value], np.uint32) for value in (0xF0, 0xCC, 0xAA))
    for table in range(256):
        assert int(make_function(bitop3(table, "u32").expression, 3)(a, b, c)[0]) & 0xFF == table


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("v_add_nc_u32", "v_add_u32"),
        ("s_and_not1_saveexec_b32", "s_andn2_saveexec_b32"),
        ("s_add_co_ci_u32", "s_addc_u32"),
        ("global_load_b128", "global_load_dwordx4"),
        ("global_load_d16_hi_b16", "global_load_short_d16_hi"),
        ("buffer_store_b16", "buffer_store_short"),
        ("buffer_atomic_cmpswap_b64", "buffer_atomic_cmpswap_x2"),
        ("global_atomic_min_i32", "global_atomic_smin"),
        ("global_atomic_add_f32", "global_atomic_add_f32"),
        ("s_load_b512", "s_load_dwordx16"),
        ("s_load_u16", "s_load_u16"),
        ("s_buffer_load_b32", "s_buffer_load_dword"),
        ("ds_load_2addr_stride64_b32", "ds_read2st64_b32"),
        ("ds_store_b8_d16_hi", "ds_write_b8_d16_hi"),
        ("v_fma_f32", "v_fma_f32"),
    ],
)
def test_renamed_instructions_have_one_name(new: str, old: str) -> None:
    assert normalize_name(new) == old


# Transcendental functions may differ by what their f64 versions differ.
# Two floats in one result: that a NaN became quiet is not compared.
PACKS = re.compile(r"cvt_pk(_?rtz)?_(f16|bf16)")
LOOSE = re.compile(r"v_(s_)?(exp|log|sin|cos)_")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledTable:
    table = {name: replace(operation) for name, operation in TABLE.items()}
    return CompiledTable(table, tmp_path_factory.mktemp("table"))


@pytest.mark.compile
def test_every_entry_gives_the_same_in_c(compiled: CompiledTable) -> None:
    different = []
    for seed, (name, operation) in enumerate(TABLE.items()):
        sources = inputs(operation, seed)
        ours, ours_too = in_numpy(operation, sources)
        theirs, theirs_too = compiled.run(name, sources)
        wrong = ~same(ours, theirs)
        if LOOSE.match(name):
            with np.errstate(all="ignore"):
                wrong &= ~np.isclose(ours, theirs, rtol=1e-3 if ours.itemsize == 2 else 1e-6, atol=1e-15)
        if PACKS.search(name):
            for source in sources:
                wrong &= ~np.isnan(source) if source.dtype.kind == "f" else True
        if operation.scc or operation.second:
            wrong |= ours_too != theirs_too
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            different.append((name, int(wrong.sum()), [source[at] for source in sources], ours[at], theirs[at]))
    assert not different, "\n".join(map(str, different))
