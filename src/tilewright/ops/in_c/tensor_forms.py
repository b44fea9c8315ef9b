"""The tensors that problems of an op can have, one by one, as trees of decisions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ops.call_struct import CallStruct
from tilewright.ops.execution import Execution, Tensor, TensorSlot
from tilewright.ops.in_c.problem_struct import ProblemStruct, StructProblem
from tilewright.ops.in_c.statements import enclose, write_assignments, write_tree
from tilewright.ops.in_c.trace import Leaf, RaisedError, TracedRun, Tree, UntraceableError, explore, list_leaves

# A tensor by its name, as an input, an output, or an output that is updated.
TensorKey = tuple[str, bool, bool]


@dataclass(frozen=True)
class PlacedTensor:
    """A tensor, the member of the arguments for its address, and the members that follow from it."""

    tensor: Tensor
    place: str
    values: Mapping[str, Any]

    @property
    def key(self) -> TensorKey:
        return self.tensor.name, self.tensor.output, bool(self.tensor.updated)


@dataclass(frozen=True)
class TensorForm:
    """One tensor. The leaves of `forms` are lists of tensors, and it is the one with the key.

    `presence` tells whether a problem has it; without one, problems whose list does not contain it do not have it.
    """

    key: TensorKey
    forms: Tree
    presence: Tree | None = None

    def write(self, *writers: Callable[[Leaf, PlacedTensor], list[str]]) -> list[str]:
        """The statements of functions for the tensor, for problems that have it, one after another."""

        def write_leaf(writer: Callable[[Leaf, PlacedTensor], list[str]], leaf: Leaf) -> list[str]:
            found = (
                [] if isinstance(leaf.result, RaisedError) else [each for each in leaf.result if each.key == self.key]
            )
            return [line for each in found for line in writer(leaf, each)]

        lines = [line for writer in writers for line in write_tree(self.forms, functools.partial(write_leaf, writer))]
        if self.presence is None or not lines:
            return lines
        test = write_tree(self.presence, lambda leaf: write_assignments(leaf.trace, {"has": leaf.result}))
        return ["has = 0;", *test, "if(has)", *enclose(lines)]


def list_tensor_forms(struct: ProblemStruct, execution: Execution, call: CallStruct) -> list[TensorForm]:
    """All tensors of an op's problems, in an order that agrees with the order in each problem."""
    if execution.slots is None:
        return _explore_lists(struct, execution, call)
    lists = [{(slot.name, slot.output, slot.updated): slot for slot in slots} for slots in execution.slots()]
    slots = {key: slot for each in lists for key, slot in each.items()}
    return [_explore_slot(struct, call, key, slots[key]) for key in order_keys([list(each) for each in lists])]


def _explore_lists(struct: ProblemStruct, execution: Execution, call: CallStruct) -> list[TensorForm]:
    def run(trace: TracedRun) -> list[PlacedTensor]:
        problem = StructProblem(struct, trace)
        tensors = zip(execution.tensors(problem), call.places(problem), strict=True)
        return [PlacedTensor(tensor, place, call.tensor_values(problem, tensor)) for tensor, place in tensors]

    tree = explore(run)
    lists = [leaf.result for leaf in list_leaves(tree) if not isinstance(leaf.result, RaisedError)]
    return [TensorForm(key, tree) for key in order_keys([[placed.key for placed in each] for each in lists])]


def _explore_slot(struct: ProblemStruct, call: CallStruct, key: TensorKey, slot: TensorSlot) -> TensorForm:
    def run(trace: TracedRun) -> list[PlacedTensor]:
        problem = StructProblem(struct, trace)
        tensor = slot.build(problem)
        return [PlacedTensor(tensor, tensor.name, call.tensor_values(problem, tensor))]

    presence = explore(lambda trace: slot.is_present(StructProblem(struct, trace)))
    return TensorForm(key, explore(run), presence)


def order_keys(lists: Sequence[Sequence[TensorKey]]) -> list[TensorKey]:
    """One order of all keys that agrees with each list."""
    before: dict[TensorKey, set[TensorKey]] = {}
    for keys in lists:
        for place, key in enumerate(keys):
            before.setdefault(key, set()).update(keys[:place])
    ordered: list[TensorKey] = []
    while len(ordered) < len(before):
        ready = [key for key, earlier in before.items() if key not in ordered and earlier <= set(ordered)]
        if not ready:
            raise UntraceableError("tensors have different orders in different problems")
        ordered.append(ready[0])
    return ordered
