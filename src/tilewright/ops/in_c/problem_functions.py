"""The functions of an op's problems as C statements: completing, arguments, tensors, stages and model inputs.

Statements read the problem through `p`. They write to what their function says, and messages to `out`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.ops.call_struct import CallStruct, Member
from tilewright.ops.execution import Execution
from tilewright.ops.in_c.problem_struct import MAX_EXTENTS, ProblemMember, ProblemStruct, StageProblem, StructProblem
from tilewright.ops.in_c.statements import (
    close_constants,
    indent,
    quote_c,
    write_assignments,
    write_message,
    write_tree,
)
from tilewright.ops.in_c.tensor_forms import PlacedTensor, TensorForm
from tilewright.ops.in_c.trace import Leaf, RaisedError, TracedRun, Tree, UntraceableError, explore, list_leaves
from tilewright.ops.in_c.traced import Name, Traced
from tilewright.ops.problem_field import NumberType

# No op has as many stages; a plan of more is surely endless.
MAX_STAGES = 8
# TW_MAX_RANK of pack.h.
MAX_RANK = 8
_BAD = "return TW_BAD_ARGS;"


def write_completion(struct: ProblemStruct) -> list[str]:
    """Check all fields of `*p`, replace defaults by the values that they stand for, and check fields together."""
    lines: list[str] = []
    for member in struct.members.values():
        lines += _write_resolutions(struct, member)
        lines += _write_checks(member)
        derived = member.field.stands_for
        if derived is not None and derived.compute is not None:
            tree = _explore_value(struct, derived.compute)
            assign = write_tree(tree, functools.partial(_assign_value, f"p->{member.name}"))
            lines += [f"if(p->{member.name} == {member.default})", "{", *indent(assign), "}"]
    lines += _write_repetitions(struct)
    tree = explore(lambda trace: _check_values(struct, trace))
    return close_constants([*lines, *write_tree(tree, lambda leaf: _write_outcome(struct, leaf))])


def _write_resolutions(struct: ProblemStruct, member: ProblemMember) -> Iterator[str]:
    """Replace a name that stands for another one, which the fields before decide."""

    def write_leaf(leaf: Leaf) -> list[str]:
        if isinstance(leaf.result, RaisedError):
            return _write_outcome(struct, leaf)
        return [f"p->{member.name} = {member.names.index(leaf.result) + 1};"]

    for given, find in member.field.resolves.items():
        yield f"if(p->{member.name} == {member.accepted_names.index(given) + 1})"
        yield from ("{", *indent(write_tree(_explore_value(struct, find), write_leaf)), "}")


def _write_repetitions(struct: ProblemStruct) -> Iterator[str]:
    """A single number of extents stands for every dimension; the first extents have the number of dimensions."""
    extents = [member.name for member in struct.members.values() if member.is_extents]
    for name in extents[1:]:
        yield f"if(p->{name}.count == 1)"
        yield f"    for(; p->{name}.count < p->{extents[0]}.count; ++p->{name}.count)"
        yield f"        p->{name}.values[p->{name}.count] = p->{name}.values[0];"
        yield f"if(p->{name}.count != p->{extents[0]}.count)"
        yield f"    return refuse_count(out, {quote_c(name)}, p->{extents[0]}.count, p->{name}.count);"


def _check_values(struct: ProblemStruct, trace: TracedRun) -> None:
    problem: Any = StructProblem(struct, trace)
    struct.problem_type.check_values(problem)  # type: ignore[attr-defined]


def _write_outcome(struct: ProblemStruct, leaf: Leaf) -> list[str]:
    if isinstance(leaf.result, RaisedError):
        return [*write_message(leaf.trace, leaf.result.message, struct.tables), _BAD]
    return []


def _write_checks(member: ProblemMember) -> Iterator[str]:
    name, kind = member.name, member.field.kind
    if member.names:
        known = f" Known: {', '.join(member.names)}."
        yield f"if(p->{name} < 1 || p->{name} > {len(member.names)})"
        yield f"    return refuse(out, {quote_c(f'the problem has no {name}, or one that does not exist.{known}')});"
    elif member.is_extents:
        least = getattr(kind, "least")  # noqa: B009  (of ExtentsType)
        yield f"if(p->{name}.count < 1 || p->{name}.count > {MAX_EXTENTS})"
        yield f"    return refuse_integer(out, {quote_c(f'{name}.count')}, p->{name}.count, 1, {MAX_EXTENTS});"
        yield f"for(i = 0; i < p->{name}.count; ++i)"
        yield f"    if(p->{name}.values[i] < {least})"
        yield f"        return refuse_integer(out, {quote_c(name)}, p->{name}.values[i], {least}, INT64_MAX);"
        yield f"for(; i < {MAX_EXTENTS}; ++i)"
        yield f"    p->{name}.values[i] = 0;"
    elif isinstance(kind, NumberType):
        limits = [f"p->{name} < {kind.least}"] if kind.least is not None else []
        limits += [f"p->{name} >= {kind.below}"] if kind.below is not None else []
        yield f"if({' || '.join([f'!isfinite(p->{name})', *limits])})"
        yield f"    return refuse_number(out, {quote_c(name)}, p->{name}, {quote_c(kind.describe())});"
    elif member.c_type == "int64_t":
        least, most = member.bounds
        limit = f" || p->{name} > INT64_C({most})" if most < 2**63 - 1 else ""
        yield f"if(p->{name} < {least}{limit})"
        yield f"    return refuse_integer(out, {quote_c(name)}, p->{name}, {least}, INT64_C({most}));"


def write_arguments(struct: ProblemStruct, call: CallStruct, forms: Sequence[TensorForm]) -> list[str]:
    """Set the members of `*args` that follow from the problem; the others are 0."""
    lines: list[str] = []
    for member in call.members:
        if isinstance(member.value, str) and member.value in struct.members:
            lines += _copy_member(struct.members[member.value], member, call)
        elif member.value is not None:
            get_value: Callable[[Any], Any] = member.value if callable(member.value) else _get_property(member.value)
            tree = _explore_value(struct, get_value)
            lines += write_tree(tree, functools.partial(_assign_value, f"args->{member.name}"))
    for form in forms:
        lines += form.write(lambda leaf, found: _assign_tensor(leaf, found, call))
    return close_constants(lines)


def _explore_value(struct: ProblemStruct, compute: Callable[[Any], Any]) -> Tree:
    return explore(lambda trace: compute(StructProblem(struct, trace)))


def _get_property(name: str) -> Callable[[Any], Any]:
    return lambda problem: getattr(problem, name)


def _copy_member(member: ProblemMember, to: Member, call: CallStruct) -> list[str]:
    if to.length:
        return [
            f"for(i = 0; i < p->{member.name}.count && i < {call.constants[to.length]}; ++i)",
            f"    args->{to.name}[i] = p->{member.name}.values[i];",
        ]
    return [f"args->{to.name} = p->{member.name}{' - 1' if member.names else ''};"]


def _assign_value(target: str, leaf: Leaf) -> list[str]:
    if isinstance(leaf.result, RaisedError):
        return [_BAD]
    if isinstance(leaf.result, (list, tuple)):
        return write_assignments(leaf.trace, {f"{target}[{i}]": value for i, value in enumerate(leaf.result)})
    return write_assignments(leaf.trace, {target: leaf.result})


def _assign_tensor(leaf: Leaf, found: PlacedTensor, call: CallStruct) -> list[str]:
    """Set the members that follow from a tensor."""
    lines: list[str] = []
    for name, value in found.values.items():
        if isinstance(value, (int, Traced)):
            lines += write_assignments(leaf.trace, {f"args->{name}": value})
        else:
            assert call.tensor is not None
            pairs = zip(call.tensor.numbers, value, strict=True)
            lines += write_assignments(leaf.trace, {f"args->{name}.{number}": each for number, each in pairs})
    return lines


def write_tensors(struct: ProblemStruct, call: CallStruct, forms: Sequence[TensorForm]) -> list[str]:
    """Append the tensors of the problem to a list, in their order: statements set members of `t`, a new element."""
    lines: list[str] = []
    for form in forms:
        lines += form.write(
            lambda _, found: [_append_tensor(found, call)],
            _write_numbers,
            lambda leaf, found: [f"t->dtype = {_write_dtype(struct, leaf.trace, found.tensor.dtype)};"],
        )
    return close_constants(lines)


def _append_tensor(found: PlacedTensor, call: CallStruct) -> str:
    tensor = found.tensor
    words = f"{quote_c(tensor.name)}, {int(tensor.output)}, {int(tensor.updated)}, offsetof({call.name}, {found.place})"
    return f"t = add_tensor(tensors, count, {words});"


def _write_numbers(leaf: Leaf, found: PlacedTensor) -> list[str]:
    tensor = found.tensor
    if len(tensor.shape) > MAX_RANK:
        raise InvalidValueError(f"{tensor.name} has {len(tensor.shape)} dimensions, packs support {MAX_RANK}")
    numbers = {f"t->shape[{i}]": extent for i, extent in enumerate(tensor.shape)}
    numbers |= {f"t->strides[{i}]": stride for i, stride in enumerate(tensor.strides)}
    return [f"t->rank = {len(tensor.shape)};", *write_assignments(leaf.trace, numbers)]


def _write_dtype(struct: ProblemStruct, trace: TracedRun, dtype: str) -> str:
    if isinstance(dtype, Name):
        return f"{struct.tables[dtype.names]}[{trace.nodes[dtype.node].value} - 1]"
    return quote_c(dtype)


class _ChosenConfig:
    """The config of a chosen kernel, which C does not know when it plans the next stage."""

    def __getattr__(self, name: str) -> object:
        raise UntraceableError(f"the next stage depends on {name} of a chosen kernel, which plans in C do not support")


def write_stages(struct: ProblemStruct, execution: Execution) -> list[list[str]]:
    """For each stage: set `*stage` to its problem and `*found` to 1, if there is such a stage."""
    stages: list[list[str]] = []
    for number in range(MAX_STAGES):
        chosen = (_ChosenConfig(),) * number
        tree = explore(functools.partial(_plan_stage, struct, execution, chosen))
        if all(leaf.result is None for leaf in list_leaves(tree)):
            return stages
        stages.append(close_constants(write_tree(tree, lambda leaf: _write_stage(struct, leaf))))
    raise UntraceableError(f"problems of {struct.op} have more than {MAX_STAGES} stages")


def _plan_stage(struct: ProblemStruct, execution: Execution, chosen: tuple[Any, ...], trace: TracedRun) -> Any:
    problem = StructProblem(struct, trace)
    for number in range(len(chosen)):
        if execution.next_stage(problem, chosen[:number]) is None:
            return None
    return execution.next_stage(problem, chosen)


def _write_stage(struct: ProblemStruct, leaf: Leaf) -> list[str]:
    if leaf.result is None:
        return []
    if isinstance(leaf.result, RaisedError):
        return [_BAD]
    if isinstance(leaf.result, StructProblem):
        return ["*stage = *p;", "*found = 1;"]
    if not isinstance(leaf.result, StageProblem):
        raise UntraceableError("a stage is neither the problem nor made by its make_other")
    lines = [f"{struct.name}_init(stage);"]
    for name, value in leaf.result.values.items():
        member = struct.members[name]
        if isinstance(value, Name):
            lines.append(f"stage->{name} = {leaf.trace.nodes[value.node].value};")
        elif isinstance(value, str):
            lines.append(f"stage->{name} = {member.names.index(value) + 1};")
        elif member.is_extents:
            lines.append(f"stage->{name} = p->{name};")
        else:
            lines += write_assignments(leaf.trace, {f"stage->{name}": value})
    return [*lines, "*found = 1;"]


def write_model_inputs(
    struct: ProblemStruct, problem_numbers: Callable[[Any], Mapping[str, Any]], facts: Mapping[str, int]
) -> list[str]:
    """Set the members of `numbers` to the model inputs of problems with these values of fields."""
    tree: Tree = explore(lambda trace: problem_numbers(StructProblem(struct, trace)), facts)

    def write_leaf(leaf: Leaf) -> list[str]:
        if isinstance(leaf.result, RaisedError):
            return []
        return write_assignments(leaf.trace, {f"numbers.{name}": value for name, value in leaf.result.items()})

    return close_constants(write_tree(tree, write_leaf))
