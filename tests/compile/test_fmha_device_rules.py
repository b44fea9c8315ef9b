"""Rules of attention that say "wrong on the device" are held against the emulated device, in strict mode.

As for GEMM (test_device_rules.py): the bad example of a rule must not compute what it should.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from on_device import computed, device_of, list_rule_cases, use_headers_of

from built_kernels import built_unchecked
from tilewright import arch as archs
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import Rule

pytestmark = pytest.mark.compile

FMHA = find_op("fmha")
# A102 is about what the hardware can start; tiles for so many threads do not compile for other reasons. P494 needs
# inputs of its own.
RULES = [rule for rule in FMHA.rules if rule.enforced_by == "device" and rule.code not in ("A102", "P494")]
SOME = 6  # problems of each example
# Changes of a trial for examples that few problems show.
PROBLEM_CHANGES: dict[str, dict[str, Any]] = {
    # The first tile of 256 queries sees 64 of the 108 keys, which are two tiles of 32.
    "P426": {"seqlen_q": 300, "seqlen_k": 108, "mask": "bottom_right", "window_left": -1, "window_right": 0},
}


def example(rule: Rule) -> Kernel:
    return FMHA.make_kernel(FMHA.make_example(rule.bad), rule.arch)


def list_problems(rule: Rule, kernel: Kernel) -> list[Any]:
    trials = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))
    if rule.code in PROBLEM_CHANGES:
        return [dataclasses.replace(trials[0], **PROBLEM_CHANGES[rule.code])]
    return list(trials[:SOME])


@pytest.mark.parametrize("rule", list_rule_cases(RULES, example), ids=lambda rule: rule.code)
def test_the_bad_example_computes_wrongly(rule: Rule) -> None:
    kernel = example(rule)
    with use_headers_of(rule):
        artifact = built_unchecked(kernel)
        problems = list_problems(rule, kernel)
        assert problems
        found = verify(kernel, artifact, device_of(kernel), problems, mode=Mode.STRICT)
    assert {check.verdict for check in found} & {"wrong", "fault"}, [(c.problem, c.verdict, c.message) for c in found]


@pytest.mark.deep
def test_a_probability_between_240_and_256_is_not_a_number() -> None:
    """P494: one key of the second tile has a probability 250.7 times that of all others."""
    (rule,) = [rule for rule in FMHA.rules if rule.code == "P494"]
    kernel = example(rule)
    sizes = {"batch": 1, "heads": 1, "kv_heads": 1, "seqlen_q": 64, "seqlen_k": 256}

    def set_logits(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        q, k = (np.zeros_like(inputs[name]) for name in ("q", "k"))
        q[..., 0], q[..., 1] = 8, 1
        k[:, 200, :, 0], k[:, 200, :, 1] = 7, 6.5  # e to the power of 62.5 / √128 is 250.7
        return {**inputs, "q": q, "k": k}

    def compute() -> np.ndarray[Any, Any]:
        trial = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))[0]
        output, _ = computed(kernel, built_unchecked(kernel), dataclasses.replace(trial, **sizes), set_logits)
        return output.get_values().astype(np.float64)

    assert np.isfinite(compute()).all()
    with use_headers_of(rule):
        assert np.isnan(compute()).all()
