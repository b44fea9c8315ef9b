"""Do kernels and rules hold for every generation of CK Tile? One sample of kernels on several trees, in one run.

Accepted kernels are compiled with each tree, their matrix instructions and LDS are compared with the prediction, and
they run on their trials on the emulated device in strict mode. Rejected ones must fail with each tree.

    python -m tests.proof.trees --tree ../shared/ck/2026-06-30 --accepted 22 --rejected 8 --out docs/ck-generations.md

The sample is taken from the kernels that CI builds, so that only other trees need the compiler; `--seed` draws a new
one. `--kernels` takes a list, such as one that was drawn before a rule was changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import tilewright as tw
from ci_kernels import STORE, read_list, read_samples
from ck_trees import use_tree
from tests.proof.op_sections import write_sections
from tests.proof.truth import COMPILED, Case, choose_covering, draw_cases, judge
from tilewright import arch as archs
from tilewright.building.builder import build_compile_jobs
from tilewright.building.ck_fetch import fetch_ck
from tilewright.building.compile_job import CompileJob
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.launch import Mode
from tilewright.ops import OPS, find_op, parse_kernel
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations


@dataclass(frozen=True)
class Result:
    """The result of one case with one tree: the rule that rejects it there, and a finding if that is wrong."""

    rule: str
    said: str
    finding: str


def choose_cases(op: Op, accepted: int, rejected: int) -> list[Case]:
    """Choose kernels of CI's list that cover as many pairs of features as possible, the cheapest first, and the bad
    examples of rules that the compiler enforces."""
    costs = {entry.name: entry.cpu_s for entry in read_list()}
    pool = [kernel for expected, kernel in read_samples() if expected == "computes" and kernel.op == op.name]
    cheapest = sorted((kernel for kernel in pool if kernel.slug in costs), key=lambda kernel: costs[kernel.slug])
    enforced = [rule for rule in op.rules if rule.enforced_by == "compiler" and not rule.since]
    broken = [Case(op.make_kernel(op.make_example(rule.bad), rule.arch), rule.code) for rule in enforced]
    listed = [case for case in broken if case.kernel.slug in costs]
    return [*(Case(kernel, "computes") for kernel in choose_covering(cheapest, accepted)), *listed[:rejected]]


def read_cases(op: Op, path: Path) -> list[Case]:
    """Read the kernels of an op from a list in the form of tests/compile/samples: `computes` or a rule, and a name."""
    pairs = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    cases = [Case(parse_kernel(name), expected) for expected, name in pairs]
    return [case for case in cases if case.kernel.op == op.name]


def run_tree(
    cases: Sequence[Case], jobs: int, tiers: Tiers | None = None, most_trials: int | None = None
) -> list[Result]:
    """Compile all cases with the headers in use, compare them with the rules, and run the accepted ones.

    With `most_trials`, accepted kernels run at most that many trials, from all parts of the list, and none is compiled
    once more to find the cause of LDS that was not predicted.
    """
    toolchain = find_toolchain()
    known = [_expect(case) for case in cases]
    units = [CompileJob(render_unchecked(case.kernel), toolchain) for case in cases]
    built = build_compile_jobs(units, jobs=jobs, tiers=tiers).results
    results = []
    for case in known:
        result = _judge_and_run(case, built[case.kernel], toolchain, most_trials)
        results.append(result)
        mark = "!!" if result.finding else "  "
        print(f"{mark} {case.expected:9} {result.said:14} {case.kernel.slug} {result.finding}", flush=True)
    return results


def _judge_and_run(case: Case, entry: Artifact | Failure, toolchain: Toolchain, most_trials: int | None) -> Result:
    rule = "" if case.expected == "computes" else case.expected
    enforcers = {each.code: each.enforced_by for each in find_op(case.kernel.op).rules}
    if isinstance(entry, Artifact) and enforcers.get(rule) == "device":
        return _run_rejected(case, entry)
    outcome = judge(case, entry, toolchain, again=most_trials is None)
    if rule or outcome.finding or isinstance(entry, Failure):
        return Result(rule, outcome.verdict, outcome.finding)
    return _run_trials(case, entry, most_trials)


def _expect(case: Case) -> Case:
    """The case with the verdict of the rules for the headers in use."""
    broken = find_violations(find_op(case.kernel.op).rules, case.kernel.config, archs.load(case.kernel.arch))
    return Case(case.kernel, broken[0].code if broken else "computes")


def _run_trials(case: Case, entry: Artifact, most_trials: int | None) -> Result:
    checks = _verify(case, entry, most_trials)
    wrong = [check for check in checks if not check.ok]
    said = f"{len(checks) - len(wrong)} of {len(checks)} right"
    return Result("", said, f"{wrong[0].problem}: {wrong[0].verdict} {wrong[0].message}" if wrong else "")


def _run_rejected(case: Case, entry: Artifact) -> Result:
    """Run a kernel that compiles although a rule rejects it, because its results would be wrong."""
    checks = _verify(case, entry)
    wrong = sum(not check.ok for check in checks)
    finding = "" if wrong else f"{case.expected} rejects it, but all {len(checks)} trials are right"
    return Result(case.expected, f"{wrong} of {len(checks)} wrong", finding)


def _verify(case: Case, entry: Artifact, most: int | None = None) -> Sequence[Check]:
    kernel = case.kernel
    problems = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))
    if most is not None:
        problems = problems[:: -(-len(problems) // most)]
    return verify(kernel, entry, tw.Device(f"emulated:{kernel.arch}"), problems, mode=Mode.STRICT)


HEAD = (
    "# Kernels with several generations of CK Tile",
    "",
    "Written by `tests/proof/trees.py`. We compiled one sample of kernels with each tree in the same run. The code of",
    "an accepted kernel must have the matrix instructions and the LDS that the rules predict, and its results must be",
    "right on all its trials, on the emulated device in strict mode. A rejected kernel breaks the rule that is named;",
    "it must fail to compile, or compute wrong results. Some rules hold for one tree only.",
)


def format_section(
    cases: Sequence[Case], results: Mapping[str, Sequence[Result]], sample: str, today: date
) -> list[str]:
    """The results of an op's kernels as Markdown lines, with a column for each tree."""
    lines = [f"- {today.isoformat()}, {sample}"]
    for tree, found in results.items():
        accepted = [each for each in found if not each.rule]
        rejected = [each for each in found if each.rule]
        right, failed = (sum(not each.finding for each in side) for side in (accepted, rejected))
        lines.append(
            f"- CK Tile {tree}: {right} of {len(accepted)} accepted kernels right, "
            f"{failed} of {len(rejected)} rejected ones fail"
        )
    lines += ["", f"| GPU | kernel | {' | '.join(results)} |", f"|---|---|{'---|' * len(results)}"]
    for number, case in enumerate(cases):
        told = " | ".join(_format_result(found[number]) for found in results.values())
        name = "-".join(case.kernel.slug.split("-")[2:-1])
        lines.append(f"| {case.kernel.arch} | `{name}` | {told} |")
    return lines


def _format_result(result: Result) -> str:
    told = result.finding or result.said
    return f"{result.rule}: {told}" if result.rule else told


def run_op(op: Op, trees: Sequence[Path], options: argparse.Namespace) -> tuple[list[str], int]:
    """Run the sample of an op with each tree; return its section and the number of findings."""
    if options.kernels is not None:
        cases, sample = read_cases(op, options.kernels), f"kernels of {options.kernels.name}"
    elif options.seed is not None:
        cases = draw_cases(op, options.accepted, options.rejected, options.seed, (*COMPILED, "device"))
        sample = f"seed {options.seed}"
    else:
        cases, sample = choose_cases(op, options.accepted, options.rejected), "kernels of CI's list"
    results = {}
    for folder in trees:
        with use_tree(folder) as generation:
            print(f"{op.name} with CK Tile {generation} in {folder}", flush=True)
            results[generation] = run_tree(cases, options.jobs, Tiers(STORE))
    findings = sum(bool(each.finding) for found in results.values() for each in found)
    return format_section(cases, results, sample, datetime.now(UTC).date()), findings


def main() -> int:
    names = [op.name for op in OPS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", choices=names, action="append", help="only this op; may be repeated (default: all)")
    parser.add_argument(
        "--tree", type=Path, action="append", default=[], help="another CK tree, next to the fetched one"
    )
    parser.add_argument("--accepted", type=int, default=22)
    parser.add_argument("--rejected", type=int, default=8)
    parser.add_argument("--seed", type=int, help="draw a new sample (default: kernels of CI's list)")
    parser.add_argument("--kernels", type=Path, help="a list of kernels, as in tests/compile/samples")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the Markdown file to update with these ops")
    options = parser.parse_args()
    trees = [fetch_ck().folder, *(folder.resolve() for folder in options.tree)]
    found = {name: run_op(find_op(name), trees, options) for name in options.op or names}
    if options.out:
        write_sections(options.out, HEAD, {name: section for name, (section, _) in found.items()})
    findings = sum(count for _, count in found.values())
    print(f"{findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
