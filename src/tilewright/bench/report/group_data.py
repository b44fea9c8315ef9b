"""The problems and kernels of a group of results: their work, and short distinct labels."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.base.errors import InvalidValueError, TilewrightError
from tilewright.bench.plan import SweepPlan, parse_problem
from tilewright.bench.rates import compute_effort
from tilewright.bench.report.columns import Floats, ResultGroup
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.fields import Field, list_fields, read_token
from tilewright.ops.op import Op
from tilewright.ops.problem_text import list_problem_fields
from tilewright.ops.problem_values import format_problem_value


@dataclass(frozen=True, eq=False)
class GroupData:
    """Data about the problems and kernels of a group, in their order. Work that an op does not define is nan."""

    problem_words: tuple[str, ...]
    problem_shared: str  # the common fields of all problems
    kernel_words: tuple[str, ...]
    kernel_shared: str
    # What is compared by region: a word such as "tile" → its value for each kernel.
    compared: Mapping[str, tuple[str, ...]]
    flops: Floats
    bytes: Floats  # least traffic
    dtypes: tuple[str, ...]  # of the first operand of each problem; empty if the op does not define it
    fields: tuple[dict[str, Any], ...]  # the fields of each problem
    pairs: int | None  # of a kernel and a problem of its kind; None if a kernel name cannot be parsed

    @cached_property
    def intensity(self) -> Floats:
        """Operations per byte that must be moved."""
        return self.flops / self.bytes

    @cached_property
    def sizes(self) -> dict[str, Floats]:
        """The integer fields that all problems have, extents as their number of points."""
        first, *others = self.fields
        found = {}
        for name in first:
            values = [_parse_size(own.get(name)) for own in (first, *others)]
            if all(value is not None and value > 0 for value in values):
                found[name] = np.array(values, np.float64)
        return found

    def describe_size(self, name: str) -> str:
        """The label of a size, for an axis."""
        return f"{name}, points" if isinstance(self.fields[0][name], tuple) else name


def collect_group_data(group: ResultGroup) -> GroupData:
    """Reads every problem once. Raises an error if the op is unknown or a problem does not belong to it."""
    op = find_op(group.where.op)
    reader = _ProblemReader(op)
    read = [reader.read(text) for text in group.problems]
    work = [compute_effort(op.name, text) for text in group.problems]
    fields = tuple(own for _, own in read)
    shared = _find_shared_fields(fields)
    tokens = [slug.split("-")[2:-1] for slug in group.kernels]
    everywhere = set(tokens[0]).intersection(*tokens[1:]) if len(tokens) > 1 else set()
    words = _make_unique([" ".join(t for t in own if t not in everywhere) for own in tokens], group.kernels)
    return GroupData(
        problem_words=tuple(
            _describe_fields({n: v for n, v in own.items() if n not in shared}) or "the problem" for own in fields
        ),
        problem_shared=_describe_fields({name: fields[0][name] for name in shared}),
        kernel_words=words,
        kernel_shared=" ".join(token for token in tokens[0] if token in everywhere),
        compared=_read_compared_fields(op, tokens) or {"kernel": words},
        flops=np.array([each.flops or math.nan for each in work], np.float64),
        bytes=np.array([each.bytes_moved or math.nan for each in work], np.float64),
        dtypes=tuple(_get_dtype(op, problem) for problem, _ in read),
        fields=fields,
        pairs=_count_pairs(group, [problem for problem, _ in read]),
    )


def _count_pairs(group: ResultGroup, problems: Sequence[Any]) -> int | None:
    """The number of tasks in a sweep of these kernels and problems; None for old names, which have no known kind."""
    try:
        kernels = [parse_kernel(slug) for slug in group.kernels]
    except TilewrightError:
        return None
    return SweepPlan(problems, kernels, {group.where.device: group.where.arch}).count


class _ProblemReader:
    """Parses problems from JSON, with the fields that determine them.

    Finding these costs a construction per field; problems of one list mostly have the same, so field sets that were
    found before are tried first.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.known: list[tuple[str, ...]] = []

    def read(self, text: str) -> tuple[Any, dict[str, Any]]:
        problem = parse_problem(self.op.name, text)
        for names in self.known:
            own = {name: getattr(problem, name) for name in names}
            if self._is_made_by(own, problem):
                return problem, own
        own = list_problem_fields(problem, None)
        self.known = sorted([*self.known, tuple(own)], key=len)
        return problem, own

    def _is_made_by(self, own: dict[str, Any], problem: Any) -> bool:
        try:
            return bool(self.op.problem_type(**own) == problem)
        except InvalidValueError:
            return False  # it needs other fields


def _get_dtype(op: Op, problem: Any) -> str:
    return "" if op.execution is None else op.execution.tensors(problem)[0].dtype


def _read_compared_fields(op: Op, tokens: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The values of the op's report fields in kernel names, without fields that a name lacks."""
    fields = list_fields(op.config_type)
    found = {word: tuple(_find_value(fields[name], own) for own in tokens) for word, name in op.report_fields.items()}
    return {word: values for word, values in found.items() if all(values)}


def _find_value(field: Field, tokens: Sequence[str]) -> str:
    """The value of a field in a kernel name. Only this field is parsed: old names, with other fields, are reported too.

    Empty if the name lacks a required field.
    """
    for token in tokens:
        with contextlib.suppress(InvalidValueError):
            read_token(field, token)
            return token.removeprefix(field.tag) or token
    return "" if field.required else field.kind.to_token(field.default)


def _make_unique(words: Sequence[str], slugs: Sequence[str]) -> tuple[str, ...]:
    """Distinct labels of kernels: a part of the digest is added if only that differs (fields were added or removed)."""
    count = Counter(words)
    digests = [slug.rpartition("-")[2][:6] for slug in slugs]
    marked = [word if count[word] == 1 else f"{word} {digest}" for word, digest in zip(words, digests, strict=True)]
    return tuple(word.strip() or "the kernel" for word in marked)


def _find_shared_fields(fields: Sequence[dict[str, Any]]) -> list[str]:
    first, *others = fields
    return [name for name, value in first.items() if others and all(own.get(name) == value for own in others)]


def _describe_fields(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={format_problem_value(value)}" for name, value in fields.items())


def _parse_size(value: Any) -> int | None:
    if isinstance(value, tuple) and all(type(part) is int for part in value):
        return math.prod(value)
    return value if type(value) is int else None
