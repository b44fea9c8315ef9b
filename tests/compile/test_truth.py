"""What the rules accept compiles to the kernel it says; what they refuse does not. `make truth` takes more."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from built_kernels import built

import tilewright as tw
from tilewright import arch as archs
from tilewright.building.inspect import inspect_object
from tilewright.building.toolchain import find
from tilewright.building.unit import CODE_OBJECT
from tilewright.dispatch.plan import execution_of
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import OPS, op_named, parse_kernel
from tilewright.ops.rule import violations
from truth import ARCHS, Case, accepted, judge, judge_code, rejected

pytestmark = pytest.mark.compile

SEED = 20261
# Samples that are kept, by op: a line is `computes`, or the code of the one broken rule, and a kernel's name.
KEPT = Path(__file__).parent / "samples"
COMPUTES = "computes"


@dataclass(frozen=True)
class Wanted:
    """How large the sample of an op is, and what must be in it."""

    accepted: int
    rejected: int
    broken_rules: int
    most_trials: int  # problems that each kernel computes, so that CI stays short; `make verified` takes all
    pairs: int  # of kernel and problem, at least
    every_value_of: tuple[str, ...]  # fields
    dtypes: frozenset[str]
    dtype_field: str = "dtype_a"


FLOATS_AND_INT8 = frozenset({"fp16", "bf16", "fp32", "fp8", "bf8", "int8"})
WANTED = {
    "gemm": Wanted(64, 26, 10, 6, 300, ("variant", "layout", "pipeline", "epilogue"), FLOATS_AND_INT8),
    "grouped_conv": Wanted(48, 18, 10, 3, 100, ("direction", "ndim", "pipeline", "epilogue"), FLOATS_AND_INT8),
    "fmha": Wanted(47, 18, 12, 3, 100, ("family", "mode"), frozenset({"fp16", "bf16", "fp32", "fp8"}), "dtype"),
}
# Tests are named by their place in the sample, and it is drawn when the first of them runs: to draw it takes long.
ACCEPTED = [(name, place) for name, wanted in WANTED.items() for place in range(wanted.accepted)]
REJECTED = [(name, place) for name, wanted in WANTED.items() for place in range(wanted.rejected)]


@functools.cache
def kept(name: str) -> list[Case]:
    """The kept sample of an op; empty if it has none, and is drawn."""
    file = KEPT / f"{name}.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = [line.split() for line in lines if not line.startswith("#")]
    return [Case(parse_kernel(slug), expected) for expected, slug in pairs]


@functools.cache
def accepted_of(name: str) -> list[Case]:
    found = [case for case in kept(name) if case.expected == COMPUTES]
    return found or accepted(op_named(name), WANTED[name].accepted, SEED)


@functools.cache
def rejected_of(name: str) -> list[Case]:
    found = [case for case in kept(name) if case.expected != COMPUTES]
    return found or rejected(op_named(name), WANTED[name].rejected, SEED)


@pytest.mark.parametrize("name", WANTED)
def test_the_rules_say_of_a_kept_sample_what_it_says(name: str) -> None:
    for case in kept(name):
        broken = violations(op_named(name).rules, case.kernel.config, archs.load(case.kernel.arch))
        assert ([str(fault).split()[0] for fault in broken] or [COMPUTES]) == [case.expected], case.kernel


def examples() -> Iterator[Case]:
    """The bad example of each rule that the compiler enforces.

    Ops that take over a rule unchanged, its example included, say the same about the same part of CK Tile: that is
    compiled once, and `rejected` has cases of the rule for each op.
    """
    seen = set()
    for op in OPS:
        for rule in op.rules:
            what = (rule.slug, rule.arch, str(sorted(rule.bad.items())))
            if rule.enforced_by == "compiler" and what not in seen:
                seen.add(what)
                yield Case(op.kernel(op.example_config(rule.bad), rule.arch), rule.code)


def test_there_is_a_sample_of_every_op() -> None:
    assert set(WANTED) == {op.name for op in OPS}


@pytest.mark.parametrize("name", WANTED)
def test_the_sample_covers_what_there_is(name: str) -> None:
    op, wanted = op_named(name), WANTED[name]
    kernels = [case.kernel for case in accepted_of(name)]
    configs: list[Any] = [kernel.config for kernel in kernels]
    for field in wanted.every_value_of:
        offered = {value for arch in ARCHS for value in op.candidates(field, archs.load(arch))}
        assert {getattr(config, field) for config in configs} == offered
    assert {kernel.arch for kernel in kernels} == set(ARCHS)
    assert {getattr(config, wanted.dtype_field) for config in configs} >= wanted.dtypes
    assert len({kernel.slug for kernel in kernels}) == wanted.accepted
    assert len(rejected_of(name)) == wanted.rejected
    assert len({case.expected for case in rejected_of(name)}) >= wanted.broken_rules


@pytest.mark.parametrize("case", list(examples()), ids=lambda case: f"{case.expected}-{case.kernel.slug}")
def test_the_bad_example_of_a_rule_that_the_compiler_enforces(case: Case) -> None:
    outcome = judge(case, find())
    assert not outcome.finding, f"{outcome.finding}: {outcome.error}"


def trials(case: Case) -> tuple[Any, ...]:
    """Problems for a kernel of the sample, not more than CI has time for."""
    every = execution_of(case.kernel.op).trials(case.kernel.config, archs.load(case.kernel.arch))
    # Not the first ones only: the list goes from sizes along one dimension to splits, batches and strides.
    return every[:: -(-len(every) // WANTED[case.kernel.op].most_trials)]


@pytest.mark.parametrize("name", WANTED)
def test_there_are_enough_pairs_of_kernel_and_problem(name: str) -> None:
    counts = [len(trials(case)) for case in accepted_of(name)]
    assert min(counts) > 0
    assert sum(counts) >= WANTED[name].pairs


@pytest.mark.parametrize(("name", "place"), ACCEPTED)
def test_accepted(name: str, place: int) -> None:
    """It compiles to the kernel that it says, and that computes what it should, on the emulated device."""
    case = accepted_of(name)[place]
    (artifact,) = built([case.kernel])
    toolchain = find()
    kernels = inspect_object(artifact.checked(CODE_OBJECT), archs.load(case.kernel.arch), toolchain)
    outcome = judge_code(case, [kernel for kernel in kernels if kernel.is_op], toolchain)
    assert not outcome.finding, f"{outcome.slug}: {outcome.finding}: {outcome.error}"
    device = tw.Device(f"emulated:{case.kernel.arch}")
    checks = verify(case.kernel, artifact, device, trials(case), mode=Mode.STRICT)
    wrong = [f"{check.problem}: {check.verdict}: {check.message}" for check in checks if not check.ok]
    assert wrong == [], outcome.slug


@pytest.mark.parametrize(("name", "place"), REJECTED)
def test_rejected(name: str, place: int) -> None:
    outcome = judge(rejected_of(name)[place], find())
    assert not outcome.finding, f"{outcome.slug}: {outcome.finding}: {outcome.error}"
