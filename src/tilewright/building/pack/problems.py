"""The problems of ops in C and C++: their headers, and the source of their functions for the kernels of a library."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import arch as archs
from tilewright.arch.dtypes import DTYPES
from tilewright.base.errors import PackError
from tilewright.building.pack.templates import fill_template
from tilewright.ops import find_op
from tilewright.ops.call_struct import CallStruct
from tilewright.ops.execution import Execution
from tilewright.ops.fields import FlagType
from tilewright.ops.in_c.fit_functions import FitCheck, translate_fit_rules
from tilewright.ops.in_c.problem_functions import write_arguments, write_completion, write_stages, write_tensors
from tilewright.ops.in_c.problem_struct import ProblemMember, ProblemStruct
from tilewright.ops.in_c.statements import ARITHMETIC, TEXTS
from tilewright.ops.in_c.tensor_forms import list_tensor_forms
from tilewright.ops.in_c.trace import UntraceableError
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_field import get_op_name
from tilewright.ops.problem_values import format_problem_value

_CPP_TYPES = {"int64_t": "std::int64_t", "uint64_t": "std::uint64_t", "double": "double"}
_ROW = 116  # letters of a line of constants


def has_problems(op: str) -> bool:
    """Whether packs have the problems of an op: its execution declares its call."""
    known = find_op(op)
    call = None if known.execution is None else known.execution.call
    return call is not None and call.op == op == get_op_name(known.problem_type)


def render_problem_headers(op: str) -> Mapping[str, str]:
    """Render the headers of an op's problems by file name: <op>_problem.h for C, <op>.hpp for C++."""
    struct, _, call = _get_parts(op)
    context = {
        "op": op,
        "struct": struct,
        "call": call,
        "members": list(struct.members.values()),
        "shorthands": struct.shorthands,
        "describe": _describe_member,
        "cpp_type": _get_cpp_type,
        "example": _write_example(op, struct),
    }
    return {
        f"{op}_problem.h": fill_template("problem.h.j2", **context),
        f"{op}.hpp": fill_template("problem.hpp.j2", **context),
    }


def render_problem_source(op: str, gpu: str, kernels: Sequence[Kernel], first: int) -> str:
    """Render the C source of an op's problems, and of the fit rules of its kernels, the first of which has the place
    `first` in the table."""
    struct, _, call = _get_parts(op)
    rules = find_op(op).fit_rules
    try:
        functions = _translate_op(op)
        fits = translate_fit_rules(struct, rules, kernels, archs.load(gpu))
    except UntraceableError as error:
        raise PackError(f"problems of {op} cannot be translated to C: {error}") from error
    checks, places = _share_checks(fits.checks)
    return fill_template(
        "problem.c.j2",
        op=op,
        gpu=gpu,
        struct=struct,
        call=call,
        functions=f"{ARITHMETIC}\n{TEXTS}",
        completion=functions.completion,
        arguments=functions.arguments,
        tensors=functions.tensors,
        stages=functions.stages,
        dtypes={name: dtype.bits for name, dtype in DTYPES.items()},
        fits=fits,
        constants=_wrap(fits.constants or ("0",)),
        rules=rules,
        checks=checks,
        checks_of=places,
        first=first,
    )


def count_tensors(op: str) -> int:
    """The most tensors that a problem of an op can have."""
    return _translate_op(op).tensor_count


def count_stages(op: str) -> int:
    """The most stages that a problem of an op can have."""
    return len(_translate_op(op).stages)


@dataclass(frozen=True)
class _OpFunctions:
    completion: list[str]
    arguments: list[str]
    tensors: list[str]
    stages: list[list[str]]
    tensor_count: int


@functools.cache
def _translate_op(op: str) -> _OpFunctions:
    """The functions of an op's problems; they do not depend on kernels."""
    struct, execution, call = _get_parts(op)
    forms = list_tensor_forms(struct, execution, call)
    return _OpFunctions(
        completion=write_completion(struct),
        arguments=write_arguments(struct, call, forms),
        tensors=write_tensors(struct, call, forms),
        stages=write_stages(struct, execution),
        tensor_count=len(forms),
    )


@functools.cache
def _get_parts(op: str) -> tuple[ProblemStruct, Execution, CallStruct]:
    known = find_op(op)
    assert known.execution is not None
    assert known.execution.call is not None
    return ProblemStruct(known.problem_type), known.execution, known.execution.call


def _describe_member(member: ProblemMember) -> str:
    field = member.field
    takes = "0 or 1" if isinstance(field.kind, FlagType) else field.kind.describe()
    default = f"; default {field.describe_default()}" if field.describe_default() else ""
    return f"{field.doc}: {takes}{default}"


def _get_cpp_type(member: ProblemMember) -> str:
    return "bool" if member.is_flag else _CPP_TYPES[member.c_type]


def _write_example(op: str, struct: ProblemStruct) -> str:
    """Calls of setters for the op's example problem."""
    known = find_op(op)
    calls = []
    for name, value in known.example_problem.items():
        member = struct.members.get(name)
        if isinstance(value, str) and (member is None or member.names):
            calls.append(f'.{name}("{value}")')
        elif member is not None and member.is_extents:
            listed = format_problem_value(getattr(known.problem_type(**known.example_problem), name)).split("x")
            calls.append(f".{name}({{{', '.join(listed)}}})")
        else:
            calls.append(f".{name}({format_problem_value(value)})")
    return "".join(calls)


def _share_checks(checks: Sequence[tuple[FitCheck, ...]]) -> tuple[list[FitCheck], list[tuple[int, int]]]:
    """All lists of checks one after another, and for each kernel where its list begins, and its length."""
    known: dict[tuple[FitCheck, ...], int] = {}
    listed: list[FitCheck] = []
    for each in checks:
        if each not in known:
            known[each] = len(listed)
            listed += each
    return listed, [(known[each], len(each)) for each in checks]


def _wrap(items: Sequence[str]) -> list[str]:
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > _ROW:
            lines.append("")
        lines[-1] += f"{item}, "
    return [line.rstrip() for line in lines]


def write_problem(problem: Any) -> str:
    """A problem as a C initializer of its struct."""
    struct = ProblemStruct(type(problem))
    values = (_write_field(member, getattr(problem, member.name)) for member in struct.members.values())
    return f"{{{', '.join(values)}}}"


def _write_field(member: ProblemMember, value: Any) -> str:
    if member.is_extents:
        return f"{{{len(value)}, {{{', '.join(map(str, value))}}}}}"
    if member.names:
        return str(member.names.index(value) + 1)
    if member.c_type == "double":
        return repr(float(value))
    return f"UINT64_C({value})" if member.c_type == "uint64_t" else f"INT64_C({int(value)})"


def list_preparations(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """The inputs that a kernel needs prepared: the name of each, and what to do."""
    op = find_op(kernel.op)
    if op.execution is None:
        return ()
    example: Any = None  # no op's preparations depend on the problem
    return tuple((each.tensor, each.what) for each in op.execution.preparations(kernel.config, example))
