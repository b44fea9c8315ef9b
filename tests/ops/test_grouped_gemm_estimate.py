"""The estimate of grouped products, with and without the sizes of groups."""

from __future__ import annotations

import random

import pytest

from tilewright import gemm, grouped_gemm
from tilewright.arch.load import load
from tilewright.base.errors import InvalidValueError
from tilewright.ops.cost_model.cost import Facts

OP = grouped_gemm.OP
COST = OP.cost
assert COST is not None
ARCH = load("gfx942")
KERNEL = OP.make_kernel(OP.make_config(**OP.example), "gfx942")
EXPERTS, INNER, HIDDEN = 128, 1536, 2048


def make_problem(lines: int, ragged: str = "m") -> grouped_gemm.Problem:
    sizes = {"m": HIDDEN, "n": INNER, "k": HIDDEN} | {ragged: lines}
    return grouped_gemm.Problem(**sizes, groups=EXPERTS, ragged=ragged, dtype="bf16", layout="rcr")


def estimate_unknown(problem: grouped_gemm.Problem) -> float:
    facts = Facts(**COST.problem_numbers(problem))
    return float(COST.estimate(facts, Facts(**COST.kernel_numbers(KERNEL.config, ARCH, None)), ARCH).us)


def route(tokens: int, chosen: int, experts: int = EXPERTS, seed: int = 0) -> list[int]:
    """The rows of each expert, if every token has `chosen` random ones of the first `experts`."""
    generator = random.Random(seed)
    rows = [0] * EXPERTS
    for _ in range(tokens):
        for expert in generator.sample(range(experts), chosen):
            rows[expert] += 1
    return rows


@pytest.mark.parametrize("ragged", ["m", "n", "k"])
def test_equal_sizes_are_what_is_assumed_without_sizes(ragged: str) -> None:
    problem = make_problem(EXPERTS * 256, ragged)
    found = grouped_gemm.estimate_groups(KERNEL, problem, [256] * EXPERTS)
    assert found.us == pytest.approx(estimate_unknown(problem), rel=1e-6)


@pytest.mark.parametrize("tokens", [1, 3, 4, 33, 64, 4096])
def test_rows_in_few_experts_read_few_weights(tokens: int) -> None:
    problem = make_problem(tokens * 8)
    spread, narrow = (
        grouped_gemm.estimate_groups(KERNEL, problem, route(tokens, 8, experts)) for experts in (EXPERTS, 8)
    )
    assert narrow.terms["memory"] <= spread.terms["memory"]
    assert narrow.shape["tiles"] <= spread.shape["tiles"]
    if tokens in (33, 64):  # more than 100 experts have rows, and their weights are read
        assert narrow.terms["memory"] < spread.terms["memory"] / 8
        assert narrow.us < spread.us / 2


@pytest.mark.parametrize("tokens", [1, 3, 4, 33, 64, 4096])
def test_without_sizes_few_tokens_use_few_experts(tokens: int) -> None:
    """Each row has an expert of its own at most, so that the estimate is near that of a random routing."""
    problem = make_problem(tokens * 8)
    known = grouped_gemm.estimate_groups(KERNEL, problem, route(tokens, 8)).us
    assert known / 1.3 < estimate_unknown(problem) < known * 1.3


def test_the_tiles_of_each_group_are_counted() -> None:
    problem = make_problem(1000)
    sizes = [1, 0, 128, 129, 742] + [0] * (EXPERTS - 5)
    found = grouped_gemm.estimate_groups(KERNEL, problem, sizes)
    block_m, block_n, _ = KERNEL.config.block
    assert (block_m, block_n) == (128, 128)
    assert found.shape["tiles"] == (1 + 0 + 1 + 2 + 6) * (INNER // 128)


def test_a_long_group_of_terms_bounds_the_time() -> None:
    problem = make_problem(EXPERTS * 1024, "k")
    equal, uneven = (
        grouped_gemm.estimate_groups(KERNEL, problem, sizes)
        for sizes in ([1024] * EXPERTS, [EXPERTS * 1024] + [0] * (EXPERTS - 1))
    )
    assert uneven.us >= uneven.terms["longest"] > equal.terms["longest"]


def test_no_lines_at_all_cost_the_launches() -> None:
    problem = make_problem(8)
    assert grouped_gemm.estimate_groups(KERNEL, problem, [0] * EXPERTS).us < estimate_unknown(problem)


@pytest.mark.parametrize("sizes", [[8], [9] + [0] * (EXPERTS - 1), [-1, 9] + [0] * (EXPERTS - 2), []])
def test_sizes_that_do_not_fit(sizes: list[int]) -> None:
    with pytest.raises(InvalidValueError, match="must be 128 numbers from 0 with a sum of at most m = 8"):
        grouped_gemm.estimate_groups(KERNEL, make_problem(8), sizes)


def test_a_kernel_of_another_op() -> None:
    other = gemm.OP.make_kernel(gemm.OP.make_config(**gemm.OP.example), "gfx942")
    with pytest.raises(InvalidValueError, match="is a kernel of gemm, not of grouped_gemm"):
        grouped_gemm.estimate_groups(other, make_problem(8), [8] + [0] * (EXPERTS - 1))


def test_sizes_of_groups_that_are_not_ragged() -> None:
    problem = grouped_gemm.Problem(m=64, n=64, k=64, groups=2, ragged="none", dtype="bf16", layout="rcr")
    with pytest.raises(InvalidValueError, match="leave out `sizes`"):
        grouped_gemm.estimate_groups(KERNEL, problem, [64, 64])
