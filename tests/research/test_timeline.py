"""The study of clocks from code objects: what it derives from a few timelines."""

from __future__ import annotations

import numpy as np
import pytest

from research.timeline import (
    FACTORS,
    STEPS,
    Modelled,
    UnitClocks,
    count_tiles,
    fit,
    fit_factors,
    interpolate,
    judge,
)
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.grouped_conv.gfx950_times import make_labelled_kernel


def test_clocks_of_work_groups() -> None:
    """Resident work-groups share the unit; each further one takes as long as it does in a full unit."""
    unit = UnitClocks(resident=4, alone=1000, full=1600, more=350.0)
    assert unit.count(np.array([1.0, 2.0, 4.0, 6.0])).tolist() == [1000, 1200, 1600, 2300]
    assert UnitClocks(1, 1000, 1000, 900.0).count(np.array([1.0, 3.0])).tolist() == [1000, 2800]


def test_clocks_are_linear_in_steps() -> None:
    short, long = (UnitClocks(2, 100 + 10 * steps, 200 + 15 * steps, 90.0 + 8 * steps) for steps in STEPS)
    blocks = np.array([1.0, 2.0, 3.0])
    found = interpolate(short.count(blocks), long.count(blocks), STEPS, np.array([20.0, 20.0, 20.0]))
    assert found == pytest.approx([300, 500, 500 + 250])


def test_tiles_of_a_problem() -> None:
    kernel = make_labelled_kernel(64, 64, 128, "compv3")
    problem = Problem(
        direction="forward", n=2, g=1, c=96, k=100, input_size=(9, 9), filter_size=(3, 3), stride=(1, 1), pad=(1, 1),
        dtype="bf16",
    )  # fmt: skip
    assert count_tiles(kernel, problem) == (3 * 2, 7)  # 162 rows, 100 columns, 864 terms


def test_factors_are_found() -> None:
    generator = np.random.default_rng(1)
    least = np.full((40, 3), 30.0)
    right = Modelled(generator.uniform(5, 500, (40, 3)), least)
    us = right.scale(2.0, FACTORS[20])
    assert us.min() == 32
    assert fit_factors(right, us) == (2.0, FACTORS[20], 0.0)
    wrong = Modelled(generator.permuted(right.us), least)
    assert fit({(700,): wrong, (1000,): right}, us, [0, 2])[0] == (1000,)


def test_judging_counts_errors_and_choices() -> None:
    us = np.array([[10.0, 20.0], [30.0, 15.0]])
    exact = judge("exact", us, us)
    assert (exact.error, exact.rank, exact.mean, exact.top1) == (0, pytest.approx(1), 1, 1)
    always_first = judge("first", np.array([[10.0, 40.0], [15.0, 30.0]]), us)
    assert (always_first.mean, always_first.top1) == (0.75, 0.5)
    assert always_first.error == pytest.approx(0.75)
