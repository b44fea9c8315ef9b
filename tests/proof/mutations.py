"""Would a wrong kernel be noticed? Change one instruction of a kernel at a time, and run `verify`.

Kernels of every op and kind are mutated: by seeded random changes, and by removing barriers and waits. Each outcome is
appended to a log, so an interrupted run continues where it stopped, unless the kernel, its trials or the larger
problems have changed.

    python -m tests.proof.mutations --op gemm --count 150 --out docs/mutations.md
    python -m tests.proof.mutations --kernel gemm/standard --kernel fmha/forward --seed 2
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import tilewright as tw
from tests.proof.mutating.changes import Mutation, draw_mutations, remove_synchronization
from tests.proof.mutating.judge import MISSED, NOTICED, WITHIN, Judge, Outcome
from tests.proof.mutating.kernels import make_kernels, use_tree_of
from tests.proof.mutating.report import GOAL, KernelReport, write_report
from tilewright.building.store.artifact import Artifact
from tilewright.emulator.launch import Mode
from tilewright.ops.kernel import Kernel

COUNT = 150
WAITS = 150
LOG = Path("build/mutations.jsonl")


class Log:
    """Outcomes by the kernel's basis and the mutation, one JSON line each."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[tuple[str, str], Outcome] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                # The last line of an interrupted run, or of a run that is writing it now.
                print(f"{path}:{number} is incomplete and ignored", file=sys.stderr)
                continue
            key = record.pop("basis"), record.pop("change")
            self._known[key] = Outcome(**record)

    def get_or_judge(self, basis: str, change: str, judge: Callable[[], Outcome]) -> Outcome:
        """Return the outcome of a mutation from the log, or judge it now."""
        found = self._known.get((basis, change))
        if found is None:
            found = self._known[basis, change] = judge()
            if self._path is not None:
                record = {"basis": basis, "change": change, **dataclasses.asdict(found)}
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
        return found


def mutate(
    name: str, kernel: Kernel, artifact: Artifact, count: int, seed: int, log: Log, waits: int = WAITS
) -> KernelReport:
    """Judge up to `count` random mutations of a kernel, and up to `waits` removed barriers and waits."""
    judge = Judge(kernel, artifact)
    basis = judge.basis
    unreached = len(judge.unreached_lines)
    print(
        f"{name}: {len(judge.trials)} trials, {len(judge.larger)} larger problems, {len(judge.lines)} lines, ", end=""
    )
    print(f"{unreached} of them not reached by any trial", flush=True)
    for problem in judge.wrong_problems:
        print(f"  the unchanged kernel is wrong on {problem}", flush=True)
    changes = draw_mutations(judge.lines, count, seed, judge.is_supported)
    found, without = {}, {}
    for each in changes:
        found[str(each)] = log.get_or_judge(basis, str(each), partial(_judge_and_print, name, each, judge.judge))
        judge.count_notice(found[str(each)])
    every = remove_synchronization(judge.lines)
    taken = random.Random(seed).sample(every, waits) if waits < len(every) else every
    for each in taken:
        without[str(each)] = log.get_or_judge(
            basis, f"sync {each}", partial(_judge_and_print, name, each, judge.judge_removal)
        )
        judge.count_notice(without[str(each)])
    fast = sum(_is_noticed_in_fast_mode(judge, basis, each, without[str(each)], log) for each in taken)
    return KernelReport(
        name, kernel, seed, found, without, fast, len(judge.trials), len(judge.larger), judge.wrong_problems, len(every)
    )


def _judge_and_print(name: str, mutation: Mutation, judge: Callable[[Mutation], Outcome]) -> Outcome:
    """Judge a mutation, and print it if it was missed or gives other bits."""
    found = judge(mutation)
    if found.verdict in (MISSED, WITHIN):
        print(f"  {name} {found.verdict} {mutation}: {found.how}", flush=True)
    return found


def _is_noticed_in_fast_mode(judge: Judge, basis: str, mutation: Mutation, strict: Outcome, log: Log) -> bool:
    """Whether fast mode notices a removed barrier or wait on the trial on which strict mode does."""
    if strict.verdict != NOTICED:
        return False
    found = log.get_or_judge(basis, f"fast {mutation}", lambda: judge.judge(mutation, Mode.FAST, only=strict.trial))
    return found.verdict == NOTICED


def get_today() -> date:
    """The date for a report."""
    return datetime.now(UTC).date()


def select_kernels(ops: Iterable[str] | None, names: Iterable[str] | None) -> dict[str, Kernel]:
    """Select the kernels of these ops and with these names; all if neither is given."""
    known = make_kernels()
    wanted = {name for name in known if name.partition("/")[0] in (ops or ())} | set(names or ())
    return {name: kernel for name, kernel in known.items() if name in wanted or not (ops or names)}


def main() -> int:
    known = make_kernels()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", choices=sorted({name.partition("/")[0] for name in known}))
    parser.add_argument("--kernel", action="append", choices=tuple(known), help="only this kernel; may be repeated")
    parser.add_argument("--count", type=int, default=COUNT, help="random mutations of each kernel")
    parser.add_argument("--waits", type=int, default=WAITS, help="the most barriers and waits to remove of a kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once, for kernels that are not built yet")
    parser.add_argument("--log", type=Path, default=LOG, help="a file with outcomes, which are not judged again")
    parser.add_argument("--out", type=Path, help="the Markdown file to update with these kernels")
    options = parser.parse_args()
    kernels, log = select_kernels(options.op, options.kernel), Log(options.log)
    below_goal = []
    for name, kernel in kernels.items():
        with use_tree_of(name):
            artifact = tw.build([kernel], jobs=options.jobs).artifact(kernel)
            found = mutate(name, kernel, artifact, options.count, options.seed, log, options.waits)
        print(found.format_row(), flush=True)
        if found.score < GOAL or found.unexplained:
            below_goal.append(name)
        if options.out:
            write_report(options.out, tuple(known), [found], get_today())
    print(f"below the goal of {GOAL:.0%}, or with a missed barrier or wait: {', '.join(below_goal) or 'none'}")
    return 1 if below_goal else 0


if __name__ == "__main__":
    sys.exit(main())
