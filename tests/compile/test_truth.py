"""Accepted configs compile to the predicted kernel and compute; rejected configs do not.

The samples were drawn by tests/proof/truth.py and are kept, so that a new rule does not change them. Small kernels
with the features of large ones were added, which compile in a fraction of the time, and kernels that other tests build
anyway. CI tests the kernels in its list, and the bad example of every rule that the compiler enforces. `make truth`
draws a new sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import tilewright as tw
from built_kernels import get_toolchain, in_ci, in_tier_ci, tiered, tried
from ci_kernels import STORE, format_name, list_pairs, read_list, read_samples
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tests.proof.trees import run_tree
from tests.proof.truth import ARCHS, Case, judge
from tilewright import arch as archs
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.tiers import Tiers
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import OPS, find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import find_violations

pytestmark = pytest.mark.compile

# Problems that each kernel computes in CI: most of the time is spent on reading a kernel, once for each loop form.
MOST_TRIALS_IN_CI = 3
KEPT = [Case(kernel, expected) for expected, kernel in read_samples()]
# Kernels that rules accept with a newer CK tree only.
KEPT_FOR_NEWER = [Case(kernel, expected) for expected, kernel in read_samples(NEWER)]
COMPUTES = "computes"
needs_newer = pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)


@dataclass(frozen=True)
class Wanted:
    """How large the sample of an op is, and what must be in it."""

    accepted: int
    rejected: int
    broken_rules: int
    most_trials: int  # problems that each kernel computes in the deep tier; `make verified` takes all
    pairs: int  # of kernel and problem, at least
    every_value_of: tuple[str, ...]  # fields
    dtypes: frozenset[str]
    dtype_field: str = "dtype_a"
    gpus: tuple[str, ...] = ARCHS
    for_newer: int = 0  # accepted kernels that need the newer CK tree


FLOATS_AND_INT8 = frozenset({"fp16", "bf16", "fp32", "fp8", "bf8", "int8"})
WANTED = {
    "gemm": Wanted(97, 26, 10, 6, 300, ("variant", "layout", "pipeline", "epilogue"), FLOATS_AND_INT8),
    "grouped_conv": Wanted(80, 18, 10, 3, 100, ("direction", "ndim", "pipeline", "epilogue"), FLOATS_AND_INT8),
    "fmha": Wanted(
        **{"accepted": 61, "rejected": 18, "broken_rules": 12, "most_trials": 3, "pairs": 100, "for_newer": 9},
        every_value_of=("family", "mode"),
        dtypes=frozenset({"fp16", "bf16", "fp32", "fp8"}),
        dtype_field="dtype",
    ),
    "norm": Wanted(37, 21, 5, 4, 60, ("kind", "residual", "quant"), frozenset({"fp16", "bf16", "fp32"}), "dtype"),
    "gemm_quant": Wanted(
        **{"accepted": 78, "rejected": 29, "broken_rules": 10, "most_trials": 5, "pairs": 280},
        every_value_of=("quant", "layout", "pipeline"),
        for_newer=5,
        dtypes=frozenset({"fp8", "bf8"}),
        gpus=("gfx942", "gfx950", "gfx1201"),
    ),
    "grouped_gemm": Wanted(
        **{"accepted": 68, "rejected": 25, "broken_rules": 7, "most_trials": 5, "pairs": 240},
        every_value_of=("layout", "pipeline", "epilogue"),
        dtypes=frozenset({"fp16", "bf16", "fp8", "bf8"}),
    ),
    "topk": Wanted(
        **{"accepted": 41, "rejected": 16, "broken_rules": 1, "most_trials": 8, "pairs": 280},
        every_value_of=("activation",),
        dtypes=frozenset({"fp16", "bf16", "fp32"}),
        dtype_field="dtype",
    ),
    "moe_sorting": Wanted(
        **{"accepted": 41, "rejected": 16, "broken_rules": 1, "most_trials": 11, "pairs": 440},
        every_value_of=("masked", "keep_empty"),
        dtypes=frozenset(),  # indices and weights always have the same
        dtype_field="tile",
    ),
}


def kept(name: str) -> list[Case]:
    """The kept sample of an op."""
    return [case for case in KEPT if case.kernel.op == name]


def accepted_of(name: str) -> list[Case]:
    return [case for case in kept(name) if case.expected == COMPUTES]


def rejected_of(name: str) -> list[Case]:
    return [case for case in kept(name) if case.expected != COMPUTES]


def kernels_of(case: Case) -> tuple[Kernel, ...]:
    return (case.kernel,)


def cases(listed: Iterable[Case]) -> list[Any]:
    """Parameters of a test, those whose kernel CI does not build marked `deep`."""
    return tiered(listed, kernels_of)


def case_id(case: Case) -> str:
    return f"{case.expected}-{case.kernel.slug}"


ACCEPTED = [case for name in WANTED for case in accepted_of(name)]
REJECTED = [case for name in WANTED for case in rejected_of(name)]


@pytest.mark.parametrize("name", WANTED)
def test_the_rules_say_of_a_kept_sample_what_it_says(name: str) -> None:
    for case in kept(name):
        broken = find_violations(find_op(name).rules, case.kernel.config, archs.load(case.kernel.arch))
        assert ([str(fault).split()[0] for fault in broken] or [COMPUTES]) == [case.expected], case.kernel


@pytest.mark.parametrize("case", KEPT_FOR_NEWER, ids=case_id)
def test_a_kernel_of_the_sample_for_newer_headers_needs_them(case: Case) -> None:
    """Otherwise it belongs to the sample for the fetched headers, and `test_accepted` must run it."""
    broken = find_violations(find_op(case.kernel.op).rules, case.kernel.config, archs.load(case.kernel.arch))
    assert any("needs CK Tile's headers since 2026-06" in str(fault) for fault in broken)


@needs_newer
@pytest.mark.parametrize("case", KEPT_FOR_NEWER, ids=case_id)
def test_the_rules_say_with_newer_headers_what_their_sample_says(case: Case) -> None:
    with use_tree(TREES / NEWER):
        broken = find_violations(find_op(case.kernel.op).rules, case.kernel.config, archs.load(case.kernel.arch))
    assert ([str(fault).split()[0] for fault in broken] or [COMPUTES]) == [case.expected]


def examples() -> Iterator[Case]:
    """The bad example of each rule that the compiler enforces with the default headers.

    Ops that take over a rule unchanged, its example included, say the same about the same part of CK Tile: that is
    compiled once, and `rejected` has cases of the rule for each op.
    """
    seen = set()
    for op in OPS:
        for rule in op.rules:
            what = (rule.slug, rule.arch, str(sorted(rule.bad.items())))
            if rule.enforced_by == "compiler" and not rule.since and what not in seen:
                seen.add(what)
                yield Case(op.make_kernel(op.make_example(rule.bad), rule.arch), rule.code)


def test_there_is_a_sample_of_every_op() -> None:
    assert set(WANTED) == {op.name for op in OPS}


@pytest.mark.parametrize("name", WANTED)
def test_the_sample_covers_what_there_is(name: str) -> None:
    op, wanted = find_op(name), WANTED[name]
    kernels = [case.kernel for case in accepted_of(name)]
    configs: list[Any] = [kernel.config for kernel in kernels]
    computing = [case.kernel for case in KEPT_FOR_NEWER if case.expected == COMPUTES]
    newer: list[Any] = [kernel.config for kernel in computing if kernel.op == name]
    assert len(newer) == wanted.for_newer
    for field in wanted.every_value_of:
        offered = {value for arch in ARCHS for value in op.list_candidates(field, archs.load(arch))}
        assert {getattr(config, field) for config in (*configs, *newer)} == offered
    assert {kernel.arch for kernel in kernels} == set(wanted.gpus)
    assert {getattr(config, wanted.dtype_field) for config in configs} >= wanted.dtypes
    assert len({kernel.slug for kernel in kernels}) == wanted.accepted
    assert len(rejected_of(name)) == wanted.rejected
    assert len({case.expected for case in rejected_of(name)}) >= wanted.broken_rules


def test_ci_builds_every_pair_of_features_and_every_bad_example() -> None:
    """What the list of kernels is chosen for: see tools/ci_kernels.py."""
    missing = {pair for case in ACCEPTED for pair in list_pairs(case.kernel)}
    missing -= {pair for case in ACCEPTED if in_ci(case.kernel) for pair in list_pairs(case.kernel)}
    assert missing == set()
    assert [case_id(case) for case in examples() if not in_ci(case.kernel)] == []


@pytest.mark.parametrize("case", cases(examples()), ids=case_id)
def test_the_bad_example_of_a_rule_that_the_compiler_enforces(case: Case) -> None:
    outcome = judge(case, tried(case.kernel), get_toolchain(), again=not in_tier_ci())
    assert not outcome.finding, f"{outcome.finding}: {outcome.error}"


def trials(case: Case, most: int) -> tuple[Any, ...]:
    """At most this many problems for a kernel of the sample."""
    every = get_execution(case.kernel.op).trials(case.kernel.config, archs.load(case.kernel.arch))
    # Not the first ones only: the list goes from sizes along one dimension to splits, batches and strides.
    return every[:: -(-len(every) // most)]


@pytest.mark.parametrize("name", WANTED)
def test_there_are_enough_pairs_of_kernel_and_problem(name: str) -> None:
    counts = [len(trials(case, WANTED[name].most_trials)) for case in accepted_of(name)]
    assert min(counts) > 0
    assert sum(counts) >= WANTED[name].pairs


@pytest.mark.parametrize("case", cases(ACCEPTED), ids=case_id)
def test_accepted(case: Case) -> None:
    """It compiles to the kernel that it says, and that computes what it should, on the emulated device."""
    entry = tried(case.kernel)
    outcome = judge(case, entry, get_toolchain(), again=not in_tier_ci())
    assert not outcome.finding, f"{outcome.slug}: {outcome.finding}: {outcome.error}"
    assert isinstance(entry, Artifact)
    device = tw.Device(f"emulated:{case.kernel.arch}")
    most = MOST_TRIALS_IN_CI if in_tier_ci() else WANTED[case.kernel.op].most_trials
    checks = verify(case.kernel, entry, device, trials(case, most), mode=Mode.STRICT)
    wrong = [f"{check.problem}: {check.verdict}: {check.message}" for check in checks if not check.ok]
    assert wrong == [], outcome.slug


def cases_for_newer() -> list[Any]:
    """Parameters of a test, those that CI does not build with the newer tree marked `deep`."""
    listed = {entry.name for entry in read_list()}
    marks = {True: (), False: (pytest.mark.deep,)}
    names = [(case, format_name(case.kernel, tree=NEWER)) for case in KEPT_FOR_NEWER]
    return [pytest.param(case, marks=marks[name in listed]) for case, name in names]


@needs_newer
@pytest.mark.parametrize("case", cases_for_newer(), ids=case_id)
def test_with_the_newer_headers(case: Case) -> None:
    """As `test_accepted`, in the deep tier on all trials, and as `test_rejected`."""
    with use_tree(TREES / NEWER):
        (result,) = run_tree([case], 1, Tiers(STORE), MOST_TRIALS_IN_CI if in_tier_ci() else None)
    assert result.finding == ""
    assert result.rule == ("" if case.expected == COMPUTES else case.expected)
    assert result.said != COMPUTES, "an accepted kernel must have run"


@pytest.mark.parametrize("case", cases(REJECTED), ids=case_id)
def test_rejected(case: Case) -> None:
    outcome = judge(case, tried(case.kernel), get_toolchain(), again=not in_tier_ci())
    assert not outcome.finding, f"{outcome.slug}: {outcome.finding}: {outcome.error}"
