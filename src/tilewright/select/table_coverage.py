"""Which problems have a row in a tuned table of aiter, and what is expected of those that have none.

A problem without a row of its own takes the row of another size if aiter looks that up, else aiter's default. Here it
gets the kernel that the estimate takes, and the time that a tuned row is expected to have. Their ratio is the loss of
the estimate's kernel, known before anything is measured.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.ops.aiter_table import Key, TableFamily
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.select.chain import estimate_times
from tilewright.select.select import CandidatePool

OWN, OTHER, NONE = "own", "other", "none"
# Rows that an expected time is derived from: with more, rows of other matrices count, with one, its noise.
NEAREST = 3


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A problem and its row: `row` is the key that aiter finds, `us` the time in it.

    `kernel` is the one that the estimate takes, None if no kernel of the op's portfolio computes the problem.
    """

    key: Key
    problem: Any
    row: Key | None = None
    us: float | None = None
    kernel: Kernel | None = None
    estimate_us: float | None = None

    @property
    def state(self) -> str:
        return NONE if self.row is None else OWN if self.row == self.key else OTHER


@dataclass(frozen=True)
class TableCoverage:
    """The entries of all problems. `refused` are keys that the op has no problem for, with the reason."""

    entries: Sequence[TableEntry]
    refused: Mapping[Key, str]

    @functools.cached_property
    def timed(self) -> tuple[TableEntry, ...]:
        """The problems with a row of their own, a time in it and an estimate."""
        return tuple(each for each in self.entries if each.state == OWN and each.us and each.estimate_us)

    def expect_us(self, entry: TableEntry) -> float | None:
        """The expected time of a tuned row: the estimate, times measured over estimated time of the nearest rows.

        Near are problems with similar FLOPs and traffic. The problem's own row does not count.
        """
        others = sorted((_measure_distance(entry, each), _compute_ratio(each)) for each in self.timed if each != entry)
        if entry.estimate_us is None or not others:
            return None
        return entry.estimate_us * statistics.geometric_mean(ratio for _, ratio in others[:NEAREST])

    def expect_loss(self, entry: TableEntry) -> float | None:
        """The time that the estimate's kernel is expected to take more than a tuned row, as a share of the latter."""
        expected = self.expect_us(entry)
        return None if expected is None or entry.estimate_us is None else entry.estimate_us / expected - 1

    @functools.cached_property
    def errors(self) -> tuple[float, ...]:
        """The expected over the measured time of all rows, in increasing order: how far to trust expected times."""
        expected = ((each.us, self.expect_us(each)) for each in self.timed)
        return tuple(sorted(found / us for us, found in expected if us and found))


def _compute_ratio(entry: TableEntry) -> float:
    assert entry.us and entry.estimate_us
    return entry.us / entry.estimate_us


def _measure_distance(one: TableEntry, other: TableEntry) -> float:
    a, b = one.problem, other.problem
    return math.hypot(math.log(a.flops / b.flops), math.log(a.bytes_moved / b.bytes_moved))


def compute_coverage(
    op: Op, family: TableFamily, arch: Arch, rows: Mapping[Key, float], keys: Sequence[Key]
) -> TableCoverage:
    """Look up each key as aiter does in `rows`, times by key, and estimate the problem of each."""
    if op.portfolio is None or op.cost is None:
        raise InvalidValueError(f"{op.name} has no portfolio and estimate: its problems cannot be estimated")
    estimates = _Estimates(op, arch)
    refused: dict[Key, str] = {}
    entries = []
    unique = list(dict.fromkeys(keys))
    with report_task("estimating problems", len(unique)) as advance:
        for key in unique:
            advance()
            try:
                problem = family.read_key(key)
            except InvalidValueError as error:
                refused[key] = str(error)
                continue
            row = next((each for each in family.list_look_ups(key) if each in rows), None)
            entries.append(estimates.make_entry(key, problem, row, None if row is None else rows[row]))
    return TableCoverage(tuple(entries), refused)


class _Estimates:
    """Estimates of the kernels of an op's portfolio. Problems with the same kernels share their pool."""

    def __init__(self, op: Op, arch: Arch) -> None:
        self._op = op
        self._arch = arch
        self._pools: dict[tuple[Kernel, ...], CandidatePool] = {}

    def make_entry(self, key: Key, problem: Any, row: Key | None, us: float | None) -> TableEntry:
        times = self._estimate(problem)
        if not times:
            return TableEntry(key, problem, row, us)
        kernel = min(times, key=lambda each: (times[each], each.slug))
        return TableEntry(key, problem, row, us, kernel, times[kernel])

    def _estimate(self, problem: Any) -> dict[Kernel, float]:
        """The estimated times of all kernels that compute a problem."""
        assert self._op.portfolio is not None
        kernels = self._op.portfolio.list_kernels(problem, self._arch)
        if kernels not in self._pools:
            self._pools[kernels] = CandidatePool.create(self._arch, kernels)
        part = self._pools[kernels].get_candidates(problem)
        places = [] if part is None else part.find_supporting(problem)
        if part is None or not places:
            return {}
        us = estimate_times(part, problem, places)
        return {part.kernels[place]: float(time) for place, time in zip(places, us, strict=True)}
