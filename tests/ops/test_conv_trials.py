"""Trial problems of convolutions: all of them fit, are small, and have the edges among them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import tilewright as tw
from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.ops import find_op
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, DIRECTIONS, NDIMS, SPECIALIZATIONS
from tilewright.ops.grouped_conv.implicit_gemm import compute_gemm_sizes

CONV = find_op("grouped_conv")
GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def trials(config: Any, arch: str = "gfx942") -> tuple[Any, ...]:
    assert CONV.execution is not None
    return CONV.execution.trials(config, archs.load(arch))


def config(**values: Any) -> Any:
    return CONV.make_config(**{**CONV.example, "block": (64, 64, 32), "vector": (4, 4, 4), **values})


def work_groups(config: Any, problem: Any) -> int:
    sizes = compute_gemm_sizes(problem)
    merged = config.merge_groups
    blocks = math.ceil(sizes.m / config.block.m) * math.ceil(sizes.n / config.block.n)
    return int(blocks * problem.g // merged * problem.k_batch)


@pytest.mark.parametrize("gpu", GPUS)
def test_all_kinds_of_kernels_have_trials_that_fit(gpu: str) -> None:
    rng, arch = random.Random(3), archs.load(gpu)
    kinds = list_strata(CONV, arch)
    drawn = [
        draw_legal(CONV, arch, rng, {**fixed, "specialization": rng.choice(SPECIALIZATIONS)})
        for fixed in rng.sample(kinds, min(len(kinds), 40))
    ]
    assert any(drawn)
    for kernel in drawn:
        if kernel is None:
            continue
        problems = trials(kernel, gpu)
        assert len(problems) >= 5 and len(set(problems)) == len(problems)
        for problem in problems:
            assert tw.fits(kernel, problem, gpu) == []


@pytest.mark.parametrize("ndim", NDIMS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_trials_are_small(direction: str, ndim: int) -> None:
    kernel = config(direction=direction, ndim=ndim, split_k=direction == BACKWARD_WEIGHT)
    for problem in trials(kernel):
        assert work_groups(kernel, problem) <= 80 and problem.n <= 5 and problem.k_batch <= 3
        assert compute_gemm_sizes(problem).k <= 28 * kernel.block.k or math.prod(problem.filter_size) > 9
        assert problem.flops < 2 * 60_000_000


@pytest.mark.parametrize("ndim", NDIMS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_form_is_among_them(direction: str, ndim: int) -> None:
    found = trials(config(direction=direction, ndim=ndim))
    assert {p.ndim for p in found} == {ndim}
    assert any(set(p.filter_size) == {3} and set(p.left_pad) == set(p.right_pad) == {1} for p in found)
    assert any(set(p.filter_size) == {1} and set(p.stride) == {1} for p in found)
    assert any(p.filter_size[-1] == 7 and set(p.stride) == {2} and p.left_pad != p.right_pad for p in found)
    assert any(set(p.dilation) == {2} for p in found)
    assert any(set(p.filter_size) == {3} and set(p.stride) == {2} for p in found)
    assert {p.g for p in found} == {1, 2, 3} and {p.n for p in found} >= {1, 2, 3, 5}
    # A 1x1 filter with a stride leaves inputs unread: their gradient is 0, and must be written.
    assert any(set(p.filter_size) == {1} and min(p.stride[-1:]) > 1 for p in found)
    # Inputs behind the last filter, pads wider than the filter, even filters.
    over = [(p.padded_size[-1] - p.reach[-1]) % p.stride[-1] for p in found]
    assert any(over)
    assert any(p.left_pad[-1] >= p.filter_size[-1] for p in found)
    assert any(p.filter_size[-1] % 2 == 0 for p in found)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_dimensions_differ(direction: str) -> None:
    """A kernel that takes one dimension's numbers for another's is noticed."""
    found = trials(config(direction=direction, ndim=3))
    names = ("input_size", "output_size", "filter_size", "stride", "dilation", "left_pad", "right_pad")
    assert any(all(len(set(getattr(p, name))) == 3 for name in names) for p in found)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_channels_and_outputs_around_a_block(direction: str) -> None:
    kernel = config(direction=direction)
    found = trials(kernel)
    sizes = [compute_gemm_sizes(p) for p in found]
    channels = [p.group_channels for p in found]
    assert (4, 4) in channels  # one vector of each
    assert any(c % 8 and k % 8 and c > 4 and k > 4 for c, k in channels)  # odd multiples of vectors
    assert any(s.n < 64 for s in sizes) and any(s.n % 64 and s.n > 64 for s in sizes)
    assert any(s.m < 64 for s in sizes) and any(s.m % 64 and s.m > 64 for s in sizes)
    if direction != BACKWARD_WEIGHT:
        assert {s.m for s in sizes} >= {1, 63, 64, 65}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("pipeline", "forms"),
    [
        ("compv3", [{1}, {2}, set(range(3, 40))]),
        # 64x64x32 in fp16 are 8 KB: four steps are under way.
        ("mem", [*({n} for n in range(1, 5)), *(set(range(4 + n, 40, 4)) for n in range(1, 5))]),
    ],
)
def test_every_form_of_the_loop_has_many_tiles_and_a_filter(
    direction: str, pipeline: str, forms: list[set[int]]
) -> None:
    """Each form is compiled by itself. Long loops with 1x1 filters alone passed kernels that computed 3x3 wrongly.

    A gradient by the input has one kernel for all forms, whose code for many tiles is the same.
    """
    kernel = config(direction=direction, pipeline=pipeline)
    many, filtered = set(), set()
    for problem in trials(kernel):
        sizes = compute_gemm_sizes(problem)
        m, n, steps = (math.ceil(size / tile) for size, tile in zip(sizes, kernel.block, strict=True))
        if m > 4 and m % 4 and n > 3 and m * n % 8:
            many.add(steps)
        if max(problem.filter_size) > 1 and max(problem.dilation) > 1 and any(problem.right_pad):
            filtered.add(steps)
    assert all(form & filtered for form in forms)
    assert many if direction == BACKWARD_DATA else all(form & many for form in forms)
    assert max(filtered) > 8


def test_long_loops_go_on_to_other_rows_of_the_filter_and_read_padding_alone() -> None:
    """In each form with a loop: one pass, or filters of two rows, hide errors in going on to the next row."""
    kernel = config(pipeline="mem")  # four steps are under way
    found = dict.fromkeys(range(4), False)
    for problem in trials(kernel):
        steps = math.ceil(compute_gemm_sizes(problem).k / kernel.block.k)
        beyond = all(left >= reach for left, reach in zip(problem.left_pad[-1:], problem.reach[-1:], strict=True))
        if steps > 8 and problem.filter_size[0] > 2 and problem.g > 1 and beyond:
            found[steps % 4] = True
    assert all(found.values())


def test_each_form_with_a_loop_has_passes_whose_every_step_goes_on_to_other_rows() -> None:
    """Each step that is prefetched has code of its own for that; with many channels few of them need it."""
    kernel = config(pipeline="mem")
    taps = kernel.block.k // 4
    found = {
        math.ceil(compute_gemm_sizes(p).k / kernel.block.k) % 4
        for p in trials(kernel)
        if compute_gemm_sizes(p).k > 8 * kernel.block.k
        and p.group_channels[0] == 4
        and 1 < p.filter_size[1] < taps
        and p.g > 1
    }
    assert found == {0, 1, 2, 3}


def test_steps_of_many_tiles_begin_in_every_column_of_the_filter() -> None:
    """A vector of channels is summed: each step is some rows and columns of the filter further on."""
    kernel = config(pipeline="mem")
    taps = kernel.block.k // 4
    for problem in trials(kernel):
        sizes = compute_gemm_sizes(problem)
        m, n, steps = (math.ceil(size / tile) for size, tile in zip(sizes, kernel.block, strict=True))
        if m > 4 and n > 3 and steps > 4:
            columns = {step * taps % problem.filter_size[-1] for step in range(steps)}
            assert problem.group_channels[0] == 4 and columns == set(range(problem.filter_size[-1]))


def test_edges_come_in_every_form_without_a_loop_and_with_several_groups() -> None:
    kernel = config(pipeline="mem")
    grouped = {math.ceil(compute_gemm_sizes(p).k / kernel.block.k) for p in trials(kernel) if p.g > 1}
    assert grouped >= {1, 2, 3, 4}


def test_gradients_of_the_input_with_coprime_stride_and_dilation() -> None:
    """Inputs at the left edge meet no tap where there is no pad: their gradient is 0, and must be written."""
    for ndim in NDIMS:
        found = trials(config(direction=BACKWARD_DATA, ndim=ndim))
        pairs = {
            (stride, dilation)
            for p in found
            for stride, dilation, left in zip(p.stride, p.dilation, p.left_pad, strict=True)
            if left == 0 and min(stride, dilation) > 1
        }
        assert pairs & {(2, 3)} and pairs & {(3, 2)}


def test_splits() -> None:
    split = trials(config(direction=BACKWARD_WEIGHT, split_k=True))
    assert {p.k_batch for p in split} == {1, 2, 3}
    assert any(p.k_batch > 1 and p.g > 1 for p in split)
    assert any(compute_gemm_sizes(p).k % (32 * p.k_batch) for p in split if p.k_batch > 1)
    assert {p.k_batch for p in trials(config(direction=BACKWARD_WEIGHT))} == {1}


def test_specialized_kernels_get_what_they_take() -> None:
    points = trials(config(specialization="filter1x1_pad0"))
    assert {p.filter_size for p in points} == {(1, 1)} and {p.stride for p in points} >= {(1, 1), (3, 2)}
    for kernel in (config(specialization="filter1x1_stride1_pad0"), config(explicit_gemm=True)):
        plain = trials(kernel)
        assert len(plain) > 10 and {(p.filter_size, p.stride, p.left_pad) for p in plain} == {((1, 1), (1, 1), (0, 0))}
    depthwise = trials(config(specialization="filter3x3", vector=(1, 1, 4)))
    assert len(depthwise) > 10 and {p.filter_size for p in depthwise} == {(3, 3)}
    assert all(p.c == p.g for p in depthwise) and {p.g for p in depthwise} >= {1, 2, 3}
    assert {p.stride for p in depthwise} >= {(1, 1), (2, 2)} and (2, 2) in {p.dilation for p in depthwise}


def test_merged_groups() -> None:
    found = trials(config(direction=BACKWARD_WEIGHT, merge_groups=4, vector=(4, 1, 4)))
    assert len(found) > 10 and {p.g for p in found} == {4, 8, 12}


def test_pieces_of_images() -> None:
    found = trials(config(split_image=True))
    assert len(found) > 10 and {p.n for p in found} >= {1, 2}


def test_strided_gradients_by_the_input_stay_small() -> None:
    """Each remainder of a position by the stride is a GEMM of its own."""
    kernel = config(direction=BACKWARD_DATA, ndim=3)
    strided = [p for p in trials(kernel) if max(p.stride) > 1]
    assert strided and max(work_groups(kernel, p) for p in strided) <= 60
