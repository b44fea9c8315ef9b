"""What the rules accept compiles to the kernel it says; what they refuse does not. `make truth` takes more."""

from __future__ import annotations

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
from tilewright.ops import OPS, op_named
from truth import ARCHS, Case, accepted, judge, judge_code, rejected

pytestmark = pytest.mark.compile

SEED = 20261
MOST_TRIALS = 6
ACCEPTED = accepted(64, SEED)
REJECTED = rejected(26, SEED)
EXAMPLES = [
    Case(op.kernel(op.example_config(rule.bad), rule.arch), rule.code)
    for op in OPS
    for rule in op.rules
    if rule.enforced_by == "compiler"
]


def name(case: Case) -> str:
    return f"{case.expected}-{case.kernel.slug}"


def test_the_sample_covers_what_there_is() -> None:
    configs = [case.kernel.config for case in ACCEPTED]
    op = op_named("gemm")
    for field in ("variant", "layout", "pipeline", "epilogue"):
        assert {getattr(c, field) for c in configs} == set(
            op.config_type.__dataclass_fields__[field].metadata["kind"].values
        )  # type: ignore[attr-defined]
    assert {case.kernel.arch for case in ACCEPTED} == set(ARCHS)
    assert {c.dtype_a for c in configs} >= {"fp16", "bf16", "fp32", "fp8", "bf8", "int8"}  # type: ignore[attr-defined]
    assert len({case.kernel.slug for case in ACCEPTED}) == 64
    assert len({case.expected for case in REJECTED}) >= 10


@pytest.mark.parametrize("case", EXAMPLES, ids=name)
def test_the_bad_example_of_a_rule_that_the_compiler_enforces(case: Case) -> None:
    outcome = judge(case, find())
    assert not outcome.finding, f"{outcome.finding}: {outcome.error}"


def trials(case: Case) -> tuple[Any, ...]:
    """Problems for a kernel of the sample, not more than CI has time for. `make verified` takes all of them."""
    every = execution_of(case.kernel.op).trials(case.kernel.config, archs.load(case.kernel.arch))
    # Not the first ones only: the list goes from sizes along one dimension to splits, batches and strides.
    return every[:: -(-len(every) // MOST_TRIALS)]


def test_there_are_enough_pairs_of_kernel_and_problem() -> None:
    assert sum(len(trials(case)) for case in ACCEPTED) >= 300


@pytest.mark.parametrize("case", ACCEPTED, ids=name)
def test_accepted(case: Case) -> None:
    """It compiles to the kernel that it says, and that computes what it should, on the emulated device."""
    (artifact,) = built([case.kernel])
    toolchain = find()
    kernels = inspect_object(artifact.checked(CODE_OBJECT), archs.load(case.kernel.arch), toolchain)
    outcome = judge_code(case, [kernel for kernel in kernels if kernel.is_op], toolchain)
    assert not outcome.finding, f"{outcome.finding}: {outcome.error}"
    device = tw.Device(f"emulated:{case.kernel.arch}")
    checks = verify(case.kernel, artifact, device, trials(case), mode=Mode.STRICT)
    assert [f"{check.problem}: {check.verdict}: {check.message}" for check in checks if not check.ok] == []


@pytest.mark.parametrize("case", REJECTED, ids=name)
def test_rejected(case: Case) -> None:
    outcome = judge(case, find())
    assert not outcome.finding, f"{outcome.finding}: {outcome.error}"
