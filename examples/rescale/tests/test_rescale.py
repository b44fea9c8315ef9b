"""Tests of rescale. Install the package first, so that Tilewright finds the op: `pip install -e .`

Kernels are built with the machine's toolchain (see `tilewright doctor`) and run on an emulated GPU.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ops import Kernel, find_op
from tilewright.ops.rule import Rejection, Rule

GPU = "gfx942"
OP = find_op("rescale")
KERNELS = [tw.kernel_of(OP.make_example({"dtype": dtype}), GPU) for dtype in ("fp32", "fp16")]


def check_example(rule: Rule, example: Mapping[str, Any]) -> Rejection | None:
    """Check a rule with an example of it: fields of the config, and those of the problem under `problem`."""
    fields = dict(example)
    problem = OP.problem_type(**{**OP.example_problem, **fields.pop("problem", {})})
    subjects = (problem,) if rule in OP.fit_rules else ()
    return rule.check(OP.make_example(fields), *subjects, tw.load(rule.arch))


@pytest.mark.parametrize("rule", [*OP.rules, *OP.fit_rules], ids=lambda rule: rule.slug)
def test_rules_accept_their_good_and_reject_their_bad_examples(rule: Rule) -> None:
    assert check_example(rule, rule.good) is None
    assert check_example(rule, rule.bad) is not None


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_are_correct_at_their_edges(kernel: Kernel) -> None:
    device = tw.Device(f"emulated:{GPU}")
    assert OP.execution is not None
    problems = OP.execution.trials(kernel.config, device.arch)
    checks = tw.verify(kernel, tw.build([kernel]).artifact(kernel), device, problems)
    assert [check for check in checks if not check.ok] == []


def test_a_kernel_is_selected_and_run() -> None:
    x = np.arange(1000, dtype=np.float32)
    problem = OP.problem_type(n=1000, dtype="fp32", factor=0.5)
    y = tw.build(KERNELS).run(problem, x, device=f"emulated:{GPU}")
    assert np.array_equal(y, x / 2)
