"""Rules of attention that say "wrong on the device" are held against the emulated device, in strict mode.

As for GEMM (test_device_rules.py): the bad example of a rule must not compute what it should.
"""

from __future__ import annotations

import pytest
from on_device import device_of

from built_kernels import built_unchecked, tiered
from tilewright import arch as archs
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import Rule

pytestmark = pytest.mark.compile

FMHA = find_op("fmha")
# A102 is about what the hardware can start; tiles for so many threads do not compile for other reasons.
RULES = [rule for rule in FMHA.rules if rule.enforced_by == "device" and rule.code != "A102"]
SOME = 6  # problems of each example


def example(rule: Rule) -> Kernel:
    return FMHA.make_kernel(FMHA.make_example(rule.bad), rule.arch)


@pytest.mark.parametrize("rule", tiered(RULES, lambda rule: [example(rule)]), ids=lambda rule: rule.code)
def test_the_bad_example_computes_wrongly(rule: Rule) -> None:
    kernel = example(rule)
    artifact = built_unchecked(kernel)
    problems = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))[:SOME]
    assert problems
    found = verify(kernel, artifact, device_of(kernel), problems, mode=Mode.STRICT)
    assert {check.verdict for check in found} & {"wrong", "fault"}, [(c.problem, c.verdict, c.message) for c in found]
