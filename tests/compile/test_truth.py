"""What the rules accept compiles to the kernel it says; what they refuse does not. `make truth` takes more."""

from __future__ import annotations

import pytest

from tilewright.building.toolchain import find
from tilewright.ops import OPS, op_named
from truth import ARCHS, Case, accepted, judge, rejected

pytestmark = pytest.mark.compile

SEED = 20261
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


@pytest.mark.parametrize("case", ACCEPTED, ids=name)
def test_accepted(case: Case) -> None:
    outcome = judge(case, find())
    assert not outcome.finding, f"{outcome.finding}: {outcome.error}"


@pytest.mark.parametrize("case", REJECTED, ids=name)
def test_rejected(case: Case) -> None:
    outcome = judge(case, find())
    assert not outcome.finding, f"{outcome.finding}: {outcome.error}"
