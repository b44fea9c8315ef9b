"""Do the rules tell the truth? Compile what they accept and what they refuse, and look at the code objects.

Accepted configs must compile, every kernel of the code object must contain the matrix instruction that the
config's mma names and no other, and its LDS must be what was predicted. Configs refused for a reason that CK
Tile enforces must not compile, or must compile to a kernel that does not compute.

    python -m tests.proof.truth --accepted 60 --rejected 20 --seed 1
    python -m tests.proof.truth --op grouped_conv --accepted 40 --rejected 25 --seed 2
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import itertools
import random
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.proof.host_library import TW_OK, TW_UNSUPPORTED, supports
from tests.proof.op_sections import write_sections
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base.digest import digest_text
from tilewright.building.builder import build_compile_jobs
from tilewright.building.compile_job import CODE_OBJECT, LIBRARY, CompileJob
from tilewright.building.inspect import KernelInspection, inspect_object, inspect_source
from tilewright.building.precompiled_headers import prepare_header_set
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.dispatch.plan import get_execution
from tilewright.ops import OPS, find_op, parse_kernel
from tilewright.ops.fields import list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations
from tilewright.ops.sampling import draw_breaking, draw_legal, list_strata
from tilewright.runtime import hip_library

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@dataclass(frozen=True)
class Case:
    """One kernel to compile. `expected` is "computes", or the code of the one rule that it breaks."""

    kernel: Kernel
    expected: str


@dataclass(frozen=True)
class Outcome:
    """What the compiler made of a case. `finding` is empty when rules and compiler agree."""

    slug: str
    arch: str
    expected: str
    verdict: str  # "computes", "refused" by the compiler, or "wrong"
    finding: str
    error: str  # what the compiler said, or what is notable
    cpu_s: float


def accepted(op: Op, n: int, seed: int) -> list[Case]:
    """n legal kernels of an op, spread so that every pair of features (GPU and the op's strata: pipeline, epilogue,
    types, …) that is legal at all appears as early as possible."""
    pool = [k for arch in ARCHS for k in _pool(op, archs.load(arch), seed)]
    # In an order that has nothing to do with the others: a kernel more or less leaves their places as they are.
    pool.sort(key=lambda kernel: digest_text(f"{seed} {kernel.slug}"))
    return [Case(kernel, "computes") for kernel in _covering(pool, n)]


def _pool(op: Op, arch: Arch, seed: int) -> Iterator[Kernel]:
    for fixed in list_strata(op, arch):
        # Each kind of kernel is drawn by itself, so that a changed rule changes only the kinds it concerns.
        rng = random.Random(f"{seed} {arch.name} {sorted(fixed.items())}")
        for _ in range(12):
            config = draw_legal(op, arch, rng, fixed)
            if config is None:
                break
            if op.is_small(config):
                yield Kernel(op.name, config, arch.name)
                break


def _covering(pool: Sequence[Kernel], n: int) -> list[Kernel]:
    """Greedily the kernels that show most pairs of features not shown yet. Sets of pairs are bit masks."""
    numbers: dict[tuple[str, str], int] = {}
    left = {k: sum(1 << numbers.setdefault(p, len(numbers)) for p in _pairs(k)) for k in pool}
    chosen: list[Kernel] = []
    seen = 0
    while left and len(chosen) < n:
        best = max(left, key=lambda k: (left[k] & ~seen).bit_count())
        if not left[best] & ~seen:
            seen = 0
        seen |= left.pop(best)
        chosen.append(best)
    return chosen


def _pairs(kernel: Kernel) -> set[tuple[str, str]]:
    op = find_op(kernel.op)
    names = [n for group in op.strata(archs.load(kernel.arch)) for n in group]
    options = [n for n, f in list_fields(op.config_type).items() if not f.required]
    where = f"arch={kernel.arch}"
    features = [where, *(f"{n}={getattr(kernel.config, n)}" for n in names)]
    pairs = set(itertools.combinations(features, 2))
    return pairs | {(where, f"{n}={getattr(kernel.config, n)}") for n in options}


def rejected(op: Op, n: int, seed: int) -> list[Case]:
    """n kernels that break exactly one rule that the compiler or `supports` enforces, the rules taking turns."""
    spread = {arch: list_strata(op, archs.load(arch)) for arch in ARCHS}
    codes = [r.code for r in op.rules if r.enforced_by in ("compiler", "supports")]
    cases: dict[str, Case] = {}
    for turn, code in itertools.product(range(n), codes):
        rng = random.Random(f"{seed} {code} {turn}")
        arch = rng.choice(ARCHS)
        config = draw_breaking(op, archs.load(arch), rng, code, spread[arch])
        if config is not None and op.is_small(config):
            case = Case(Kernel(op.name, config, arch), code)
            cases.setdefault(case.kernel.slug, case)
        if len(cases) == n:
            break
    return list(cases.values())


def sample(op: Op, n_accepted: int, n_rejected: int, seed: int) -> list[Case]:
    """Kernels of both kinds."""
    return [*accepted(op, n_accepted, seed), *rejected(op, n_rejected, seed)]


def judge(case: Case, entry: Artifact | Failure, toolchain: Toolchain, *, again: bool = True) -> Outcome:
    """Compare what the build engine made of a case with what the rules said.

    `again` compiles a kernel with more LDS than predicted once more, to see where it is from. Without it more is taken
    for an array that LLVM moved.
    """
    kernel = case.kernel
    if isinstance(entry, Failure):
        finding = "" if case.expected != "computes" else "the rules accept it, the compiler does not"
        return Outcome(kernel.slug, kernel.arch, case.expected, "refused", finding, first_error(entry.log), 0.0)
    code = inspect_object(entry.verify_file(CODE_OBJECT), archs.load(kernel.arch), toolchain)
    cpu_s = float(entry.facts["cost"]["cpu_s"])
    lds = partial(lds_note, kernel, toolchain=toolchain, again=again)
    return judge_code(case, [found for found in code if found.is_op], lds, entry, cpu_s)


def judge_code(
    case: Case,
    code: Sequence[KernelInspection],
    lds: Callable[[Sequence[KernelInspection], Arch], tuple[str, str]],
    entry: Artifact,
    cpu_s: float,
) -> Outcome:
    """Compare the kernels of a code object with what the rules said of its config."""
    kernel = case.kernel
    op = find_op(kernel.op)
    base = (kernel.slug, kernel.arch, case.expected)
    spec = archs.load(kernel.arch)
    problems = differences(code, op.matrix_instructions(kernel.config, spec))
    note, unexpected = ("", "") if problems else lds(code, spec)
    problems = [*problems, *([unexpected] if unexpected else [])]
    verdict = "wrong" if problems else "computes"
    if case.expected == "computes":
        return Outcome(*base, verdict, "; ".join(problems), note, cpu_s)
    rule = next(r for r in op.rules if r.code == case.expected)
    if not problems and rule.enforced_by == "supports" and refuses(kernel, entry):
        return Outcome(*base, "refused", "", "its `supports` refuses what the rule is about", cpu_s)
    finding = "" if problems else "the rules refuse it, the compiler does not"
    return Outcome(*base, verdict, finding, "; ".join(problems), cpu_s)


def lds_note(
    kernel: Kernel, code: Sequence[KernelInspection], spec: Arch, toolchain: Toolchain, again: bool
) -> tuple[str, str]:
    """What is notable about the LDS of a code object, and what contradicts the prediction; empty where nothing is."""
    predicted = find_op(kernel.op).lds_bytes(kernel.config, spec)
    if lds_of(code) == {predicted}:
        return "", ""
    if again:
        flags = (*warm_flags(kernel, toolchain), *KEEP_ARRAYS_PRIVATE)
        least = lds_of(inspect_source(render_unchecked(kernel), spec, toolchain, extra_flags=flags).op_kernels)
    else:
        least = {min(predicted, *lds_of(code))}
    if least == {predicted} and max(lds_of(code)) <= spec.lds.bytes:
        return f"LDS is {max(lds_of(code))} instead of {predicted}: the compiler moved a private array into it", ""
    return "", f"LDS is {sorted(lds_of(code))}, predicted {predicted}"


def refuses(kernel: Kernel, entry: Artifact) -> bool:
    """Whether the built kernel refuses problems that it should compute, going by the fit rules, and takes others: it
    was built to split a sum, for example, and refuses every split.

    Some kernels have no problem at all. Such a one must refuse all that the nearest legal kernel computes.
    """
    config: Any = kernel.config
    arch, execution = archs.load(kernel.arch), get_execution(kernel.op)
    expected, problems = {TW_OK, TW_UNSUPPORTED}, execution.trials(config, arch)
    if not problems:
        (violation,) = find_violations(find_op(kernel.op).rules, config, arch)
        nearest = dataclasses.replace(config, **{violation.field: violation.nearest})
        expected, problems = {TW_UNSUPPORTED}, execution.trials(nearest, arch)
    # The library needs some HIP library; the emulated device's serves without a GPU.
    hip_library.load_shim()
    library = ctypes.CDLL(str(entry.verify_file(LIBRARY)))
    return {supports(library, kernel, execution.arguments(problem)) for problem in problems} == expected


# LLVM may move an array that it could not keep in registers from scratch into LDS that is left over.
KEEP_ARRAYS_PRIVATE = ("-mllvm", "-disable-promote-alloca-to-lds")


def lds_of(code: Sequence[KernelInspection]) -> set[int]:
    """LDS bytes of the op's kernels."""
    return {kernel.resources.lds_bytes for kernel in code}


def warm_flags(kernel: Kernel, toolchain: Toolchain) -> tuple[str, ...]:
    """Flags that make a compile start from precompiled headers: the same code, with less time spent in reading them."""
    return prepare_header_set(CompileJob(render_unchecked(kernel), toolchain).device_headers, Store()).flags


def differences(code: Sequence[KernelInspection], named: Sequence[str]) -> list[str]:
    """Where the instructions of the code object are not what the config says."""
    wanted = set(named)
    names = ", ".join(sorted(wanted - {""}))
    problems = []
    for device_kernel in code:
        others = set(device_kernel.matrix) - wanted
        if others:
            problems.append(f"contains {', '.join(sorted(others))} instead of {names or 'nothing'}")
        elif wanted - set(device_kernel.matrix):
            problems.append(f"has a kernel without {names or 'any matrix instruction'}")
    return list(dict.fromkeys(problems))


def first_error(log: str) -> str:
    """The first error of a compiler log, without folders."""
    for line in log.splitlines():
        if "error:" in line:
            return re.sub(r"^\S*/", "", line)[:240]
    return log.strip().splitlines()[-1][:240] if log.strip() else "no output"


def run(cases: Sequence[Case], jobs: int) -> list[Outcome]:
    """Build all cases, legal or not, and judge each. What the store has is not compiled again, so a run can go on."""
    toolchain = find_toolchain()
    units = [CompileJob(render_unchecked(case.kernel), toolchain) for case in cases]
    results = build_compile_jobs(units, jobs=jobs).results
    outcomes = []
    for case in cases:
        outcome = judge(case, results[case.kernel], toolchain)
        outcomes.append(outcome)
        mark = "!!" if outcome.finding else "  "
        print(f"{mark} {outcome.expected:9} {outcome.verdict:9} {outcome.slug} {outcome.finding}", flush=True)
    return outcomes


HEAD = (
    "# Rules compared with the compiler",
    "",
    "Written by `tests/proof/truth.py`.",
    "",
    "We compiled every accepted kernel; each of its device kernels must contain the matrix instruction that its mma",
    "names, no other, and the predicted amount of LDS. Every rejected kernel breaks exactly one rule; it must fail to",
    "compile, or to compute.",
)


def write_table(path: Path, outcomes: Sequence[Outcome], seeds: str) -> None:
    """The outcomes as a Markdown document with a section for each op."""
    by_op: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_op.setdefault(parse_kernel(outcome.slug).op, []).append(outcome)
    write_sections(path, HEAD, {name: _section(found, seeds) for name, found in by_op.items()})


def _section(outcomes: Sequence[Outcome], seeds: str) -> list[str]:
    accepted_ones = [o for o in outcomes if o.expected == "computes"]
    refused_ones = [o for o in outcomes if o.expected != "computes"]
    right = sum(o.verdict == "computes" and not o.finding for o in accepted_ones)
    verdicts = Counter(o.verdict for o in refused_ones)
    return [
        f"- seeds: {seeds}",
        f"- accepted by the rules: {len(accepted_ones)}, of these right: {right}",
        f"- rejected by the rules: {len(refused_ones)}",
        f"  - rejected by the compiler or by `supports`: {verdicts['refused']}",
        f"  - compiled to a kernel that does not compute: {verdicts['wrong']}",
        f"  - compiled without any sign of an error: {verdicts['computes']}",
        "",
        "### Accepted",
        "",
        "| GPU | kernel | verdict |",
        "|---|---|---|",
        *(f"| {o.arch} | `{_short(o)}` | {_cell(o.finding or o.error or o.verdict)} |" for o in accepted_ones),
        "",
        "### Rejected",
        "",
        "| rule | GPU | kernel | verdict | compiler error, or result |",
        "|---|---|---|---|---|",
        *(f"| {o.expected} | {o.arch} | `{_short(o)}` | {o.verdict} | {_cell(o.error)} |" for o in refused_ones),
    ]


def _short(outcome: Outcome) -> str:
    return "-".join(outcome.slug.split("-")[2:-1])


def _cell(text: str) -> str:
    return textwrap.shorten(text, 160, placeholder=" …").replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [op.name for op in OPS]
    parser.add_argument("--op", choices=names, action="append", help="only this op; may be repeated (default: all)")
    parser.add_argument("--accepted", type=int, default=60)
    parser.add_argument("--rejected", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the tables of these ops to this Markdown file")
    options = parser.parse_args()
    ops = [find_op(name) for name in options.op or names]
    cases = [case for op in ops for case in sample(op, options.accepted, options.rejected, options.seed)]
    outcomes = run(cases, options.jobs)
    if options.out:
        write_table(options.out, outcomes, str(options.seed))
    findings = [o for o in outcomes if o.finding]
    print(f"{len(outcomes)} kernels, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
