"""`verify` notices changed arguments of a kernel's calls with the op's own trials.

`make mutations` changes all arguments of more kernels, and writes a section of docs/mutations.md.
"""

from __future__ import annotations

import ctypes
import dataclasses

import pytest

from built_kernels import built
from tests.proof.arguments import choose_kernels, judge_changes, measure_kind
from tests.proof.mutating.argument_report import GOAL
from tests.proof.mutating.arguments import (
    DEFAULT,
    LARGER,
    SWAPPED,
    Argument,
    ArgumentChange,
    ArgumentJudge,
    list_arguments,
    list_changes,
)
from tests.proof.mutating.judge import MISSED, NOTICED
from tilewright.dispatch.plan import get_execution
from tilewright.ops import OPS
from tilewright.ops.kernel import Kernel

KERNELS = choose_kernels()
# One kind of each op, whose trials take little time.
SAMPLE = ("fmha/combine", "gemm/standard", "gemm_quant/rowcol", "grouped_conv/forward", "norm/rms", "topk/softmax")
SHARE = 0.15


def make_judge(kernel: Kernel) -> ArgumentJudge:
    return ArgumentJudge(kernel, *built([kernel]))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_arguments_are_all_words_of_the_struct(op: object) -> None:
    struct = get_execution(op.name).call.type  # type: ignore[attr-defined, union-attr]
    offsets = [argument.offset for argument in list_arguments(struct)]
    assert offsets == list(range(8, ctypes.sizeof(struct), 8))  # the first is the size of the struct


def test_a_swap_is_of_neighbours_of_one_type() -> None:
    number, address = ctypes.c_int64, ctypes.c_void_p
    a, b, m, n = (
        Argument(*each) for each in (("a", 8, address), ("b", 16, address), ("m", 24, number), ("n", 32, number))
    )
    swaps = [(each.argument, each.next) for each in list_changes([a, b, m, n]) if each.change == SWAPPED]
    assert swaps == [(a, b), (m, n)]


@pytest.mark.compile
@pytest.mark.parametrize("kind", SAMPLE)
def test_changed_arguments_are_noticed(kind: str) -> None:
    judge = make_judge(KERNELS[kind][0])
    outcomes = judge_changes(judge, judge.find_unread(), SHARE, seed=3)
    assert [f"{change}: {outcome.how}" for change, outcome in outcomes.items() if outcome.verdict == MISSED] == []
    assert sum(outcome.verdict == NOTICED for outcome in outcomes.values()) >= 5
    assert judge.wrong_problems == []


@pytest.mark.compile
def test_a_field_with_one_value_in_all_trials_is_not_seen() -> None:
    kernel = KERNELS["norm/rms"][0]
    judge = make_judge(kernel)
    (epsilon,) = (argument for argument in judge.arguments if argument.name == "epsilon")
    outcomes = [judge.judge(ArgumentChange(epsilon, change)) for change in (DEFAULT, LARGER)]
    assert [outcome.verdict for outcome in outcomes if outcome] == [NOTICED, NOTICED]
    usual = [dataclasses.replace(trial.problem, epsilon=1e-5) for trial in judge.list_trials()]
    assert ArgumentJudge(kernel, judge.artifact, usual).judge(ArgumentChange(epsilon, DEFAULT)) is None


@pytest.mark.compile
@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KERNELS)
def test_every_kind_of_kernel(kind: str) -> None:
    """The section of docs/mutations.md."""
    report = measure_kind(kind, KERNELS[kind], share=1.0, seed=1)
    assert report.score >= GOAL, report.format_survivors()
