"""What a sweep is to measure: which kernel on which problem, in which order, and in which shard."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeping import scale_kernels, scale_plan, scale_problems

from tilewright.base.errors import InvalidValueError
from tilewright.bench.plan import Shard, SweepPlan, parse_problem
from tilewright.ops import list_ops
from tilewright.ops.problem_values import dump_problem

pytestmark = pytest.mark.usefixtures("plugin")


def test_every_kernel_meets_every_problem_of_its_kind_once() -> None:
    kernels = [*scale_kernels(2), *scale_kernels(1, dtype="fp64")]
    plan = scale_plan([*kernels, kernels[0]], [*scale_problems(5), *scale_problems(3)])
    assert plan.count == 10
    tasks = list(plan.iterate_tasks())
    assert len({task.key for task in tasks}) == len(tasks) == 10
    assert [task.kernel for task in tasks] == [kernels[0].slug] * 5 + [kernels[1].slug] * 5  # teams of one
    assert plan.idle == (kernels[2],)


def test_kernels_of_another_gpu_are_idle() -> None:
    plan = SweepPlan(scale_problems(1), scale_kernels(1), {"emulated:gfx950": "gfx950"})
    assert (plan.count, plan.idle) == (0, tuple(scale_kernels(1)))


def test_problems_without_a_kernel_are_counted() -> None:
    plan = scale_plan(scale_kernels(1, dtype="fp64"), scale_problems(4))
    assert (plan.count, plan.untried) == (0, 4)


def test_devices_that_are_alike_share_the_work_and_others_do_not() -> None:
    devices = {"gpu:0": "gfx942", "gpu:1": "gfx942", "emulated:gfx942": "gfx942"}
    plan = SweepPlan(scale_problems(3), scale_kernels(2), devices)
    assert plan.count == 12
    assert {task.device for task in plan.iterate_tasks()} == {"gpu:0", "emulated:gfx942"}
    # By turns, so that no device waits for the end of another's work.
    assert [block.device for block in plan.grids] == ["gpu:0", "emulated:gfx942"] * 2


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(InvalidValueError, match="without a kernel"):
        SweepPlan(scale_problems(1), [], {"gpu:0": "gfx942"})


def test_the_order_of_what_was_asked_does_not_make_another_sweep() -> None:
    one = scale_plan(scale_kernels(3), scale_problems(4)).describe_request()
    assert scale_plan(scale_kernels(3)[::-1], scale_problems(4)[::-1]).describe_request() == one
    assert scale_plan(scale_kernels(3), scale_problems(5)).describe_request() != one
    assert scale_plan(scale_kernels(2), scale_problems(4)).describe_request() != one
    assert scale_plan(scale_kernels(3), scale_problems(4), seed=2).describe_request() != one


@pytest.mark.parametrize("op", [op for op in list_ops() if op.name != "scale"], ids=lambda op: op.name)
def test_a_problem_is_made_again_from_its_text(op) -> None:  # type: ignore[no-untyped-def]
    kernel = op.make_kernel(op.make_config(**op.example), "gfx942")
    trials = op.execution.trials(kernel.config, __import__("tilewright.arch").arch.load("gfx942"))
    assert trials
    for problem in trials:
        assert parse_problem(op.name, dump_problem(problem)) == problem


def test_teams_grow_and_stay_with_a_problem() -> None:
    plan = scale_plan(scale_kernels(150), scale_problems(3))
    assert [len(block.kernels) for block in plan.grids] == [1, 2, 4, 8, 16, 32, 64, 23]
    largest = plan.grids[6]
    problems = [task.problem for task in largest.iterate_tasks()]
    assert [len(list(same)) for _, same in itertools.groupby(problems)] == [64, 64, 64]
    assert [task.kernel for task in largest.iterate_tasks()][:64] == [kernel.slug for kernel in largest.kernels]


def test_equal_plans_have_equal_orders() -> None:
    one = [task.key for task in scale_plan(scale_kernels(9), scale_problems(5)).iterate_tasks()]
    assert [task.key for task in scale_plan(scale_kernels(9)[::-1], scale_problems(5)[::-1]).iterate_tasks()] == one


@given(kernels=st.integers(1, 40), problems=st.integers(1, 9), count=st.integers(1, 40))
def test_shards_part_all_tasks(kernels: int, problems: int, count: int) -> None:
    plan = scale_plan(scale_kernels(kernels), scale_problems(problems))
    shards = [[task.key for task in plan.iterate_tasks(Shard(number, count))] for number in range(1, count + 1)]
    assert [key for shard in shards for key in shard] == [task.key for task in plan.iterate_tasks()]
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_shard_has_few_kernels_and_few_problems() -> None:
    """What it has to build, and to work out, is little more than its share."""
    plan = scale_plan(scale_kernels(128), scale_problems(100))
    tasks = list(plan.iterate_tasks(Shard(7, 8)))
    assert len({task.kernel for task in tasks}) * len({task.problem for task in tasks}) <= 1.5 * len(tasks)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", ""])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="shard"):
        Shard.parse_text(text)


def test_a_shard_from_its_text() -> None:
    assert Shard.parse_text("2/8") == Shard(2, 8)
    assert str(Shard(2, 8)) == "2/8"
