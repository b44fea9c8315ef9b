"""Configs that nobody has drawn before: accepted ones compute, rejected ones do not. Each has a seed of its own.

The smallest of many drawn ones are taken, since large tiles take minutes to compile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import tilewright as tw
from built_kernels import get_toolchain, tried
from config_samples import draw_breaking, draw_legal, list_strata
from tests.proof.mutating.problems import draw_larger_problems
from tests.proof.truth import COMPILED, Case, judge
from tilewright import arch as archs
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

pytestmark = [pytest.mark.compile, pytest.mark.deep, pytest.mark.timeout(7200)]

SEED = 36_2026
RANDOM_PROBLEMS = 20
DRAWN = 3  # rejected configs that are drawn for each one that is taken
COMPUTES = "computes"


@dataclass(frozen=True)
class Sample:
    """How many accepted and how many rejected configs of an op, or of a family of it, are taken."""

    op: str
    gpu: str
    count: int
    family: str = ""

    def list_strata(self) -> list[dict[str, Any]]:
        """Values of the fields that cover the sample's part of the op."""
        strata = list_strata(find_op(self.op), archs.load(self.gpu))
        return [each for each in strata if not self.family or each["family"] == self.family]


SAMPLES = (
    Sample("norm", "gfx950", 2),
    Sample("norm", "gfx1100", 2),
    Sample("gemm_quant", "gfx950", 4),
    Sample("grouped_gemm", "gfx950", 2),
    Sample("grouped_gemm", "gfx1100", 2),
    Sample("fmha", "gfx950", 4, "batch_prefill"),
    Sample("topk", "gfx950", 1),
    Sample("topk", "gfx1100", 1),
    Sample("moe_sorting", "gfx950", 1),
    Sample("moe_sorting", "gfx1100", 1),
)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.op}-{sample.gpu}")
def test_accepted_configs_compute(sample: Sample) -> None:
    device = tw.Device(f"emulated:{sample.gpu}")
    for case in _choose_small(_draw_accepted(sample), sample.count):
        entry = tried(case.kernel)
        outcome = judge(case, entry, get_toolchain())
        assert not outcome.finding, f"{case.kernel.slug}: {outcome.finding}: {outcome.error}"
        assert isinstance(entry, Artifact)
        trials = get_execution(sample.op).trials(case.kernel.config, archs.load(sample.gpu))
        problems = [*trials, *draw_larger_problems(case.kernel, RANDOM_PROBLEMS)]
        checks = verify(case.kernel, entry, device, problems, mode=Mode.STRICT)
        wrong = [f"{check.problem}: {check.verdict}: {check.message}" for check in checks if not check.ok]
        assert wrong == [], case.kernel.slug
        print(f"{case.kernel.slug}: {len(trials)} trials and {len(problems) - len(trials)} random problems are right")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.op}-{sample.gpu}")
def test_rejected_configs_do_not_compute(sample: Sample) -> None:
    for case in _choose_small(_draw_rejected(sample), sample.count):
        entry = tried(case.kernel)
        outcome = judge(case, entry, get_toolchain())
        verdict = outcome.verdict
        if outcome.finding and isinstance(entry, Artifact):  # neither refuses: then its results must be wrong
            trials = get_execution(sample.op).trials(case.kernel.config, archs.load(sample.gpu))
            checks = verify(case.kernel, entry, tw.Device(f"emulated:{sample.gpu}"), trials, mode=Mode.STRICT)
            wrong = sum(not check.ok for check in checks)
            assert wrong > 0, f"{case.kernel.slug}: {outcome.finding}"
            verdict = f"{wrong} of {len(checks)} trials are wrong"
        print(f"{case.expected} {case.kernel.slug}: {verdict}: {outcome.error}")


def _draw_accepted(sample: Sample) -> Iterator[Case]:
    op, arch = find_op(sample.op), archs.load(sample.gpu)
    for fixed in sample.list_strata():
        config = draw_legal(op, arch, Random(f"{SEED} {sample} {sorted(fixed.items())}"), fixed)
        if config is not None and op.kind(config).is_small(config):
            yield Case(Kernel(op.name, config, sample.gpu), COMPUTES)


def _draw_rejected(sample: Sample) -> Iterator[Case]:
    """Draw configs that each break another rule, until there are three for each that is taken."""
    op, arch, strata = find_op(sample.op), archs.load(sample.gpu), sample.list_strata()
    codes = [rule.code for rule in op.rules if rule.enforced_by in COMPILED]
    Random(SEED).shuffle(codes)
    drawn = 0
    for turn, code in itertools.product(range(DRAWN), codes):
        config = draw_breaking(op, arch, Random(f"{SEED} {sample} {code} {turn}"), code, strata)
        if config is not None and op.kind(config).is_small(config):
            yield Case(Kernel(op.name, config, sample.gpu), code)
            drawn += 1
        if drawn == DRAWN * sample.count:
            return


def _choose_small(cases: Iterable[Case], count: int) -> list[Case]:
    """Choose the cases with the least LDS, first one of each rule that they break."""
    drawn = {case.kernel.slug: case for case in cases}
    smallest = sorted(drawn.values(), key=lambda case: (_count_lds(case), case.kernel.slug))
    first = {case.expected: case for case in reversed(smallest)}
    others = [case for case in smallest if case not in first.values()]
    chosen = [*reversed(first.values()), *others][:count]
    assert len(chosen) == count
    return chosen


def _count_lds(case: Case) -> int:
    config = case.kernel.config
    return find_op(case.kernel.op).kind(config).lds_bytes(config, archs.load(case.kernel.arch))
