"""Suspects for disagreements: instructions that kernels with different results use, and kernels with equal results not.

It is a comparison of the kernels of the sample, not a proof. Each suspect therefore says how many kernels of both sides
use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilewright.acceptance.instruction_classes import CLASS_ORDER, EFFECTS, ROUNDING, classify_instruction

# More names than this do not help a reader.
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Suspect:
    """A class of instructions with the suspicious mnemonics in it, the most suspicious first.

    Each of the mnemonics is as suspicious as the others, or all together are more suspicious than any of them. The
    counts are the kernels that disagree and that agree, and those of them that use such an instruction.
    """

    name: str
    mnemonics: tuple[str, ...]
    disagreeing: int
    of_disagreeing: int
    agreeing: int
    of_agreeing: int

    @property
    def score(self) -> float:
        """The share of disagreeing kernels that use it, less that of agreeing ones: 1 if it separates both."""
        share = self.agreeing / self.of_agreeing if self.of_agreeing else 0.0
        return self.disagreeing / self.of_disagreeing - share

    @property
    def exclusive(self) -> bool:
        """Whether only kernels that disagree use it."""
        return self.agreeing == 0 and self.of_agreeing > 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "mnemonics": list(self.mnemonics), "exclusive": self.exclusive}

    def __str__(self) -> str:
        named = ", ".join(self.mnemonics[:MOST_NAMED])
        more = f" and {len(self.mnemonics) - MOST_NAMED} more" if len(self.mnemonics) > MOST_NAMED else ""
        return f"{self.name} ({named}{more})"


def find_exclusive(uses: Mapping[str, Collection[str]], name: str, agreeing: Iterable[str]) -> dict[str, list[str]]:
    """The mnemonics that a kernel uses and no agreeing kernel uses, by class, the most suspicious class first."""
    cleared = {mnemonic for each in agreeing for mnemonic in uses.get(each, ())}
    found: dict[str, list[str]] = {}
    for mnemonic in sorted(set(uses.get(name, ())) - cleared):
        found.setdefault(classify_instruction(mnemonic), []).append(mnemonic)
    return dict(sorted(found.items(), key=lambda item: CLASS_ORDER[item[0]]))


def rank_suspects(
    uses: Mapping[str, Collection[str]],
    disagreeing: Sequence[str],
    agreeing: Sequence[str],
    symptom: str | None = None,
) -> tuple[Suspect, ...]:
    """Rank classes of instructions by how much more often disagreeing kernels use them than agreeing ones.

    `uses` has the mnemonics of each kernel. Classes whose errors show as the `symptom` (rounding or movement) come
    first among equals. A class that both sides use equally often is not a suspect, unless every kernel disagrees.
    """
    bad = [frozenset(uses[name]) for name in disagreeing if name in uses]
    good = [frozenset(uses[name]) for name in agreeing if name in uses]
    if not bad:
        return ()
    classes: dict[str, list[str]] = {}
    for mnemonic in sorted(frozenset().union(*bad)):
        classes.setdefault(classify_instruction(mnemonic), []).append(mnemonic)
    found = []
    for name, mnemonics in classes.items():
        suspect = _judge_class(name, mnemonics, bad, good)
        if suspect.score > 0:
            fits = symptom is None or symptom in EFFECTS[name]
            found.append(((-suspect.score, not fits, CLASS_ORDER[name]), suspect))
    return tuple(suspect for _, suspect in sorted(found, key=lambda each: each[0]))


def _judge_class(
    name: str, mnemonics: Sequence[str], bad: Sequence[frozenset[str]], good: Sequence[frozenset[str]]
) -> Suspect:
    """The class as a whole if kernels use different instructions of it, else its most suspicious instructions."""

    def count(wanted: Collection[str]) -> Suspect:
        wrong, right = (sum(not each.isdisjoint(wanted) for each in side) for side in (bad, good))
        return Suspect(name, tuple(wanted), wrong, len(bad), right, len(good))

    single = sorted((count((each,)) for each in mnemonics), key=lambda each: (-each.score, each.mnemonics))
    best = [each for each in single if each.score == single[0].score]
    # Of one class, kernels may use different instructions: reads of LDS have four widths.
    cleared = frozenset().union(*good)
    whole = count([each.mnemonics[0] for each in single if each.mnemonics[0] not in cleared])
    if whole.score > best[0].score:
        return whole
    return replace(best[0], mnemonics=tuple(each.mnemonics[0] for each in best))


def find_symptom(largest_ulps: Iterable[float | None], *, most: float = 16.0) -> str | None:
    """`rounding` if all differences are at most a few ulps, `movement` if all are larger, else None.

    None stands for a difference that is not a number of ulps: a NaN, or an element that was not written.
    """
    small = [each is not None and each <= most for each in largest_ulps]
    if not small or (any(small) and not all(small)):
        return None
    return ROUNDING if all(small) else "movement"
