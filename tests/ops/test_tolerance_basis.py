"""Kernels that are alike in what an op says its tolerance depends on have the same tolerance: a sweep shares it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.ops import OPS, find_op
from tilewright.ops.fields import list_fields
from tilewright.ops.op import Op
from tilewright.ops.problem_field import list_declared_fields

ARCH = "gfx942"
KINDS, EACH = 30, 6
LARGEST = 2e6  # operations: the reference of a small problem takes milliseconds
# Results of these ops are integers and copies of inputs: every kernel must give the same bits, so that there is nothing
# to share. Their tolerance is 0, and no limit at all for elements that kernels need not write.
EXACT = ("moe_sorting",)


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in OPS if op.name not in EXACT], ids=lambda op: op.name)
def test_kernels_alike_in_the_basis_have_one_tolerance(op: Op) -> None:
    arch, rng = archs.load(ARCH), random.Random(5)
    execution = op.execution
    assert execution is not None
    kinds = list_strata(op, arch)
    shared = 0
    for fixed in rng.sample(kinds, min(len(kinds), KINDS)):
        configs = _of_one_kind(op, arch, rng, fixed)
        for problem in _small(op, configs, arch, rng):
            inputs = execution.inputs(problem, 1, arch)
            expected = execution.reference(problem, inputs, arch)
            alike: dict[Hashable, list[Any]] = defaultdict(list)
            for config in configs:
                allowed = execution.tolerance(config, problem, inputs, expected, arch)
                alike[execution.tolerance_basis(config, problem)].append((config, allowed))
            for (first, wanted), *others in alike.values():
                shared += sum(config != first for config, _ in others)
                for _, allowed in others:
                    assert allowed.keys() == wanted.keys()
                    for name in wanted:
                        np.testing.assert_array_equal(allowed[name].limit, wanted[name].limit)
                        np.testing.assert_array_equal(allowed[name].deviation, wanted[name].deviation)
    assert shared >= KINDS


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_result_has_no_tolerance(name: str) -> None:
    op, arch, rng = find_op(name), archs.load(ARCH), random.Random(5)
    execution = op.execution
    assert execution is not None
    for fixed in list_strata(op, arch):
        config = draw_legal(op, arch, rng, fixed)
        assert config is not None
        compared: Counter[str] = Counter()
        for problem in execution.trials(config, arch):
            inputs = execution.inputs(problem, 1, arch)
            expected = execution.reference(problem, inputs, arch)
            allowed = execution.tolerance(config, problem, inputs, expected, arch)
            assert allowed.keys() == expected.keys()
            for tensor, values in expected.items():
                wanted = np.where(np.isnan(values), np.inf, 0.0)
                np.testing.assert_array_equal(allowed[tensor].limit, wanted)
                np.testing.assert_array_equal(allowed[tensor].deviation, wanted)
                compared[tensor] += np.count_nonzero(wanted == 0.0)
        assert min(compared.values()) > 0, f"elements that trials of {config} compare: {compared}"


def _small(op: Op, configs: list[Any], arch: Arch, rng: random.Random) -> list[Any]:
    assert op.execution is not None
    problems = [p for c in configs[:2] for p in op.execution.trials(c, arch) if p.flops <= LARGEST]
    drawn = rng.sample(problems, min(2, len(problems)))
    return drawn + [replace(p, k_batch=2) for p in drawn if _may_be_split(p)]


def _may_be_split(problem: Any) -> bool:
    """Whether sums of a problem can be split: of a convolution only those over positions."""
    splits = "k_batch" in list_declared_fields(type(problem))
    return splits and getattr(problem, "direction", "backward_weight") == "backward_weight"


def _of_one_kind(op: Op, arch: Arch, rng: random.Random, fixed: Mapping[str, Any]) -> list[Any]:
    """Legal configs of kernels for the same problems: they agree in the fields that problems have, too."""
    first = draw_legal(op, arch, rng, fixed)
    if first is None:
        return []
    shared = {name: getattr(first, name) for name in list_fields(op.config_type) if hasattr(op.problem_type, name)}
    named = {f.name: getattr(first, f.name) for f in fields(op.problem_type) if f.name in list_fields(op.config_type)}
    others = (draw_legal(op, arch, rng, {**fixed, **shared, **named}) for _ in range(EACH))
    return [first, *(config for config in others if config is not None)]
