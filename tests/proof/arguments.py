"""Would a wrong argument be noticed? Change one argument of a kernel's calls at a time, and run `verify`.

For each kind of kernel, kernels of CI's list with all its features. Nothing is compiled that CI's list does not have.

    python -m tests.proof.arguments --out docs/mutations.md
    python -m tests.proof.arguments --kind norm/rms --share 0.1 --seed 2
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ci_kernels import STORE, read_list
from tests.proof.mutating.argument_report import GOAL, KindReport, write_report
from tests.proof.mutating.arguments import ArgumentChange, ArgumentJudge, list_changes
from tests.proof.mutating.judge import SAME, WITHIN, Outcome
from tests.proof.mutating.kernels import get_kind
from tests.proof.mutations import get_today
from tilewright import arch as archs
from tilewright.building.builder import build_kernels
from tilewright.building.store.tiers import Tiers
from tilewright.ops import find_op
from tilewright.ops.fields import ChoiceType, DtypeType, FlagType, list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import is_legal

# Kernels of a kind. The first has most features; each further one has most of those that are missing.
KERNELS = 3
UNMEASURED = 99.0  # CPU seconds of a compile


def choose_kernels(count: int = KERNELS) -> dict[str, list[Kernel]]:
    """Choose kernels of CI's list for each kind, so that they have as many of its features as possible."""
    by_kind: dict[str, list[tuple[float, Kernel]]] = defaultdict(list)
    for entry in read_list():
        kernel = entry.kernel
        plain = not entry.tree and "+" not in entry.name
        if plain and is_legal(find_op(kernel.op).rules, kernel.config, archs.load(kernel.arch)):
            by_kind[get_kind(kernel)].append((entry.cpu_s or UNMEASURED, kernel))
    return {kind: _cover_features(by_kind[kind], count) for kind in sorted(by_kind)}


def _cover_features(known: list[tuple[float, Kernel]], count: int) -> list[Kernel]:
    missing = set().union(*(_list_features(kernel) for _, kernel in known))
    chosen: list[Kernel] = []
    while missing and len(chosen) < count:
        _, kernel = max(known, key=lambda each: (len(_list_features(each[1]) & missing), -each[0]))
        missing -= _list_features(kernel)
        chosen.append(kernel)
    return chosen


def _list_features(kernel: Kernel) -> set[tuple[str, Any]]:
    """The names and flags of a config; not its types and tiles."""
    kinds = {name: field.kind for name, field in list_fields(find_op(kernel.op).config_type).items()}
    return {
        (name, getattr(kernel.config, name))
        for name, kind in kinds.items()
        if isinstance(kind, (ChoiceType, FlagType)) and not isinstance(kind, DtypeType)
    }


def measure_kind(kind: str, kernels: Iterable[Kernel], share: float, seed: int) -> KindReport:
    """Judge a share of all changes of the arguments that kernels of a kind read."""
    report = KindReport(kind)
    for kernel in kernels:
        artifact = build_kernels([kernel], tiers=Tiers(STORE)).artifacts[kernel]
        judge = ArgumentJudge(kernel, artifact)
        unread = judge.find_unread()
        report.add_kernel(len(judge.arguments), unread)
        for change, outcome in judge_changes(judge, unread, share, seed).items():
            silent = outcome.verdict in (SAME, WITHIN)
            report.add_outcome(change, outcome, judge.explain(change, outcome) if silent else "")
        if judge.wrong_problems:
            raise AssertionError(f"the unchanged {kernel.slug} is wrong: {judge.wrong_problems[0]}")
    return report


def judge_changes(
    judge: ArgumentJudge, unread: Iterable[Any], share: float, seed: int
) -> dict[ArgumentChange, Outcome]:
    """Judge a share of the changes that are not of unread arguments alone."""
    ignored = set(unread)
    changes = [each for each in list_changes(judge.arguments) if not set(each.touched) <= ignored]
    taken = sorted(random.Random(seed).sample(range(len(changes)), round(share * len(changes))))
    outcomes = {changes[index]: judge.judge(changes[index]) for index in taken}
    return {change: outcome for change, outcome in outcomes.items() if outcome is not None}


def main() -> int:
    known = choose_kernels()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=tuple(known), help="only this kind; may be repeated")
    parser.add_argument("--kernels", type=int, default=KERNELS, help="kernels of each kind")
    parser.add_argument("--share", type=float, default=1.0, help="the share of all changes that are judged")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the Markdown file to update with these kinds")
    options = parser.parse_args()
    reports = []
    for kind in options.kind or known:
        kernels = known[kind][: options.kernels]
        reports.append(measure_kind(kind, kernels, options.share, options.seed))
        print(reports[-1].format_row(get_today()), *reports[-1].format_survivors(), sep="\n", flush=True)
        if options.out:
            write_report(options.out, reports[-1:], get_today())
    below_goal = [report.kind for report in reports if report.score < GOAL]
    print(f"below the goal of {GOAL:.1%}: {', '.join(below_goal) or 'none'}")
    return 1 if below_goal else 0


if __name__ == "__main__":
    sys.exit(main())
