"""The training data of a model, from a table of measurements: one op, one GPU, numbers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.arch import load as load_arch
from tilewright.arch.spec import Arch
from tilewright.base.documents import CONTENT_ERRORS, describe_error, parse_json
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.learn.measurements import OK, Measurements, TextColumn
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.cost_model.cost import CostModel, Facts, ResourceUse
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.problem_values import load_problem


class Medians(NamedTuple):
    """The groups in the order of their numbers: number, first row, median; and the index of each row's group."""

    group: NDArray[np.int64]
    first: NDArray[np.int64]
    median: NDArray[np.float64]
    place: NDArray[np.int64]


def compute_medians(group: NDArray[np.int64], values: NDArray[np.float64]) -> Medians:
    """The median of the values of each group: the middle one, or the mean of the middle two."""
    distinct, first, place, count = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    ordered = values[np.lexsort((values, place))]
    start = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64)
    return Medians(distinct, first, (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) / 2, place)


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Parsed = TypeVar("Parsed")

# Rows per chunk: its arrays stay in the cache, and a million rows need no gigabytes.
CHUNK = 1 << 16
# The distance between problems is measured in these model inputs, if an op has them all: the sizes of its GEMM. Two
# convolutions with the same GEMM count as the same, whatever their filters.
SIZES = ("m", "n", "k")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of one op on one GPU that have a time. Problems and kernels are numbered from 0."""

    op: Op
    arch: Arch
    problems: tuple[Any, ...]
    kernels: tuple[Kernel, ...]
    problem: Integers  # of each row
    kernel: Integers
    us: Floats
    row: Integers  # of each row: its index in the table, or that of the first of its repeats
    estimate: Floats  # µs, analytical
    names: tuple[str, ...]  # of the features
    features: Floats  # rows × names
    axes: tuple[str, ...]  # of the points
    points: Floats  # problems × axes: the coordinates of a problem, as logarithms of base 2
    digest: str  # of the source rows

    def __len__(self) -> int:
        return len(self.us)

    @property
    def best(self) -> Floats:
        """The best time of each row's problem."""
        best = np.full(len(self.problems), np.inf)
        np.minimum.at(best, self.problem, self.us)
        return best[self.problem]

    def select_rows(self, wanted: NDArray[np.bool_]) -> Dataset:
        """Some rows. The numbers of problems and kernels do not change."""
        columns = ("problem", "kernel", "us", "row", "estimate", "features")
        return replace(self, **{name: getattr(self, name)[wanted] for name in columns})

    def select_problems(self, problems: NDArray[Any]) -> Dataset:
        """The rows of some problems, given by number or as a mask."""
        wanted = np.zeros(len(self.problems), bool)
        wanted[problems] = True
        return self.select_rows(wanted[self.problem])


def build_dataset(
    table: Measurements,
    op: Op | str,
    arch: Arch | str,
    *,
    repeats: str = "median",
    uses: Mapping[str, ResourceUse] | None = None,
) -> Dataset:
    """The rows of one op and one GPU that have a time, with estimates and features.

    Several rows of one kernel and problem become their median, or stay with `repeats="keep"`. `uses` are the resources
    that code objects report, by kernel name; without one the kernel is estimated from its config.
    """
    op = find_op(op) if isinstance(op, str) else op
    arch = load_arch(arch) if isinstance(arch, str) else arch
    cost = require_cost_model(op)
    rows = np.flatnonzero(
        _match_text(table.op, op.name) & _match_text(table.arch, arch.name) & _match_text(table.status, OK)
    )
    if not len(rows):
        raise InvalidValueError(_describe_missing(table, op, arch))
    part = table.select_rows(rows)
    problems, problem = _parse_distinct(part.problem, "problem", lambda text: _parse_problem(op, text))
    kernels, kernel = _parse_distinct(part.kernel, "kernel", lambda slug: _parse_kernel(op, arch, slug))
    us = part.us
    if repeats == "median":
        found = compute_medians(problem * len(kernels) + kernel, us)
        order = np.argsort(found.first)  # pairs stay in the order of their first appearance
        first, us = found.first[order], found.median[order]
        problem, kernel, rows = problem[first], kernel[first], rows[first]
    elif repeats != "keep":
        raise InvalidValueError(f"repeats is {repeats!r}, must be 'median' or 'keep'")
    sizes = _make_columns([cost.problem_numbers(each) for each in problems])
    traits = _make_columns([cost.kernel_numbers(k.config, arch, (uses or {}).get(k.slug)) for k in kernels])
    estimate, names, features = _compute_rows(cost, arch, sizes, traits, (problem, kernel))
    axes, points = _make_points(sizes)
    return Dataset(
        op, arch, problems, kernels, problem, kernel, us, rows, estimate, names, features, axes, points, part.digest
    )


def require_cost_model(op: Op) -> CostModel:
    """The cost model of an op; an error if it has none."""
    if op.cost is None:
        raise InvalidValueError(f"{op.name} has no cost model for its kernels (Op.cost): nothing can be learned for it")
    return op.cost


def _match_text(column: TextColumn, text: str) -> NDArray[np.bool_]:
    return np.array([value == text for value in column.values], bool)[column.codes]


def _describe_missing(table: Measurements, op: Op, arch: Arch) -> str:
    pairs = sorted({(table.op.values[o], table.arch.values[a]) for o, a in _list_pairs(table)})
    found = ", ".join(f"{o} on {a}" for o, a in pairs) or "nothing"
    return f"the table has no row of {op.name} on {arch.name} with a time. It has rows of: {found}."


def _list_pairs(table: Measurements) -> list[tuple[int, int]]:
    pairs = np.unique(np.stack([table.op.codes, table.arch.codes], 1), axis=0)
    return [(int(o), int(a)) for o, a in pairs]


def _parse_distinct(
    column: TextColumn, what: str, read: Callable[[str], Parsed]
) -> tuple[tuple[Parsed, ...], Integers]:
    """The parsed values of a column, each once, and the index of each row's value. Equal values are merged."""
    number: dict[Any, int] = {}
    place = np.empty(len(column.values), np.int64)
    for i, text in enumerate(column.values):
        try:
            place[i] = number.setdefault(read(text), len(number))
        except CONTENT_ERRORS as error:
            raise InvalidValueError(f"{what} {text!r} cannot be parsed: {describe_error(error)}") from error
    return tuple(number), place[column.codes]


def _parse_problem(op: Op, text: str) -> Any:
    return load_problem(op.problem_type, parse_json(text))


def _parse_kernel(op: Op, arch: Arch, slug: str) -> Kernel:
    kernel = parse_kernel(slug)
    if (kernel.op, kernel.arch) != (op.name, arch.name):
        raise InvalidValueError(
            f"it is a kernel of {kernel.op} on {kernel.arch}, but its row is for {op.name} on {arch.name}"
        )
    return kernel


def _make_columns(numbers: Sequence[Mapping[str, float]]) -> dict[str, Floats]:
    return {name: np.array([each[name] for each in numbers], np.float64) for name in numbers[0]}


def _compute_rows(
    cost: CostModel,
    arch: Arch,
    sizes: Mapping[str, Floats],
    traits: Mapping[str, Floats],
    of: tuple[Integers, Integers],
) -> tuple[Floats, tuple[str, ...], Floats]:
    """Estimate and features of every row, one chunk at a time."""
    rows = len(of[0])
    estimate, features = np.empty(rows), np.empty((rows, 0))
    names: tuple[str, ...] = ()
    with report_task("features", -(-rows // CHUNK)) as advance:
        for start in range(0, rows, CHUNK):
            part = slice(start, start + CHUNK)
            p = Facts(**{name: column[of[0][part]] for name, column in sizes.items()})
            k = Facts(**{name: column[of[1][part]] for name, column in traits.items()})
            result = cost.estimate(p, k, arch)
            columns = cost.features(p, k, result, arch)
            if not names:
                names, features = tuple(columns), np.empty((rows, len(columns)))
            estimate[part] = result.us
            for i, column in enumerate(columns.values()):
                features[part, i] = column
            advance()
    _check_finite(names, features)
    return estimate, names, features


def _check_finite(names: Sequence[str], features: Floats) -> None:
    wrong = [name for i, name in enumerate(names) if not np.isfinite(features[:, i]).all()]
    if wrong:
        listed = ", ".join(wrong)
        raise InvalidValueError(f"these features are not finite for every row: {listed}")


def _make_points(sizes: Mapping[str, Floats]) -> tuple[tuple[str, ...], Floats]:
    axes = SIZES if set(SIZES) <= set(sizes) else tuple(sizes)
    return axes, np.stack([np.log2(np.maximum(sizes[name], 2.0**-20)) for name in axes], 1)
