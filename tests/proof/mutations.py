"""Would a wrong kernel be noticed? Change one instruction of a kernel at a time, and ask `verify`.

Kernels of every op and kind, each with seeded random changes, and with every barrier and wait taken away. Outcomes are
appended to a log as they come: a run that was cut off goes on where it stopped, unless kernel, trials or larger
problems are others.

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
from tests.proof.mutating.changes import Mutation, random_mutations, synchronisation
from tests.proof.mutating.judging import MISSED, NOTICED, WITHIN, Judge, Outcome
from tests.proof.mutating.kernels import subjects
from tests.proof.mutating.report import GOAL, Found, write_report
from tilewright.building.store.artifact import Artifact
from tilewright.emulator.launch import Mode
from tilewright.ops.kernel import Kernel

COUNT = 150
WAITS = 150
LOG = Path("build/mutations.jsonl")


class Log:
    """Outcomes by what they depend on: the kernel's basis and the change. One line of JSON each."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[tuple[str, str], Outcome] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                # The last line of a run that was cut off, or of one that is writing it just now.
                print(f"{path}:{number} is not complete and is left out", file=sys.stderr)
                continue
            key = record.pop("basis"), record.pop("change")
            self._known[key] = Outcome(**record)

    def outcome(self, basis: str, change: str, judged: Callable[[], Outcome]) -> Outcome:
        """The outcome of a change, from the log or judged now."""
        found = self._known.get((basis, change))
        if found is None:
            found = self._known[basis, change] = judged()
            if self._path is not None:
                record = {"basis": basis, "change": change, **dataclasses.asdict(found)}
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
        return found


def mutate(name: str, kernel: Kernel, artifact: Artifact, count: int, seed: int, log: Log, waits: int = WAITS) -> Found:
    """So many changes of a kernel, and so many barriers and waits taken away, and what came of each."""
    judge = Judge(kernel, artifact)
    basis = judge.basis
    unreached = len(judge.unreached)
    print(
        f"{name}: {len(judge.trials)} trials, {len(judge.larger)} larger problems, {len(judge.lines)} lines, ", end=""
    )
    print(f"{unreached} of them reached by no trial", flush=True)
    for problem in judge.wrong:
        print(f"  the unchanged kernel is wrong on {problem}", flush=True)
    changes = random_mutations(judge.lines, count, seed, judge.is_known)
    found, without = {}, {}
    for each in changes:
        found[str(each)] = log.outcome(basis, str(each), partial(_told, name, each, judge.outcome))
        judge.note(found[str(each)])
    every = synchronisation(judge.lines)
    taken = random.Random(seed).sample(every, waits) if waits < len(every) else every
    for each in taken:
        without[str(each)] = log.outcome(basis, f"sync {each}", partial(_told, name, each, judge.without))
        judge.note(without[str(each)])
    fast = sum(_fast(judge, basis, each, without[str(each)], log) for each in taken)
    return Found(
        name, kernel, seed, found, without, fast, len(judge.trials), len(judge.larger), judge.wrong, len(every)
    )


def _told(name: str, mutation: Mutation, judged: Callable[[Mutation], Outcome]) -> Outcome:
    """Judge a change, and print what was missed, or has other bits."""
    found = judged(mutation)
    if found.verdict in (MISSED, WITHIN):
        print(f"  {name} {found.verdict} {mutation}: {found.how}", flush=True)
    return found


def _fast(judge: Judge, basis: str, mutation: Mutation, strict: Outcome, log: Log) -> bool:
    """Whether fast mode notices a missing barrier or wait that strict mode notices, on the same trial."""
    if strict.verdict != NOTICED:
        return False
    found = log.outcome(basis, f"fast {mutation}", lambda: judge.outcome(mutation, Mode.FAST, only=strict.trial))
    return found.verdict == NOTICED


def today() -> date:
    """The date that a report is of."""
    return datetime.now(UTC).date()


def chosen(ops: Iterable[str] | None, names: Iterable[str] | None) -> dict[str, Kernel]:
    """The kernels of some ops, or with some names; all when neither is given."""
    known = subjects()
    wanted = {name for name in known if name.partition("/")[0] in (ops or ())} | set(names or ())
    return {name: kernel for name, kernel in known.items() if name in wanted or not (ops or names)}


def main() -> int:
    known = subjects()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", choices=sorted({name.partition("/")[0] for name in known}))
    parser.add_argument("--kernel", action="append", choices=tuple(known), help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=COUNT, help="random changes of each kernel")
    parser.add_argument("--waits", type=int, default=WAITS, help="barriers and waits that are taken away, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once, for kernels not built yet")
    parser.add_argument("--log", type=Path, default=LOG, help="outcomes so far: those in it are not judged again")
    parser.add_argument("--out", type=Path, help="write rows and sections of these kernels to this Markdown file")
    options = parser.parse_args()
    kernels, log = chosen(options.op, options.kernel), Log(options.log)
    poor = []
    for name, kernel in kernels.items():
        artifact = tw.build([kernel], jobs=options.jobs).artifact(kernel)
        found = mutate(name, kernel, artifact, options.count, options.seed, log, options.waits)
        print(found.row(), flush=True)
        if found.score < GOAL or found.unexplained:
            poor.append(name)
        if options.out:
            write_report(options.out, tuple(known), [found], today())
    print(f"below the goal of {GOAL:.0%}, or with a wait or barrier missed: {', '.join(poor) or 'none'}")
    return 1 if poor else 0


if __name__ == "__main__":
    sys.exit(main())
