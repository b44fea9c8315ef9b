"""What holds for the estimates of every op: the same names, the same numbers one by one and as columns, and speed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from ops.kernel_samples import legal_kernels
from tilewright.arch import load
from tilewright.ops import OPS, find_op
from tilewright.ops.cost_model.cost import CostModel, Facts
from tilewright.ops.op import Op

ARCHS = ("gfx942", "gfx950", "gfx1201")


def cost_of(name: str) -> tuple[Op, CostModel]:
    op = find_op(name)
    assert op.cost is not None, "every op of ours has an estimate"
    return op, op.cost


def problems_of(op: Op, kernels: Any) -> list[Any]:
    """Some that try edges of the kernels."""
    assert op.execution is not None
    return [trial for config, arch in kernels[::8] for trial in op.execution.trials(config, arch)[::9]][:12]


@pytest.mark.parametrize("name", [op.name for op in OPS])
def test_names_are_the_same_for_all_kernels_and_problems(name: str) -> None:
    op, cost = cost_of(name)
    kernels = [kernel for arch in ARCHS for kernel in legal_kernels(name, arch, 24)]
    assert len({tuple(cost.kernel_numbers(config, arch, None)) for config, arch in kernels}) == 1
    assert len({tuple(cost.problem_numbers(problem)) for problem in problems_of(op, kernels)}) == 1


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", [op.name for op in OPS])
def test_columns_give_the_same_numbers(name: str, arch: str) -> None:
    op, cost = cost_of(name)
    gpu, kernels = load(arch), legal_kernels(name, arch, 24)
    rows = [cost.kernel_numbers(config, gpu, None) for config, _ in kernels]
    columns = Facts(**{each: np.array([row[each] for row in rows]) for each in rows[0]})
    for problem in problems_of(op, kernels):
        facts = Facts(**cost.problem_numbers(problem))
        together = cost.estimate(facts, columns, gpu)
        seen = cost.features(facts, columns, together, gpu)
        for i, row in enumerate(rows):
            single = cost.estimate(facts, Facts(**row), gpu)
            assert np.broadcast_to(together.us, len(rows))[i] == pytest.approx(single.us, rel=1e-12)
            for each, value in cost.features(facts, Facts(**row), single, gpu).items():
                assert np.broadcast_to(seen[each], len(rows))[i] == pytest.approx(value, rel=1e-12), each


@pytest.mark.parametrize("name", [op.name for op in OPS])
def test_a_thousand_kernels_take_about_a_millisecond(name: str) -> None:
    op, cost = cost_of(name)
    gpu, kernels = load("gfx942"), legal_kernels(name, "gfx942", 24)
    rows = [cost.kernel_numbers(config, gpu, None) for config, _ in kernels]
    columns = Facts(**{each: np.resize([row[each] for row in rows], 1000) for each in rows[0]})
    facts = Facts(**cost.problem_numbers(problems_of(op, kernels)[0]))
    spent = []
    for _ in range(20):
        start = time.perf_counter()
        cost.estimate(facts, columns, gpu)
        spent.append(time.perf_counter() - start)
    assert min(spent) < 2e-3, "a fifth of that on an idle machine"
