"""Verify kernels that the rules accept on the emulated device in strict mode, and write a table.

The kernels are those of the truth sample. Each runs on all its trials and on random problems. With `--kept`, kernels
that were drawn before are taken: those that the store in use has, and some others that compile quickly. `--tree` takes
those of another CK tree in ../shared/ck.

    python -m tests.proof.verified --kernels 64 --seed 20261 --random 20 --out docs/verified.md
    python -m tests.proof.verified --op grouped_conv --kernels 48 --out docs/verified.md
    python -m tests.proof.verified --op gemm_quant --kept 10 --out docs/verified.md
    python -m tests.proof.verified --op gemm_quant --kept 2 --tree 2026-06-30 --out docs/verified.md
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, date, datetime
from pathlib import Path

import tilewright as tw
from ck_trees import TREES, use_tree
from tests.proof.kept_kernels import COMPUTES, choose_cheap, list_kept
from tests.proof.mutating.problems import draw_larger_problems
from tests.proof.op_sections import name_section, write_sections
from tests.proof.truth import draw_accepted
from tilewright import arch as archs
from tilewright.arch.ck_api import find_current_api
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.launch import Mode
from tilewright.ops import OPS, find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op


def run_checks(kernels: Sequence[Kernel], random_problems: int, jobs: int) -> Iterator[list[Check]]:
    """Build the kernels, and yield the checks of each."""
    registry = tw.build(list(kernels), jobs=jobs)
    for kernel in kernels:
        trials = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))
        problems = [*trials, *draw_larger_problems(kernel, random_problems)]
        started = time.monotonic()
        device = tw.Device(f"emulated:{kernel.arch}")
        checks = verify(kernel, registry.artifact(kernel), device, problems, mode=Mode.STRICT)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(c.verdict for c in checks).items())
        print(f"{kernel.slug}: {verdicts}, {time.monotonic() - started:.1f} s", flush=True)
        yield checks


HEAD = (
    "# Kernels run and checked",
    "",
    "Written by `tests/proof/verified.py`. We ran each kernel on its GPU's emulated device in strict mode, with the",
    "trials from `verify` and with random problems that its rules accept, and compared every element of the result",
    "with a float64 reference. You can read in [verifying](verifying.md) how tolerances are derived. “Element” is the",
    "largest share of its limit that an element used, “RMS” the largest share of its limit that the root mean square",
    "over an output's errors used; right kernels use at most 0.7.",
)


def format_section(results: Sequence[Sequence[Check]], sample: str, random_problems: int, today: date) -> list[str]:
    """Format the results of an op's kernels as Markdown lines."""
    every = [check for checks in results for check in checks]
    verdicts = Counter(check.verdict for check in every)
    gpus = sorted({check.kernel.arch for check in every})
    lines = [
        f"- {today.isoformat()}, {sample}: {len(results)} kernels on {', '.join(gpus)}",
        f"- {len(every):,} pairs of kernel and problem, up to {random_problems} random ones for each kernel",
        f"- {', '.join(f'{verdict}: {count}' for verdict, count in verdicts.most_common())}",
        f"- largest share of a limit: {max(check.element_share for check in every):.2f} for elements, "
        f"{max(check.rms_share for check in every):.2f} for the root mean square",
        "",
        "| GPU | kernel | problems | ok | worst ulps | element | RMS | matrix MFLOP | bank conflicts |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_format_row(checks) for checks in results),
    ]
    for check in every:
        if not check.ok:
            lines += ["", f"`{check.kernel.slug}`, {check.problem}: {check.verdict}. {check.message}"]
    return lines


def _format_row(checks: Sequence[Check]) -> str:
    kernel = checks[0].kernel
    counters = [check.counters for check in checks if check.counters is not None]
    cells = (
        kernel.arch,
        f"`{'-'.join(kernel.slug.split('-')[2:-1])}`",
        len(checks),
        sum(check.ok for check in checks),
        f"{max(check.error_ulps for check in checks):.2f}",
        f"{max(check.element_share for check in checks):.2f}",
        f"{max(check.rms_share for check in checks):.2f}",
        f"{sum(c.matrix_flops for c in counters) / 1e6:.1f}",
        f"{sum(c.bank_conflict_cycles for c in counters):,}",
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def choose_kernels(op: Op, options: argparse.Namespace) -> tuple[list[Kernel], str]:
    """Choose the kernels of an op, and say how they were chosen."""
    generation = find_current_api().generation
    if options.kept is None:
        drawn = draw_accepted(op, options.kernels, options.seed)
        return [case.kernel for case in drawn], f"CK Tile {generation}, seed {options.seed}"
    accepted = [case for case in list_kept(op, options.tree) if case.expected == COMPUTES]
    chosen = choose_cheap(accepted, options.kept)[: options.kernels]
    return [case.kernel for case in chosen], f"CK Tile {generation}, kept sample of {len(accepted)}"


def main() -> int:
    names = [op.name for op in OPS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", choices=names, action="append", help="only this op; may be repeated (default: all)")
    parser.add_argument("--kernels", type=int, default=64)
    parser.add_argument("--seed", type=int, default=20261)
    parser.add_argument("--random", type=int, default=20, help="random problems for each kernel, next to its trials")
    parser.add_argument("--kept", type=int, metavar="N", help="kept kernels: those in the store, N others at most")
    parser.add_argument("--tree", default="", help="another CK tree in ../shared/ck, with --kept")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the Markdown file to update with these ops")
    options = parser.parse_args()
    if options.tree and options.kept is None:
        parser.error("--tree needs --kept: kernels are drawn for the fetched tree only")
    checks: list[Check] = []
    with use_tree(TREES / options.tree) if options.tree else nullcontext():
        for name in options.op or names:
            kernels, sample = choose_kernels(find_op(name), options)
            found = list(run_checks(kernels, options.random, options.jobs))
            checks += [check for listed in found for check in listed]
            if options.out and found:
                section = format_section(found, sample, options.random, datetime.now(UTC).date())
                write_sections(options.out, HEAD, {name_section(name, find_current_api().generation): section})
    wrong = sum(not check.ok for check in checks)
    print(f"{len(checks)} pairs, {wrong} not ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
