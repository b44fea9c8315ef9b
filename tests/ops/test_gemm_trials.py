"""Trial problems: all of them fit, and the edges are among them."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tilewright as tw
from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.ops import find_op
from tilewright.ops.block_gemm import resources

GEMM = find_op("gemm")
GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def trials(config: Any, arch: str) -> tuple[Any, ...]:
    assert GEMM.execution is not None
    return GEMM.execution.trials(config, archs.load(arch))


def config(**values: Any) -> Any:
    return GEMM.make_config(**{**GEMM.example, "block": (64, 64, 32), **values})


def tiles(config: Any, problem: Any) -> tuple[int, int]:
    """Tiles along M and N."""
    return -(-problem.m // config.block.m), -(-problem.n // config.block.n)


@pytest.mark.parametrize("gpu", GPUS)
def test_all_kinds_of_kernels_have_trials_that_fit(gpu: str) -> None:
    rng, arch = random.Random(3), archs.load(gpu)
    assert GEMM.execution is not None
    kinds = list_strata(GEMM, arch)
    drawn = [draw_legal(GEMM, arch, rng, fixed) for fixed in rng.sample(kinds, min(len(kinds), 80))]
    for kernel in drawn:
        if kernel is None:
            continue
        problems = trials(kernel, gpu)
        assert len(problems) >= 5 and len(set(problems)) == len(problems)
        for problem in problems:
            assert tw.fits(kernel, problem, gpu) == []
            m, n = tiles(kernel, problem)
            assert m * n <= 40 or kernel.persistent  # type: ignore[attr-defined]
            assert problem.batch <= 3 and problem.k_batch <= 5
            GEMM.execution.preparations(kernel, problem)


def test_a_padding_kernel_sees_every_edge() -> None:
    kernel = config(pad_m=True, pad_n=True, pad_k=True, epilogue="default", vector=(1, 1, 1))
    arch = archs.load("gfx942")
    vector = resources.vector_a(kernel, arch)
    problems = trials(kernel, "gfx942")
    assert {p.m for p in problems} >= {1, 13, 63, 64, 65}
    assert {p.n for p in problems} >= {1, 17, 63, 64, 65}
    assert {p.k for p in problems} >= {vector, 32 + vector, 32 * 4 - vector}
    assert any(p.m % 64 and p.n % 64 and p.k % 32 for p in problems)
    assert any(p.stride_a > p.k and p.stride_b > p.k and p.stride_c > p.n for p in problems)
    assert any(p.stride_c > p.n + 500 for p in problems)


def steps_by_tiles(config: Any) -> dict[tuple[int, int], set[int]]:
    """Steps of each part along K that were tried, by tiles along M and N."""
    found: dict[tuple[int, int], set[int]] = {}
    for problem in trials(config, "gfx942"):
        steps = -(-problem.k // (config.block.k * problem.k_batch))
        found.setdefault(tiles(config, problem), set()).add(steps)
    return found


@pytest.mark.parametrize(
    ("pipeline", "forms"),
    [
        # Numbers of steps that CK Tile compiles a form for: BlockHasHotloop, GetBlockLoopTailNum of each pipeline.
        ("compv3", [{1}, {2}, set(range(3, 40))]),
        ("compv4", [{1}, {2}, {3}, set(range(4, 40, 2)), set(range(5, 40, 2))]),
        # 64x64x32 in fp16 are 8 KB: four steps are under way.
        ("mem", [*({n} for n in range(1, 5)), *(set(range(4 + n, 40, 4)) for n in range(1, 5))]),
    ],
)
def test_every_form_of_the_loop_has_many_tiles_in_both_directions(pipeline: str, forms: list[set[int]]) -> None:
    """Each form is an instance of its own, with its own code that maps work-groups to tiles."""
    tried = steps_by_tiles(config(pipeline=pipeline))
    many = set().union(*(steps for (m, n), steps in tried.items() if m > 4 and m % 4 and n >= 4 and m * n % 8))
    few = set().union(*(steps for (m, n), steps in tried.items() if m > 1 and n > 1 and m * n < 8))
    row = set().union(*(steps for (m, n), steps in tried.items() if m == 1 and n > 1))
    column = set().union(*(steps for (m, n), steps in tried.items() if m > 1 and n == 1))
    assert all(form & steps for form in forms for steps in (many, few, row, column))
    assert max(few) >= 10  # several passes through a hot loop


def test_compv6_has_no_single_step() -> None:
    assert 1 not in set().union(*steps_by_tiles(config(pipeline="compv6")).values())


def test_persistent_kernels_have_more_tiles_than_work_groups() -> None:
    kernel, gpu = config(persistent=True), archs.load("gfx942")
    most = max(m * n for m, n in (tiles(kernel, p) for p in trials(kernel, "gfx942")))
    assert most > gpu.compute.units * (gpu.lds.bytes // resources.lds_bytes(kernel, gpu))


def test_splits_and_batches() -> None:
    split = trials(config(split_k=True), "gfx942")
    assert {p.k_batch for p in split} == {1, 2, 3, 5}
    assert any(p.k_batch > 1 and m > 4 and n > 1 for p in split for m, n in [tiles(config(), p)])
    batched = trials(config(variant="batched"), "gfx942")
    assert {p.batch for p in batched} == {1, 2, 3}
    assert {p.batch for p in trials(config(), "gfx942")} == {1}


def test_d_tensors_are_those_of_the_kernel() -> None:
    kernel = config(variant="multi_d", num_d=2, elementwise="Gelu")
    assert {(p.num_d, p.elementwise) for p in trials(kernel, "gfx942")} == {(2, "Gelu")}
