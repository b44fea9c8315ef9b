"""Find the fastest kernel of each problem from measured times."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch import load as load_arch
from tilewright.base.errors import InvalidValueError, TilewrightError
from tilewright.base.events import report_task
from tilewright.bench.gpu_model import SingleModelCheck
from tilewright.bench.plan import parse_problem
from tilewright.bench.record import Record
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.select.chain import estimate_times
from tilewright.select.select import CandidatePool, OpCandidates
from tilewright.select.tuned import TunedEntry, TunedTable


@dataclass(frozen=True)
class ProblemTimes:
    """A problem on a GPU, and the times of all measured kernels, ordered by name.

    A kernel that was measured several times, on several machines or with several software versions, has the median: the
    quickest of many timings is the luckiest one.
    """

    arch: str
    problem: Any
    us: Mapping[Kernel, float]

    @property
    def winner(self) -> TunedEntry:
        """The kernel with the least time; on a tie the first by name."""
        best = min(self.us, key=lambda kernel: (self.us[kernel], kernel.slug))
        return TunedEntry(best, self.problem, self.us[best])


@dataclass(frozen=True)
class Gain:
    """The gain from measuring a problem: the winner compared with the kernel that the estimate selects."""

    winner: TunedEntry
    chosen: Kernel
    chosen_us: float  # measured, too

    @property
    def times_faster(self) -> float:
        return self.chosen_us / self.winner.us


@dataclass(frozen=True)
class Gains:
    """Gains over many problems. `uncompared` problems have no estimate of a measured kernel."""

    gains: tuple[Gain, ...]
    uncompared: int

    @property
    def agreed(self) -> int:
        """The number of problems for which the estimate selects a kernel as fast as the winner."""
        return sum(gain.chosen_us == gain.winner.us for gain in self.gains)

    @property
    def times_faster(self) -> float | None:
        """The geometric mean over problems; None without problems."""
        if not self.gains:
            return None
        return math.exp(statistics.fmean(math.log(gain.times_faster) for gain in self.gains))

    @property
    def largest(self) -> Gain | None:
        """The problem with the largest gain."""
        return max(self.gains, key=lambda gain: gain.times_faster, default=None)


def make_tuned_table(records: Iterable[Record], source: str = "", *, cold: bool | None = None) -> TunedTable:
    """The fastest kernel of each problem and GPU, from records with times. Counters and failures are skipped.

    Raises as `group_times` does.
    """
    return TunedTable((each.winner for each in group_times(records, cold=cold)), source)


def group_times(records: Iterable[Record], *, cold: bool | None = None) -> list[ProblemTimes]:
    """The measured times by GPU and problem, in the order of first appearance.

    `cold` selects times with cold caches, or with warm ones. Raises `InvalidValueError` if no record holds a time, if
    cold and warm times are mixed without a choice, for times of two GPU models of one architecture, and for a record
    that cannot be parsed.
    """
    read = _TimesReader()
    passed: Counter[str] = Counter()
    caches: Counter[bool] = Counter()
    models = SingleModelCheck()
    for record in records:
        if record.times is None:
            passed["counters" if record.kind == "counters" else record.status] += 1
            continue
        caches[record.task.cold] += 1
        if cold in (None, record.task.cold):
            models.check(record.task)
            read.add(record, record.times.us)
    _check_times(passed, caches, cold)
    return read.to_problem_times()


def compute_gains(problems: Sequence[ProblemTimes]) -> Gains:
    """The winners compared with the kernel that the estimate selects among those measured for the same problem."""
    kernels: dict[str, dict[Kernel, None]] = defaultdict(dict)
    for each in problems:
        kernels[each.arch].update(dict.fromkeys(each.us))
    pools = {
        arch: CandidatePool.create(load_arch(arch), sorted(names, key=lambda kernel: kernel.slug))
        for arch, names in kernels.items()
    }
    compared: list[Gain] = []
    with report_task("comparing with the estimate", len(problems)) as advance:
        for each in problems:
            part = pools[each.arch].get_candidates(each.problem)
            chosen = _choose_by_estimate(part, each) if part is not None and part.op.cost is not None else None
            if chosen is not None:
                compared.append(Gain(each.winner, chosen, each.us[chosen]))
            advance()
    return Gains(tuple(compared), len(problems) - len(compared))


def _choose_by_estimate(part: OpCandidates, problem: ProblemTimes) -> Kernel | None:
    """The measured kernel with the least estimate. Kernels that a rule rejects for this problem are not considered."""
    places = [place for place in part.find_supporting(problem.problem) if part.kernels[place] in problem.us]
    if not places:
        return None
    us = estimate_times(part, problem.problem, places)
    return part.kernels[places[min(range(len(places)), key=us.__getitem__)]]


class _TimesReader:
    """Times by problem and kernel. Texts repeat often: each is parsed once, and then has a number."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, str, str], Kernel] = {}
        self._numbers: dict[tuple[str, str, str], int] = {}  # by op, GPU and problem text
        self._problems: dict[tuple[str, Any], int] = {}  # by GPU and problem: several texts may be equal problems
        self._times: list[dict[str, list[float]]] = []  # by problem number, then by kernel name

    def add(self, record: Record, us: float) -> None:
        asked = record.task
        if (asked.op, asked.arch, asked.kernel) not in self._kernels:
            self._kernels[asked.op, asked.arch, asked.kernel] = _parse_kernel(record)
        number = self._numbers.get((asked.op, asked.arch, asked.problem))
        if number is None:
            number = self._problems.setdefault((asked.arch, _parse_problem(record)), len(self._times))
            self._numbers[asked.op, asked.arch, asked.problem] = number
            if number == len(self._times):
                self._times.append({})
        self._times[number].setdefault(asked.kernel, []).append(us)

    def to_problem_times(self) -> list[ProblemTimes]:
        kernels = {name: kernel for (_, _, name), kernel in self._kernels.items()}
        return [
            ProblemTimes(arch, problem, {kernels[name]: statistics.median(times[name]) for name in sorted(times)})
            for (arch, problem), times in zip(self._problems, self._times, strict=True)
        ]


def _parse_kernel(record: Record) -> Kernel:
    asked = record.task
    kernel = parse_kernel(asked.kernel)
    if (kernel.op, kernel.arch) != (asked.op, asked.arch):
        raise InvalidValueError(
            f"record {record.key} is for {asked.op} on {asked.arch}, but its kernel is for {kernel.op} on "
            f"{kernel.arch}: {asked.kernel}"
        )
    return kernel


def _parse_problem(record: Record) -> Any:
    try:
        return parse_problem(record.task.op, record.task.problem)
    except TilewrightError as error:
        raise InvalidValueError(f"record {record.key} has an invalid problem: {error}") from error


def _check_times(passed: Mapping[str, int], caches: Mapping[bool, int], cold: bool | None) -> None:
    warm_times, cold_times = caches.get(False, 0), caches.get(True, 0)
    if not (warm_times or cold_times):
        held = ", ".join(f"{count:,} {name}" for name, count in sorted(passed.items())) or "no records"
        advice = " An emulated device has counters and no times: measure on a GPU." if "counters" in passed else ""
        raise InvalidValueError(f"no record holds a time, so a winner cannot be chosen. There are: {held}.{advice}")
    if cold is None and warm_times and cold_times:
        raise InvalidValueError(
            f"{cold_times:,} times are with cold caches and {warm_times:,} with warm ones, which are not comparable. "
            "Choose one of them."
        )
    if cold is not None and not caches.get(cold, 0):
        wanted, other, count = ("cold", "warm", warm_times) if cold else ("warm", "cold", cold_times)
        raise InvalidValueError(f"no time is with {wanted} caches; {count:,} are with {other} ones")
