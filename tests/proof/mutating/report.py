"""The outcomes of mutations as Markdown: a row and a section for each kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tests.proof.mutating.judge import MISSED, NOTICED, SAME, WITHIN, Outcome
from tests.proof.mutating.reasons import HARMLESS
from tilewright.ops.kernel import Kernel

GOAL = 0.99  # the share of harmful mutations that `verify` must notice
_HEAD = """# Would a wrong kernel be noticed?

Written by `tests/proof/mutations.py`. We change one instruction of a kernel at a time, and judge the kernel as you
judge your own: by `verify`, on the op's own trials, in strict mode. We choose among the instructions that trials or
larger random problems execute, in all forms that a kernel is compiled in.

A change that passes all trials runs on the larger problems. If `verify` rejects one of them, or the device stops the
kernel, the change was **missed**. If all results are the same, bit for bit, it has no effect that matters: a sign bit
that is never set, the quotient of a number that is always small. If some results have other bits, and `verify` accepts
all of them, the change is **within the tolerance**: `verify` would accept a kernel written that way, with a constant
one bit off. It may still do harm on problems that we did not run, so you find these changes listed, with the largest
share of the allowed error among results with other bits. Unchanged kernels use up to two thirds.
The score is noticed / (noticed + missed).

Barriers and waits are removed one at a time, chosen at random if a kernel has many. If no trial notices, we watch
launches on a slower engine, to find out whether this one is needed. A wait is not needed if nothing is pending; if the
next one waits for the same; if it waits only for LDS reads, which complete in order; or if nothing uses the result
before another wait: registers full of garbage make no difference, and no other wave touches the bytes. A barrier is not
needed if no two waves in a work-group touch the same byte, one of them writing, between the adjacent barriers.
All others count as missed.

A kernel whose name ends with `@` and a date needs the CK tree of this date; all others use the fetched headers.

| kernel | changes | noticed | same everywhere | within the tolerance | missed | score | barriers and waits | noticed |\
 not needed | missed |
|---|---|---|---|---|---|---|---|---|---|---|"""
_HEADING = "\n## "
ARGUMENTS = f"{_HEADING}Changed arguments\n"  # the last section, which `argument_report` writes
_UNEXPLAINED = (SAME, WITHIN, MISSED)  # of barriers and waits


@dataclass(frozen=True)
class KernelReport:
    """The outcomes of one kernel's mutations."""

    name: str
    kernel: Kernel
    seed: int
    changes: Mapping[str, Outcome]
    removals: Mapping[str, Outcome]
    fast: int  # noticed removals that fast mode notices, too, on the same trial
    trials: int
    larger: int
    wrong_problems: Sequence[str]  # problems that the unchanged kernel computes wrongly
    waits: int  # all barriers and waits of the kernel

    @property
    def score(self) -> float:
        noticed, missed = (_count(self.changes, verdict) for verdict in (NOTICED, MISSED))
        return noticed / (noticed + missed) if noticed + missed else 1.0

    @property
    def unexplained(self) -> int:
        """Removed barriers and waits that no trial notices and that no known reason makes needless."""
        return sum(outcome.verdict in _UNEXPLAINED for outcome in self.removals.values())

    def format_row(self) -> str:
        """Format the kernel's row of the table."""
        cells = (
            f"`{self.name}`",
            len(self.changes),
            *(_count(self.changes, verdict) for verdict in (NOTICED, SAME, WITHIN, MISSED)),
            f"{100 * self.score:.1f} %",
            len(self.removals),
            _count(self.removals, NOTICED),
            sum(outcome.verdict in HARMLESS for outcome in self.removals.values()),
            self.unexplained,
        )
        return f"| {' | '.join(str(cell) for cell in cells)} |"

    def format_section(self, today: date) -> str:
        """Format the kernel's section: the facts that the table leaves out."""
        noticing = {outcome.trial for outcome in self.changes.values() if outcome.verdict == NOTICED}
        lines = [
            f"```text\n{self.kernel.slug}\n```",
            "",
            f"{today.isoformat()}, seed {self.seed}; {self.trials} trials, {self.larger} larger problems. "
            f"{len(self.removals)} of {self.waits} barriers and waits were removed.",
            f"All noticed changes were noticed by {len(noticing)} trials. Fast mode notices {self.fast} of the",
            f"{_count(self.removals, NOTICED)} noticed barriers and waits, on the same trial.",
        ]
        missed = [(name, o.how) for name, o in self.changes.items() if o.verdict == MISSED]
        missed += [(name, o.how) for name, o in self.removals.items() if o.verdict in _UNEXPLAINED]
        if missed:
            lines += ["", "| missed | where it shows |", "|---|---|"]
            lines += [f"| `{name}` | {how or 'nowhere'} |" for name, how in missed]
        needless = Counter(o.verdict for o in self.removals.values() if o.verdict in HARMLESS)
        if needless:
            lines += ["", "| barriers and waits that are not needed | |", "|---|---|"]
            lines += [f"| {reason} | {needless[reason]} |" for reason in HARMLESS if needless[reason]]
        within = [(name, o) for name, o in self.changes.items() if o.verdict == WITHIN]
        if within:
            lines += ["", "| within the tolerance | share of the allowed error | where |", "|---|---|---|"]
            lines += [f"| `{name}` | {o.share:.3f} | {o.how.rpartition(':')[0]} |" for name, o in within]
        if self.wrong_problems:
            lines += ["", "The unchanged kernel is wrong on these problems, which we left out:", ""]
            lines += [f"- {problem}" for problem in self.wrong_problems]
        return "\n".join(lines)


def _count(outcomes: Mapping[str, Outcome], verdict: str) -> int:
    return sum(outcome.verdict == verdict for outcome in outcomes.values())


def write_report(path: Path, order: Sequence[str], found: Sequence[KernelReport], today: date) -> None:
    """Write these kernels' rows and sections to the document at `path`, and keep all others, in `order`."""
    rows, sections = read_report(path) if path.exists() else ({}, {})
    _, found_arguments, arguments = (path.read_text(encoding="utf-8") if path.exists() else "").partition(ARGUMENTS)
    rows |= {each.name: each.format_row() for each in found}
    sections |= {each.name: each.format_section(today) for each in found}
    names = [name for name in order if name in rows]
    parts = [f"{_HEADING[1:]}{name}\n\n{sections[name].strip()}" for name in names]
    head = "\n".join([_HEAD, *(rows[name] for name in names)])
    path.write_text("\n\n".join([head, *parts]) + "\n" + found_arguments + arguments, encoding="utf-8")


def read_report(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read the rows and the sections of a document, by the name of the kernel."""
    head, *found = path.read_text(encoding="utf-8").split(_HEADING)
    rows = {line.split("`")[1]: line for line in head.splitlines() if line.startswith("| `")}
    named = dict(section.split("\n", 1) for section in found)
    return rows, {name: text for name, text in named.items() if name in rows}
