"""Are the rules right? Compile configs that they accept and reject, and inspect the code objects.

An accepted config must compile. Every kernel of its code object must contain the matrix instruction that the config's
mma names, no other, and the predicted amount of LDS. A config that breaks a rule which CK Tile enforces must not
compile, or must compile to a kernel that does not compute.

    python -m tests.proof.truth --accepted 60 --rejected 20 --seed 1
    python -m tests.proof.truth --op grouped_conv --accepted 40 --rejected 25 --seed 2
    python -m tests.proof.truth --op topk --kept 8 --out docs/truth.md

With `--kept`, kernels that were drawn before are judged: those that the store in use has, and some others.
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
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ck_trees import TREES, use_tree
from config_samples import draw_breaking, draw_legal, list_strata
from tests.proof.host_library import TW_OK, TW_UNSUPPORTED, call_supports
from tests.proof.op_sections import name_section, write_sections
from tilewright import arch as archs
from tilewright.arch.ck_api import find_current_api
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
from tilewright.runtime import hip_library

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@dataclass(frozen=True)
class Case:
    """One kernel to compile. `expected` is "computes", or the code of the one rule that it breaks."""

    kernel: Kernel
    expected: str


@dataclass(frozen=True)
class Outcome:
    """The compiler's verdict on a case. `finding` is empty if rules and compiler agree."""

    slug: str
    arch: str
    expected: str
    verdict: str  # "computes", "rejected" by the compiler or by `supports`, or "wrong"
    finding: str
    error: str  # the compiler's error, or a remark
    cpu_s: float


def draw_accepted(op: Op, n: int, seed: int) -> list[Case]:
    """Draw n legal kernels of an op such that every legal pair of features appears as early as possible.

    Features are the GPU and the op's strata: pipeline, epilogue, types, …
    """
    pool = [k for arch in ARCHS for k in _draw_pool(op, archs.load(arch), seed)]
    # The order of two kernels does not depend on other kernels, so that a new one does not change the sample much.
    pool.sort(key=lambda kernel: digest_text(f"{seed} {kernel.slug}"))
    return [Case(kernel, "computes") for kernel in choose_covering(pool, n)]


def _draw_pool(op: Op, arch: Arch, seed: int) -> Iterator[Kernel]:
    for fixed in list_strata(op, arch):
        # Each stratum has its own generator, so that a changed rule changes only the strata that it concerns.
        rng = random.Random(f"{seed} {arch.name} {sorted(fixed.items())}")
        for _ in range(12):
            config = draw_legal(op, arch, rng, fixed)
            if config is None:
                break
            if op.kind(config).is_small(config):
                yield Kernel(op.name, config, arch.name)
                break


def choose_covering(pool: Sequence[Kernel], n: int) -> list[Kernel]:
    """Choose greedily the kernel with most new pairs of features. Sets of pairs are bit masks."""
    numbers: dict[tuple[str, str], int] = {}
    masks = {k: sum(1 << numbers.setdefault(p, len(numbers)) for p in _list_feature_pairs(k)) for k in pool}
    covering: list[Kernel] = []
    seen = 0
    while masks and len(covering) < n:
        best = max(masks, key=lambda k: (masks[k] & ~seen).bit_count())
        if not masks[best] & ~seen:
            seen = 0
        seen |= masks.pop(best)
        covering.append(best)
    return covering


def _list_feature_pairs(kernel: Kernel) -> set[tuple[str, str]]:
    op = find_op(kernel.op)
    names = [n for group in op.strata(archs.load(kernel.arch)) for n in group]
    options = [n for n, f in list_fields(op.config_type).items() if not f.required]
    where = f"arch={kernel.arch}"
    features = [where, *(f"{n}={getattr(kernel.config, n)}" for n in names)]
    pairs = set(itertools.combinations(features, 2))
    return pairs | {(where, f"{n}={getattr(kernel.config, n)}") for n in options}


COMPILED = ("compiler", "supports")


def draw_rejected(op: Op, n: int, seed: int, enforcers: Sequence[str] = COMPILED) -> list[Case]:
    """Draw n kernels that each break exactly one rule which one of `enforcers` enforces, rule by rule."""
    spread = {arch: list_strata(op, archs.load(arch)) for arch in ARCHS}
    offered = [arch for arch, strata in spread.items() if strata]  # GPUs with the op's types
    codes = [r.code for r in op.rules if r.enforced_by in enforcers]
    cases: dict[str, Case] = {}
    for turn, code in itertools.product(range(n), codes):
        rng = random.Random(f"{seed} {code} {turn}")
        arch = rng.choice(offered)
        config = draw_breaking(op, archs.load(arch), rng, code, spread[arch])
        if config is not None and op.kind(config).is_small(config):
            case = Case(Kernel(op.name, config, arch), code)
            cases.setdefault(case.kernel.slug, case)
        if len(cases) == n:
            break
    return list(cases.values())


def draw_cases(op: Op, n_accepted: int, n_rejected: int, seed: int, enforcers: Sequence[str] = COMPILED) -> list[Case]:
    """Draw accepted and rejected kernels."""
    return [*draw_accepted(op, n_accepted, seed), *draw_rejected(op, n_rejected, seed, enforcers)]


def judge(case: Case, entry: Artifact | Failure, toolchain: Toolchain, *, again: bool = True) -> Outcome:
    """Compare the build result of a case with the rules' verdict.

    With `again`, a kernel with more LDS than predicted is compiled once more, to find the cause. Otherwise an array
    that LLVM moved is assumed.
    """
    kernel = case.kernel
    if isinstance(entry, Failure):
        finding = "" if case.expected != "computes" else "the rules accept it, the compiler rejects it"
        return Outcome(kernel.slug, kernel.arch, case.expected, "rejected", finding, find_first_error(entry.log), 0.0)
    code = inspect_object(entry.verify_file(CODE_OBJECT), archs.load(kernel.arch), toolchain)
    cpu_s = float(entry.facts["cost"]["cpu_s"])
    lds = partial(check_lds, kernel, toolchain=toolchain, again=again)
    return judge_code(case, [found for found in code if found.is_op], lds, entry, cpu_s)


def judge_code(
    case: Case,
    code: Sequence[KernelInspection],
    lds: Callable[[Sequence[KernelInspection], Arch], tuple[str, str]],
    entry: Artifact,
    cpu_s: float,
) -> Outcome:
    """Compare the kernels of a code object with the rules' verdict on its config."""
    kernel = case.kernel
    op = find_op(kernel.op)
    base = (kernel.slug, kernel.arch, case.expected)
    spec = archs.load(kernel.arch)
    problems = find_differences(code, op.kind(kernel.config).matrix_instructions(kernel.config, spec))
    note, unexpected = ("", "") if problems else lds(code, spec)
    problems = [*problems, *([unexpected] if unexpected else [])]
    verdict = "wrong" if problems else "computes"
    if case.expected == "computes":
        return Outcome(*base, verdict, "; ".join(problems), note, cpu_s)
    rule = next(r for r in op.rules if r.code == case.expected)
    if not problems and rule.enforced_by == "supports" and is_rejected_by_supports(kernel, entry):
        return Outcome(*base, "rejected", "", "its `supports` rejects the problems that the rule is about", cpu_s)
    finding = "" if problems else "the rules reject it, the compiler accepts it"
    return Outcome(*base, verdict, finding, "; ".join(problems), cpu_s)


def check_lds(
    kernel: Kernel, code: Sequence[KernelInspection], spec: Arch, toolchain: Toolchain, again: bool
) -> tuple[str, str]:
    """Return a remark about the LDS of a code object and a contradiction of the prediction, or empty strings."""
    predicted = find_op(kernel.op).kind(kernel.config).lds_bytes(kernel.config, spec)
    if collect_lds(code) == {predicted}:
        return "", ""
    if again:
        flags = (*make_pch_flags(kernel, toolchain), *KEEP_ARRAYS_PRIVATE)
        least = collect_lds(inspect_source(render_unchecked(kernel), spec, toolchain, extra_flags=flags).op_kernels)
    else:
        least = {min(predicted, *collect_lds(code))}
    if least == {predicted} and max(collect_lds(code)) <= spec.lds.bytes:
        return f"LDS is {max(collect_lds(code))} instead of {predicted}: the compiler moved a private array into it", ""
    return "", f"LDS is {sorted(collect_lds(code))}, predicted {predicted}"


def is_rejected_by_supports(kernel: Kernel, entry: Artifact) -> bool:
    """Whether `supports` of the built kernel rejects some of its trials and accepts others.

    For example, a kernel that was built to split a sum rejects every split. A kernel without trials must reject all
    trials of the nearest legal kernel.
    """
    config: Any = kernel.config
    arch, execution = archs.load(kernel.arch), get_execution(kernel.op)
    expected, problems = {TW_OK, TW_UNSUPPORTED}, execution.trials(config, arch)
    if not problems:
        (violation,) = find_violations(find_op(kernel.op).rules, config, arch)
        nearest = dataclasses.replace(config, **{violation.field: violation.nearest})
        expected, problems = {TW_UNSUPPORTED}, execution.trials(nearest, arch)
    # The library needs a HIP library; without a GPU, the HIP shim serves.
    hip_library.load_shim()
    library = ctypes.CDLL(str(entry.verify_file(LIBRARY)))
    return {call_supports(library, kernel, execution.arguments(problem)) for problem in problems} == expected


# LLVM may move an array that does not fit into registers from scratch to unused LDS.
KEEP_ARRAYS_PRIVATE = ("-mllvm", "-disable-promote-alloca-to-lds")


def collect_lds(code: Sequence[KernelInspection]) -> set[int]:
    """Collect the LDS bytes of the op's kernels."""
    return {kernel.resources.lds_bytes for kernel in code}


def make_pch_flags(kernel: Kernel, toolchain: Toolchain) -> tuple[str, ...]:
    """Make the flags for compiling with precompiled headers, which gives the same code in less time."""
    return prepare_header_set(CompileJob(render_unchecked(kernel), toolchain).device_headers, Store()).flags


def find_differences(code: Sequence[KernelInspection], named: Sequence[str]) -> list[str]:
    """Find kernels whose matrix instructions differ from the config's."""
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


def find_first_error(log: str) -> str:
    """Find the first error in a compiler log, and remove its folders."""
    for line in log.splitlines():
        if "error:" in line:
            return re.sub(r"^\S*/", "", line)[:240]
    return log.strip().splitlines()[-1][:240] if log.strip() else "no output"


def run(cases: Sequence[Case], jobs: int) -> list[Outcome]:
    """Build all cases, legal or not, and judge each. Kernels in the store are not compiled again."""
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
    "",
    "We merged the sections without a date from several runs, with several states of rules and launchers, so you",
    "cannot reproduce them in one run. The seeds are not held out: we corrected rules after findings on the same",
    "seeds, and 9 convolution kernels that were accepted and failed are now rejected (P316, P343), so they are not",
    "among the accepted ones. Kernels with a finding that are still legal, or became so, were run again. Kernels of a",
    "kept sample were drawn earlier, too, and are no held-out sample either; a section lists those of them that we",
    "compiled.",
)


def write_table(path: Path, outcomes: Sequence[Outcome], sample: str) -> None:
    """Write the outcomes as Markdown, with a section for each op."""
    by_op: dict[str, list[Outcome]] = {}
    generation = find_current_api().generation
    for outcome in outcomes:
        by_op.setdefault(name_section(parse_kernel(outcome.slug).op, generation), []).append(outcome)
    write_sections(path, HEAD, {name: _format_section(found, sample) for name, found in by_op.items()})


def _format_section(outcomes: Sequence[Outcome], sample: str) -> list[str]:
    accepted = [o for o in outcomes if o.expected == "computes"]
    rejected = [o for o in outcomes if o.expected != "computes"]
    right = sum(o.verdict == "computes" and not o.finding for o in accepted)
    verdicts = Counter(o.verdict for o in rejected)
    return [
        f"- {sample}",
        f"- accepted by the rules: {len(accepted)}, of these right: {right}",
        f"- rejected by the rules: {len(rejected)}",
        f"  - rejected by the compiler or by `supports`: {verdicts['rejected']}",
        f"  - compiled to a kernel that does not compute: {verdicts['wrong']}",
        f"  - compiled without any sign of an error: {verdicts['computes']}",
        "",
        "### Accepted",
        "",
        "| GPU | kernel | verdict |",
        "|---|---|---|",
        *(f"| {o.arch} | `{_shorten_slug(o)}` | {_format_cell(o.finding or o.error or o.verdict)} |" for o in accepted),
        "",
        "### Rejected",
        "",
        "| rule | GPU | kernel | verdict | compiler error, or result |",
        "|---|---|---|---|---|",
        *(
            f"| {o.expected} | {o.arch} | `{_shorten_slug(o)}` | {o.verdict} | {_format_cell(o.error)} |"
            for o in rejected
        ),
    ]


def _shorten_slug(outcome: Outcome) -> str:
    return "-".join(outcome.slug.split("-")[2:-1])


def _format_cell(text: str) -> str:
    return textwrap.shorten(text, 160, placeholder=" …").replace("|", "\\|")


def choose_cases(op: Op, options: argparse.Namespace) -> list[Case]:
    """Draw the cases of an op, or take kept ones: accepted ones, and those that the compiler or `supports` rejects."""
    if options.kept is None:
        return draw_cases(op, options.accepted, options.rejected, options.seed)
    from tests.proof.kept_kernels import choose_cheap, list_kept  # here, since it imports this module

    judged = {"computes", *(rule.code for rule in op.rules if rule.enforced_by in COMPILED)}
    return choose_cheap([case for case in list_kept(op, options.tree) if case.expected in judged], options.kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [op.name for op in OPS]
    parser.add_argument("--op", choices=names, action="append", help="only this op; may be repeated (default: all)")
    parser.add_argument("--accepted", type=int, default=60)
    parser.add_argument("--rejected", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the Markdown file to update with these ops")
    parser.add_argument("--kept", type=int, metavar="N", help="kept kernels: those in the store, N others at most")
    parser.add_argument("--tree", default="", help="another CK tree in ../shared/ck, with --kept")
    options = parser.parse_args()
    if options.tree and options.kept is None:
        parser.error("--tree needs --kept: kernels are drawn for the fetched tree only")
    ops = [find_op(name) for name in options.op or names]
    with use_tree(TREES / options.tree) if options.tree else nullcontext():
        cases = [case for op in ops for case in choose_cases(op, options)]
        outcomes = run(cases, options.jobs)
        if options.out:
            drawn = f"seed {options.seed}" if options.kept is None else "kept sample"
            sample = f"{datetime.now(UTC).date().isoformat()}, CK Tile {find_current_api().generation}, {drawn}"
            write_table(options.out, outcomes, sample)
    findings = [o for o in outcomes if o.finding]
    print(f"{len(outcomes)} kernels, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
