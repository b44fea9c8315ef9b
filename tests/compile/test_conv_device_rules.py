"""Rules of convolutions that say "wrong on the device" are held against the emulated device, in strict mode.

As for GEMM (test_device_rules.py): the bad example of a rule must not compute what it should, the good one must. A
problem that does not fit is refused by the built kernel; with the check taken out of its source it comes out wrong.
Rules that GEMM has, too, are shown for GEMM in CI, and for convolutions in the deep tier.
"""

from __future__ import annotations

from typing import Any

import pytest
from on_device import compare, computed, device_of, list_rule_cases, use_headers_of

import tilewright as tw
from built_kernels import built_unchecked, tiered
from tilewright import arch as archs
from tilewright.base.errors import UnsupportedError
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import Rule

pytestmark = pytest.mark.compile

CONV = find_op("grouped_conv")
RULES = [rule for rule in CONV.rules if rule.enforced_by == "device"]
FIT_RULES = [rule for rule in CONV.fit_rules if rule.enforced_by == "device"]
SOME = 2  # problems of each example
MORE = 12  # of a bad one
# What the launcher of a kernel knows about itself and refuses by, by the name of its change in ci_kernels.CHANGES.
LIFTED = {"S508": "least_steps", "S510": "unbounded_add", "S513": "block_m"}


def code(rule: Rule) -> str:
    return rule.code


def example(rule: Rule, fields: Any) -> Kernel:
    return CONV.make_kernel(CONV.make_example({k: v for k, v in fields.items() if k != "problem"}), rule.arch)


def example_problem(fields: Any) -> Any:
    return Problem(**{**CONV.example_problem, **fields.get("problem", {})})


def checks(kernel: Kernel, count: int = SOME) -> list[Check]:
    """What comes of the kernel's first trials."""
    artifact = built_unchecked(kernel)
    problems = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))[:count]
    assert len(problems) >= SOME
    return verify(kernel, artifact, device_of(kernel), problems, mode=Mode.STRICT)


@pytest.mark.parametrize("rule", list_rule_cases(RULES, lambda rule: example(rule, rule.bad)), ids=code)
def test_the_bad_example_computes_wrongly(rule: Rule) -> None:
    """Not on every problem: whether a copy of another wave comes too late depends on the order of the waves."""
    with use_headers_of(rule):
        found = checks(example(rule, rule.bad), MORE)
    assert {check.verdict for check in found} & {"wrong", "fault"}, [(c.problem, c.verdict) for c in found]


@pytest.mark.parametrize("rule", list_rule_cases(RULES, lambda rule: example(rule, rule.good)), ids=code)
def test_the_good_example_computes_rightly(rule: Rule) -> None:
    with use_headers_of(rule):
        found = checks(example(rule, rule.good))
    assert [(check.problem, check.message) for check in found if not check.ok] == []


@pytest.mark.parametrize("rule", tiered(FIT_RULES, lambda rule: [example(rule, rule.bad)]), ids=code)
@pytest.mark.deep
def test_a_problem_that_does_not_fit_is_computed_wrongly(rule: Rule) -> None:
    kernel = example(rule, rule.bad)
    fitting, other = example_problem(rule.good), example_problem(rule.bad)
    assert example(rule, rule.good) == kernel
    assert [violation.code for violation in tw.fits(kernel.config, other, kernel.arch)] == [rule.code]
    compare(kernel, LIFTED[rule.code], fitting, other)


MISUSED: list[tuple[str, dict[str, Any], str]] = [
    ("filter1x1_pad0", {"filter_size": 3}, "1x1 filters without padding"),
    ("filter1x1_pad0", {"pad": 1}, "1x1 filters without padding"),
    ("filter1x1_stride1_pad0", {"filter_size": 3, "pad": 1}, "1x1 filters without padding"),
    ("filter1x1_stride1_pad0", {"stride": 2}, "stride 1"),
]


@pytest.mark.parametrize(("kind", "change", "why"), MISUSED, ids=lambda value: str(value) if value else None)
def test_a_specialized_kernel_refuses_what_it_is_not_for(kind: str, change: dict[str, Any], why: str) -> None:
    """The fit rule and the built kernel's `supports` agree."""
    kernel = CONV.make_kernel(CONV.make_example({"specialization": kind}), "gfx942")
    artifact = built_unchecked(kernel)
    base = {"direction": "forward", "n": 2, "c": 64, "k": 64, "dtype": "fp16"}
    right = Problem(**base, input_size=(8, 8), filter_size=(1, 1))
    wrong = Problem(**base, **{"input_size": (8, 8), "filter_size": 1, **change})
    (check,) = verify(kernel, artifact, device_of(kernel), [right], mode=Mode.STRICT)
    assert check.ok, check.message
    (violation,) = tw.fits(kernel.config, wrong, kernel.arch)
    assert violation.code == "S511" and why in violation.message
    # `run` asks `supports` before it launches anything.
    with pytest.raises(UnsupportedError, match="IsSupportedArgument"):
        computed(kernel, artifact, wrong)
