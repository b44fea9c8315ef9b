"""Short labels for the problems and kernels of a data set: only their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.learn.dataset import Dataset
from tilewright.ops.fields import format_tokens
from tilewright.ops.problem_text import list_problem_fields
from tilewright.ops.problem_values import format_problem_value


def describe_problems(data: Dataset) -> tuple[str, ...]:
    """Each problem by the fields that differ: `n=2 c=64 k=256`."""
    fields = [list_problem_fields(problem, data.kernels[0].config) for problem in data.problems]
    shared = _find_shared(fields)
    return tuple(
        " ".join(f"{name}={format_problem_value(value)}" for name, value in own.items() if name not in shared)
        or "the problem"
        for own in fields
    )


def describe_kernels(data: Dataset) -> tuple[str, ...]:
    """Each kernel by the parts of its name that differ: `b128x128x64 w4x4x1 compv3`."""
    tokens = [format_tokens(kernel.config) for kernel in data.kernels]
    everywhere = set(tokens[0]).intersection(*tokens) if len(tokens) > 1 else set()
    return tuple(" ".join(token for token in own if token not in everywhere) for own in tokens)


def _find_shared(fields: Sequence[Mapping[str, Any]]) -> set[str]:
    first, *others = fields
    if not others:
        return set()
    return {name for name, value in first.items() if all(each.get(name) == value for each in others)}
