"""The default selector: tuned tables, then estimates, then learned models. Ranking many kernels needs NumPy."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts
from tilewright.ops.op import Op
from tilewright.select.bundle import Bundle, load_builtin_bundles, score_kernels
from tilewright.select.select import CandidatePool, Candidates, OpCandidates
from tilewright.select.selection import FIRST_FIT_STEP, Candidate, LazySequence, Ranking, SelectorStep
from tilewright.select.tuned import TunedEntry, TunedTable

# Below this number of kernels a loop is faster than arrays.
FEW = 4
# Number of kernels that a learned model re-ranks: the best one is rarely ranked lower by its estimate.
RERANKED = 32


@dataclass(frozen=True)
class Chain:
    """Exact tuned table → kernels that support the problem → estimate → learned re-rank → first fit among equals.

    A kernel of higher priority always ranks before one of lower priority, and one that supports the problem itself
    before one that supports a padded problem. `bundles` None means the built-in bundles of the op.
    """

    tuned: TunedTable | None = None
    bundles: tuple[Bundle, ...] | None = None

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Candidate]) -> Ranking:
        """The candidates, best first; terms and reasons are computed on access."""
        able = candidates if isinstance(candidates, Candidates) else _to_candidates(problem, arch, candidates)
        part = able.part
        entry = self.tuned.find_entry(arch.name, problem) if self.tuned is not None else None
        steps = [self._make_tuned_step(part, able, entry)]
        steps.append(SelectorStep("support", f"{len(able.places)} of {len(part.kernels)} kernels support it unpadded"))
        if part.op.cost is None:
            steps.append(SelectorStep(FIRST_FIT_STEP, f"{part.op.name} has no estimate: order of registration"))
            return Ranking(able, tuple(steps))
        us = estimate_times(part, problem, able.places)
        steps.append(SelectorStep("estimate", f"{len(able.places)} kernels, without measurements"))
        order = _sort_by_time(us)
        bundles = self._select_bundles(part.op, arch, problem)
        first = order[:RERANKED]
        learned = _predict_learned(able, first, bundles) if len(first) > 1 else {}
        order = [*sorted(first, key=lambda n: learned[n].us if n in learned else us[n]), *order[RERANKED:]]
        steps.append(SelectorStep("learned", _describe_learned(bundles, learned, len(first), part.op, arch)))
        ranked = [*_sort_by_priority(able, order, entry), *_order_padded(able)]
        make = functools.partial(_make_candidate, able, us, learned, entry)
        return Ranking(LazySequence(len(able), lambda place: make(ranked[place])), tuple(steps))

    def _make_tuned_step(self, part: OpCandidates, able: Candidates, entry: TunedEntry | None) -> SelectorStep:
        if self.tuned is None:
            return SelectorStep("tuned table", "none given")
        if entry is None:
            return SelectorStep("tuned table", f"{self.tuned.source or 'the table'} has no entry for this problem")
        known = entry.kernel in {part.kernels[place] for place in able.places}
        lacking = "" if known else ", which is not one of the candidates"
        return SelectorStep("tuned table", f"{entry.kernel.slug} took {entry.us:.4g} µs{lacking}")

    def _select_bundles(self, op: Op, arch: Arch, problem: Any) -> list[Bundle]:
        """The bundles for such problems; the first that covers a kernel corrects its estimate."""
        if not has_numpy():
            return []
        bundles = load_builtin_bundles(op) if self.bundles is None else self.bundles
        return [bundle for bundle in bundles if bundle.applies(op.name, arch.name, problem)]


CHAIN = Chain()


def _to_candidates(problem: Any, arch: Arch, candidates: Sequence[Candidate]) -> Candidates:
    """Convert candidates of a caller to a pool of their own."""
    pool = CandidatePool.create(arch, [choice.kernel for choice in candidates])
    part = pool.get_candidates(problem)
    assert part is not None, "candidates are kernels of the problem's op"
    plain = [place for place, choice in enumerate(candidates) if choice.padded is None]
    padded = [(place, c.padded, c.why) for place, c in enumerate(candidates) if c.padded is not None]
    return Candidates(part, problem, plain, padded)


def compute_problem_inputs(cost: CostModel, problem: Any) -> Facts:
    """The model inputs of a problem."""
    return Facts(**cost.problem_numbers(problem))


def estimate_times(part: OpCandidates, problem: Any, places: Sequence[int]) -> Sequence[float]:
    """Estimated microseconds of each kernel: an array if NumPy is installed, else a list of the same numbers."""
    cost = part.op.cost
    assert cost is not None
    facts, arch = compute_problem_inputs(cost, problem), part.pool.arch
    if len(places) < FEW or not has_numpy():
        return [float(cost.estimate(facts, part.rows[place], arch).us) for place in places]
    import numpy as np  # noqa: PLC0415  (an extra)

    us = cost.estimate(facts, part.gather_inputs(places), arch).us
    return cast("Sequence[float]", np.broadcast_to(us, (len(places),)))


def estimate_kernel(part: OpCandidates, problem: Any, place: int) -> Estimate:
    """The estimate of one kernel, with its terms."""
    cost = part.op.cost
    assert cost is not None
    return cost.estimate(compute_problem_inputs(cost, problem), part.rows[place], part.pool.arch)


@functools.cache
def has_numpy() -> bool:
    """Whether NumPy is installed, so that all kernels can be estimated at once."""
    return importlib.util.find_spec("numpy") is not None


@dataclass(frozen=True, slots=True)
class _LearnedTime:
    """A bundle's prediction for a kernel."""

    us: float
    bundle: str


def _predict_learned(able: Candidates, first: Sequence[int], bundles: Sequence[Bundle]) -> dict[int, _LearnedTime]:
    """Predictions for the first candidates, by their index; each comes from the first bundle that covers the kernel."""
    found: dict[int, _LearnedTime] = {}
    for bundle in bundles:
        configs = {number: able.part.kernels[able.places[number]].config for number in first if number not in found}
        known = [number for number, config in configs.items() if bundle.covers(config)]
        times = _predict_times(bundle, able, [able.places[number] for number in known]) if known else []
        found |= {number: _LearnedTime(us, bundle.name) for number, us in zip(known, times, strict=True)}
    return found


def _predict_times(bundle: Bundle, able: Candidates, places: Sequence[int]) -> list[float]:
    """Microseconds that a bundle predicts for these kernels."""
    cost, arch = able.part.op.cost, able.part.pool.arch
    assert cost is not None
    facts, kernels = compute_problem_inputs(cost, able.problem), able.part.gather_inputs(places)
    scores = score_kernels(bundle, facts, kernels, cost.estimate(facts, kernels, arch), arch)
    return [math.exp(score) for score in scores]


def _sort_by_time(us: Sequence[float]) -> list[int]:
    """Indices sorted by time; equal ones keep their order."""
    sort = getattr(us, "argsort", None)
    if sort is not None:
        ordered: list[int] = sort(kind="stable").tolist()
        return ordered
    return sorted(range(len(us)), key=us.__getitem__)


def _sort_by_priority(able: Candidates, order: list[int], entry: TunedEntry | None) -> list[int]:
    """Sort by priority, with the tuned kernel before others of its priority; otherwise keep the order."""
    part, pool = able.part, able.part.pool
    if entry is not None:
        order = sorted(order, key=lambda number: part.kernels[able.places[number]] != entry.kernel)
    if pool.priorities:
        order = sorted(order, key=lambda number: -pool.get_priority(part.kernels[able.places[number]]))
    return order


def _order_padded(able: Candidates) -> list[int]:
    """Indices of padded candidates, by priority and then by estimate."""
    many, pool = len(able.places), able.part.pool
    times = [float(estimate_kernel(able.part, larger, place).us) for place, larger, _ in able.padded]
    keys = [(-pool.get_priority(able.part.kernels[able.padded[i][0]]), times[i]) for i in range(len(times))]
    return [many + i for i in sorted(range(len(keys)), key=keys.__getitem__)]


def _make_candidate(
    able: Candidates, us: Sequence[float], learned: dict[int, _LearnedTime], entry: TunedEntry | None, number: int
) -> Candidate:
    """One candidate with its time, terms and reason."""
    plain = able[number]
    padded = number >= len(able.places)
    place = able.padded[number - len(able.places)][0] if padded else able.places[number]
    estimate = estimate_kernel(able.part, plain.padded if padded else able.problem, place)
    terms = {name: float(value) for name, value in estimate.terms.items()}
    estimated = float(estimate.us) if padded else float(us[number])
    time, why = estimated, f"estimated {estimated:.4g} µs, {_describe_largest(terms)}"
    if number in learned:
        time = learned[number].us
        why = f"{learned[number].bundle} predicts {time:.4g} µs, the estimate is {estimated:.4g} µs"
    if entry is not None and entry.kernel == plain.kernel and not padded:
        time, why = entry.us, f"measured {entry.us:.4g} µs for exactly this problem"
    priority = able.part.pool.get_priority(plain.kernel)
    said = f"priority {priority}, " if priority else ""
    remark = f"; {plain.why.removeprefix(said)}" if padded else ""
    return Candidate(plain.kernel, 1e6 / time, f"{said}{why}{remark}", plain.padded, time, terms)


def _describe_largest(terms: dict[str, float]) -> str:
    """The two largest terms of a time, largest first."""
    first = sorted(terms, key=lambda name: -terms[name])[:2]
    return ", ".join(f"{name} {terms[name]:.4g}" for name in first)


def _describe_learned(
    bundles: Sequence[Bundle], learned: dict[int, _LearnedTime], first: int, op: Op, arch: Arch
) -> str:
    if not has_numpy():
        return "skipped: NumPy is not installed"
    if not bundles:
        return f"no bundle for such {op.name} problems on {arch.name}"
    names = ", ".join(bundle.name for bundle in bundles)
    return f"{names}: corrects the estimates of {len(learned)} of the first {first}"
