"""Run the kernels that the rules accept on the emulated device, and write down what came out.

The kernels are those of the truth sample, each with all its trial problems, in strict mode.

    python tools/verified.py --kernels 64 --seed 20261 --out docs/verified.md
    python tools/verified.py --op grouped_conv
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import tilewright as tw
from tilewright import arch as archs
from tilewright.dispatch.plan import execution_of
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.launch import Mode
from tilewright.ops import OPS
from tilewright.ops.kernel import Kernel
from truth import accepted


def checks_of(kernels: Sequence[Kernel], jobs: int) -> Iterator[list[Check]]:
    """The checks of each kernel, built first if need be."""
    registry = tw.build(list(kernels), jobs=jobs)
    for kernel in kernels:
        problems = execution_of(kernel.op).trials(kernel.config, archs.load(kernel.arch))
        started = time.monotonic()
        device = tw.Device(f"emulated:{kernel.arch}")
        checks = verify(kernel, registry.artifact(kernel), device, problems, mode=Mode.STRICT)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(c.verdict for c in checks).items())
        print(f"{kernel.slug}: {verdicts}, {time.monotonic() - started:.1f} s", flush=True)
        yield checks


def table(results: Sequence[Sequence[Check]], seed: int) -> str:
    """The results as a Markdown document."""
    every = [check for checks in results for check in checks]
    verdicts = Counter(check.verdict for check in every)
    gpus = sorted({check.kernel.arch for check in every})
    lines = [
        "# Kernels run and checked",
        "",
        f"Written by `tools/verified.py` (seed {seed}). Each kernel ran on the emulated device of its GPU in strict",
        "mode, with problems at its edges; every element of the result was held against a float64 reference.",
        "Tolerances are derived ([verifying](verifying.md)); “of limit” is the largest share of it that an element",
        "used.",
        "",
        f"- {len(results)} kernels on {', '.join(gpus)}, {len(every)} pairs of kernel and problem",
        f"- {', '.join(f'{verdict}: {count}' for verdict, count in verdicts.most_common())}",
    ]
    for op in dict.fromkeys(checks[0].kernel.op for checks in results):
        mine = [checks for checks in results if checks[0].kernel.op == op]
        lines += ["", f"## {op}", "", f"{len(mine)} kernels, {sum(len(checks) for checks in mine)} pairs.", ""]
        lines += ["| GPU | kernel | problems | ok | worst ulps | of limit | matrix MFLOP | bank conflicts |"]
        lines += ["|---|---|---|---|---|---|---|---|", *(_row(checks) for checks in mine)]
    for check in every:
        if not check.ok:
            lines += ["", f"`{check.kernel.slug}`, {check.problem}: {check.verdict}. {check.message}"]
    return "\n".join(lines) + "\n"


def _row(checks: Sequence[Check]) -> str:
    kernel = checks[0].kernel
    counters = [check.counters for check in checks if check.counters is not None]
    cells = (
        kernel.arch,
        f"`{'-'.join(kernel.slug.split('-')[2:-1])}`",
        len(checks),
        sum(check.ok for check in checks),
        f"{max(check.error_ulps for check in checks):.2f}",
        f"{max(check.share for check in checks):.2f}",
        f"{sum(c.matrix_flops for c in counters) / 1e6:.1f}",
        f"{sum(c.bank_conflict_cycles for c in counters):,}",
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", choices=[op.name for op in OPS], help="default: every op")
    parser.add_argument("--kernels", type=int, default=64, help="of each op")
    parser.add_argument("--seed", type=int, default=20261)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    options = parser.parse_args()
    ops = [op for op in OPS if op.name in (options.op or [op.name])]
    kernels = [case.kernel for op in ops for case in accepted(op, options.kernels, options.seed)]
    results = list(checks_of(kernels, options.jobs))
    if options.out:
        options.out.write_text(table(results, options.seed), encoding="utf-8")
    wrong = sum(not check.ok for checks in results for check in checks)
    print(f"{sum(len(checks) for checks in results)} pairs, {wrong} not ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
