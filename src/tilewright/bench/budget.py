"""A sweep on a budget: rounds of a search, each a part of the plan, into the journal of the whole plan.

The journal is that of the plan without a budget. So a search resumes as every sweep does, a larger budget continues it,
and a sweep without a budget completes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tilewright.arch import load as load_arch
from tilewright.base.digest import digest_text
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.bench.plan import SweepPlan, TaskGrid
from tilewright.bench.search import ROUNDS, Pair, choose_round, read_budget
from tilewright.bench.sources import open_sources
from tilewright.bench.sweep import SweepSummary
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_values import dump_problem
from tilewright.select.chain import estimate_times
from tilewright.select.select import CandidatePool


@dataclass(frozen=True)
class PickedPlan(SweepPlan):
    """A part of a plan: some kernels for each problem, given by the problem's text. Its request is the whole plan's."""

    picked: Mapping[str, Sequence[Kernel]] = field(default_factory=dict)

    @cached_property
    def grids(self) -> tuple[TaskGrid, ...]:
        """A grid for each problem and kind of device, in the order of the problems' digests."""
        cold = bool(self.settings.get("cold", False))
        made = []
        for text in sorted(self.picked, key=digest_text):
            for device, arch in self.distinct_devices:
                own = tuple(kernel for kernel in self.picked[text] if kernel.arch == arch)
                if own:
                    made.append(TaskGrid(own, device, (text,), cold, self.versions))
        return tuple(made)


@dataclass(frozen=True)
class EstimatedPlan:
    """The pairs of a plan that a search chooses from: kernels that support a problem, with their estimates."""

    plan: SweepPlan
    texts: Sequence[str]
    kernels: Sequence[Kernel]
    estimates: Sequence[Mapping[int, float]]

    @property
    def total(self) -> int:
        """The number of pairs."""
        return sum(map(len, self.estimates))

    def make_part(self, pairs: Iterable[Pair]) -> PickedPlan:
        """The part of the plan with these pairs."""
        picked: dict[str, list[Kernel]] = defaultdict(list)
        for problem, kernel in pairs:
            picked[self.texts[problem]].append(self.kernels[kernel])
        plan = self.plan
        return PickedPlan(plan.problems, plan.kernels, plan.devices, plan.settings, plan.versions, picked)


def estimate_plan(plan: SweepPlan) -> EstimatedPlan:
    """Estimate all pairs of a plan. Kernels without an estimate are equal: they are tried in the order of names."""
    kernels = sorted(set(plan.kernels), key=lambda kernel: kernel.slug)
    numbers = {kernel: number for number, kernel in enumerate(kernels)}
    problems = {dump_problem(problem): problem for problem in plan.problems}
    estimates: dict[str, dict[int, float]] = {text: {} for text in problems}
    gpus = dict.fromkeys(plan.devices.values())
    with report_task("estimates", len(gpus) * len(problems)) as advance:
        for gpu in gpus:
            own = [kernel for kernel in kernels if kernel.arch == gpu]
            pool = CandidatePool.create(load_arch(gpu), own)
            for text, problem in problems.items():
                estimates[text] |= _estimate_problem(pool, problem, plan, text, numbers)
                advance()
    kept = [text for text in sorted(problems, key=digest_text) if estimates[text]]
    return EstimatedPlan(plan, kept, kernels, [estimates[text] for text in kept])


def _estimate_problem(
    pool: CandidatePool, problem: object, plan: SweepPlan, text: str, numbers: Mapping[Kernel, int]
) -> dict[int, float]:
    part = pool.get_candidates(problem)
    if part is None:
        return {}
    places = [place for place in part.find_supporting(problem) if plan.has_pair(part.kernels[place], text)]
    if not places:
        return {}
    us = [1.0] * len(places) if part.op.cost is None else estimate_times(part, problem, places)
    return {numbers[part.kernels[place]]: float(each) for place, each in zip(places, us, strict=True)}


def run_on_budget(
    plan: SweepPlan,
    folder: Path | str,
    budget: float,
    run_part: Callable[[SweepPlan], SweepSummary],
) -> SweepSummary:
    """Measure the pairs that a search chooses, at most as many as the budget allows.

    `run_part` measures a part of the plan into the folder's journal. Results that it already has count as measured by
    this search, so that a repeated call measures nothing again. A part that was stopped ends the search.
    """
    known = estimate_plan(plan)
    if not known.total:
        raise InvalidValueError("no kernel supports any of these problems, so there is nothing to measure")
    allowed = read_budget(budget, known.total)
    if allowed == known.total:
        return run_part(plan)
    summaries: list[SweepSummary] = []
    times: dict[Pair, float] = {}
    tried: set[Pair] = set()
    for number in range(ROUNDS):
        pairs = choose_round(known.estimates, times, tried, allowed, number)
        if not pairs:
            break
        tried.update(pairs)
        summaries.append(run_part(known.make_part(pairs)))
        if summaries[-1].left:
            break
        times |= _read_times(folder, known, pairs)
    return _add_summaries(summaries)


def _read_times(folder: Path | str, known: EstimatedPlan, pairs: Sequence[Pair]) -> dict[Pair, float]:
    """The times of pairs in the journal. Failures and counters have none."""
    numbers = {(known.texts[problem], known.kernels[kernel].slug): (problem, kernel) for problem, kernel in pairs}
    found: dict[Pair, float] = {}
    for record in open_sources(folder).iterate_records():
        pair = numbers.get((record.task.problem, record.task.kernel))
        if pair is not None and record.times is not None:
            found[pair] = record.times.us
    return found


def _add_summaries(parts: Sequence[SweepSummary]) -> SweepSummary:
    statuses: Counter[str] = Counter()
    for part in parts:
        statuses.update(part.statuses)
    return SweepSummary(
        statuses=statuses,
        known=sum(part.known for part in parts),
        damaged=parts[-1].damaged,
        left=parts[-1].left,
        quarantined=tuple(dict.fromkeys(kernel for part in parts for kernel in part.quarantined)),
        seconds=sum(part.seconds for part in parts),
        stopped=parts[-1].stopped,
    )
