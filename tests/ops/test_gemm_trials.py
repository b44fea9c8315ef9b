"""Trial problems: all of them fit, and the edges are among them."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tilewright as tw
from tilewright import arch as archs
from tilewright.ops import op_named
from tilewright.ops.block_gemm import resources
from tilewright.ops.sampling import draw_legal, strata

GEMM = op_named("gemm")
GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def trials(config: Any, arch: str) -> tuple[Any, ...]:
    assert GEMM.execution is not None
    return GEMM.execution.trials(config, archs.load(arch))


def config(**values: Any) -> Any:
    return GEMM.config(**{**GEMM.example, "block": (64, 64, 32), **values})


@pytest.mark.parametrize("gpu", GPUS)
def test_all_kinds_of_kernels_have_trials_that_fit(gpu: str) -> None:
    rng, arch = random.Random(3), archs.load(gpu)
    assert GEMM.execution is not None
    kinds = strata(GEMM, arch)
    drawn = [draw_legal(GEMM, arch, rng, fixed) for fixed in rng.sample(kinds, min(len(kinds), 80))]
    for kernel in drawn:
        if kernel is None:
            continue
        problems = trials(kernel, gpu)
        assert len(problems) >= 5 and len(set(problems)) == len(problems)
        for problem in problems:
            assert tw.fits(kernel, problem, gpu) == []
            blocks = -(-problem.m // kernel.block.m) * -(-problem.n // kernel.block.n)  # type: ignore[attr-defined]
            assert blocks <= 4 and problem.batch <= 3 and problem.k_batch <= 3
            GEMM.execution.preparations(kernel, problem)


def test_a_padding_kernel_sees_every_edge() -> None:
    kernel = config(pad_m=True, pad_n=True, pad_k=True, epilogue="default", vector=(1, 1, 1))
    arch = archs.load("gfx942")
    vector = resources.vector_a(kernel, arch)
    problems = trials(kernel, "gfx942")
    assert {p.m for p in problems} >= {1, 13, 63, 64, 65, 128}
    assert {p.n for p in problems} >= {1, 13, 63, 64, 65, 128}
    assert {p.k for p in problems} >= {vector, 32 + vector, 64 + vector, 32, 64, 96, 128, 160}
    assert any(p.m % 64 and p.n % 64 and p.k % 32 for p in problems)
    assert any(p.stride_a > p.k and p.stride_b > p.k and p.stride_c > p.n for p in problems)


def test_every_number_of_steps_up_to_five() -> None:
    for pipeline in ("mem", "compv3", "compv4"):
        steps = {p.k // 32 for p in trials(config(pipeline=pipeline), "gfx942")}
        assert steps >= {1, 2, 3, 4, 5}
    assert 1 not in {p.k // 32 for p in trials(config(pipeline="compv6"), "gfx942")}


def test_splits_and_batches() -> None:
    split = trials(config(split_k=True), "gfx942")
    assert {p.k_batch for p in split} == {1, 2, 3}
    batched = trials(config(variant="batched"), "gfx942")
    assert {p.batch for p in batched} == {1, 2, 3}
    assert {p.batch for p in trials(config(), "gfx942")} == {1}


def test_d_tensors_are_those_of_the_kernel() -> None:
    kernel = config(variant="multi_d", num_d=2, elementwise="Gelu")
    assert {(p.num_d, p.elementwise) for p in trials(kernel, "gfx942")} == {(2, "Gelu")}
