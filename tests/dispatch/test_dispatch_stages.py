"""Problems of several kernels: which are chosen, how they depend on each other, and what is said when one lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import tilewright as tw
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, UnsupportedError
from tilewright.dispatch.launch import find_intermediates
from tilewright.dispatch.select_stages import select_stages
from tilewright.ops import find_op
from tilewright.ops.execution import Preparation, Tensor
from tilewright.ops.kernel import Kernel
from tilewright.select.select import select_kernels
from tilewright.select.selection import Candidate, Ranking, Selection

MakeKernel = Callable[..., Kernel]
GFX942 = tw.load("gfx942")


def problem(n: int = 100, step: str = "whole", **fields: Any) -> Any:
    return find_op("axpb").problem_type(step, n, **fields)


def selected(kernels: Sequence[Kernel], asked: Any, **options: Any) -> Selection:
    return tw.Registry.of(list(kernels)).select(asked, "gfx942", built=False, **options)


def taken(selection: Selection) -> list[Kernel]:
    return [part.best.kernel for part in selection.stages]


def test_each_stage_has_its_kernel(axpb: MakeKernel) -> None:
    scale, other, add = axpb("scale"), axpb("scale", threads=128), axpb("add")
    selection = selected([add, scale, other], problem())
    assert taken(selection) == [scale, add]
    assert [part.problem for part in selection.stages] == [problem(step="scale", count=4), problem(step="add")]
    assert selection.problem == problem() and selection.best.kernel == scale
    assert [choice.kernel for choice in selection] == [scale, other], "what it can begin with"
    higher = tw.Registry.of([add, scale, other]).with_priority(other, 1)
    assert taken(higher.select(problem(), "gfx942", built=False)) == [other, add]


def test_what_one_kernel_computes_has_one_stage(axpb: MakeKernel) -> None:
    selection = selected([axpb("add"), axpb("scale")], problem(step="add"))
    assert selection.stages == (selection,) and taken(selection) == [axpb("add")]


def test_the_selector_ranks_every_stage(axpb: MakeKernel) -> None:
    @dataclass(frozen=True)
    class MostThreads:
        def rank(self, asked: Any, arch: Arch, candidates: Sequence[Candidate]) -> Ranking:
            return Ranking(sorted(candidates, key=lambda choice: -choice.kernel.config.threads))  # type: ignore[attr-defined]

    steps = ("scale", "add")
    kernels = [axpb(step, threads=threads) for threads in (64, 256, 128) for step in steps]
    registry = replace(tw.Registry.of(kernels), selector=MostThreads())
    chosen = taken(registry.select(problem(), "gfx942", built=False))
    assert chosen == [axpb(step, threads=256) for step in steps]


def test_a_kernel_that_leads_nowhere_is_passed_over(axpb: MakeKernel) -> None:
    dead_end, scale, add = axpb("scale", parts=2), axpb("scale", parts=3), axpb("add", parts=3)
    selection = selected([dead_end, scale, add], problem())
    assert taken(selection) == [scale, add]
    assert selection.stages[1].problem.count == 3, "what follows depends on what was taken"
    [passed] = [rejection for rejection in selection.rejected if rejection.kernel == dead_end]
    assert passed.reasons == ("no kernel supports the following stage 2, Problem(step=add, n=100, count=2)",)


def test_a_stage_without_a_kernel_is_named(axpb: MakeKernel) -> None:
    scale, other = axpb("scale"), axpb("add", parts=3)
    selection = selected([scale, other], problem())
    assert len(selection) == 0 and {rejection.kernel for rejection in selection.rejected} == {scale, other}
    with pytest.raises(UnsupportedError) as raised:
        _ = selection.best
    said = str(raised.value).splitlines()
    assert said[0] == (
        f"Problem(step=whole, n=100) lacks a kernel for stage 2 after {scale.slug}: "
        "none of 2 kernels for gfx942 supports Problem(step=add, n=100)."
    )
    assert said[1] == f"  {scale.slug}: Z511 other-step: the kernel computes scale, the problem is add"
    assert said[2].endswith("the kernel has 3 parts, the problem has room for 1")
    with pytest.raises(UnsupportedError, match="lacks a kernel for stage 1: none of 1 kernel for gfx942"):
        _ = selected([other], problem()).best


def test_every_stage_is_printed(axpb: MakeKernel) -> None:
    lines = str(selected([axpb("scale"), axpb("add")], problem())).splitlines()
    assert lines[0] == "Problem(step=whole, n=100) on gfx942: 2 stages"
    assert lines[1] == "stage 1: Problem(step=scale, n=100, count=4) on gfx942: 1 supported, 1 rejected"
    assert lines[2] == f"  1. {axpb('scale').slug}: supports the problem unpadded"
    assert lines[4] == "stage 2: Problem(step=add, n=100) on gfx942: 1 supported, 1 rejected"
    stuck = str(selected([axpb("scale")], problem())).splitlines()
    assert stuck[0].endswith("2 stages, and no kernel for stage 2")


def test_kernels_that_are_asked_for_are_taken_for_their_stage(axpb: MakeKernel) -> None:
    first, other, add, add_3 = axpb("scale"), axpb("scale", parts=3), axpb("add"), axpb("add", parts=3)
    every = [first, other, add, add_3]
    assert taken(selected(every, problem(), kernel=add)) == [first, add]
    assert taken(selected(every, problem(), kernel=other.slug)) == [other, add_3]
    assert taken(selected(every, problem(), kernel=add_3)) == [other, add_3], "also where it decides what comes before"
    assert taken(selected(every, problem(), kernel=[other, add_3.slug])) == [other, add_3]
    assert taken(selected(every, problem(step="add", count=3), kernel=(add_3,))) == [add_3]


def test_a_kernel_asked_for_in_vain_is_an_error(axpb: MakeKernel) -> None:
    first, other, add, far = axpb("scale"), axpb("scale", parts=3), axpb("add"), axpb("add", parts=9)
    with pytest.raises(UnsupportedError) as raised:
        selected([first, add, far], problem(), kernel=far)
    said = str(raised.value).splitlines()
    assert said[0] == f"{far.slug} is not used for any stage of Problem(step=whole, n=100)"
    assert said[1].startswith("  stage 1, Problem(step=scale, n=100, count=4): Z511")
    assert said[2] == (
        "  stage 2, Problem(step=add, n=100): Z512 other-parts: the kernel has 9 parts, the problem has room for 1"
    )
    with pytest.raises(UnsupportedError, match=rf"{other.slug} is not used for any stage(.|\n)*{first.slug} is used"):
        selected([first, other, add], problem(), kernel=(first, other))
    with pytest.raises(UnsupportedError, match=f"{far.slug} is not a kernel of this registry for gfx942"):
        selected([first, add], problem(), kernel=[first, far])
    with pytest.raises(UnsupportedError, match=r"is not used for any stage of Problem\(step=add"):
        selected([first, add], problem(step="add"), kernel=first)


def test_kernels_among_several_take_tensors_as_they_are(axpb: MakeKernel) -> None:
    scale, add = axpb("scale"), axpb("add")
    execution = find_op("axpb").execution
    assert execution is not None

    def rank(asked: Any) -> Selection:
        return select_kernels(asked, GFX942, [scale, add])

    def turned(config: Any, asked: Any) -> tuple[Preparation, ...]:
        return (Preparation("x", "x is turned round", lambda x: x[::-1]),) if config.step == "scale" else ()

    prepared = replace(execution, preparations=turned)
    selection = select_stages(problem(), prepared, rank)
    assert len(selection) == 0 and selection.rejected[0].reasons == (
        "it needs x prepared, which is not possible in a problem of several kernels",
    )
    assert taken(select_stages(problem(step="scale"), prepared, rank)) == [scale], "alone it can"

    def padding(asked: Any) -> Selection:
        found = rank(asked)
        return replace(found, choices=tuple(replace(choice, padded=asked) for choice in found.choices))

    with pytest.raises(UnsupportedError, match="it would compute a padded problem, which is not possible"):
        _ = select_stages(problem(), execution, padding).best
    with pytest.raises(InvalidValueError, match="there must be at least one"):
        select_stages(problem(), replace(execution, next_stage=lambda *_: None), rank)


def tensor(name: str, *shape: int, **kind: bool) -> Tensor:
    strides = tuple(reversed([1, *(shape[:0:-1])])) if len(shape) == 2 else (1,)
    return Tensor(name, "fp32", shape, strides, **kind)


X, Y = tensor("x", 8), tensor("y", 8, output=True)


def test_what_lies_between_stages() -> None:
    left, taken_on = tensor("t", 4, 8, output=True), tensor("t", 3, 8)
    [found] = find_intermediates([X, Y], [[X, left], [taken_on, Y]], GFX942)
    assert (found.tensor, found.nbytes) == (left, 128)
    assert str(found) == "t, 4×8 of fp32, 128 bytes"
    again = tensor("t", 4, 8, output=True, updated=True)
    assert find_intermediates([X, Y], [[X, left], [again], [taken_on, Y]], GFX942) == (found,)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([[tensor("t", 8), Y]], "stage 1 reads t, which no earlier stage writes"),
        ([[tensor("t", 8, output=True, updated=True), Y]], "stage 1 reads t, which no earlier stage writes"),
        ([[X, tensor("y", 8)]], "stage 1 reads y, which no earlier stage writes"),
        ([[X, tensor("t", 8, output=True)]], "no stage writes y, which the problem has as output"),
        ([[X, tensor("t", 8, output=True)], [tensor("t", 9), Y]], "stage 2 has t 9 of fp32.*elsewhere t 8 of fp32"),
        ([[X, tensor("t", 2, 8, output=True)], [tensor("t", 2, 7), Y]], "stage 2 has t 2×7"),
        ([[tensor("x", 7), Y]], "stage 1 has x 7 of fp32.*must be the same"),
        ([[tensor("x", 8, output=True), Y]], "stage 1 writes x, an input of the whole problem"),
    ],
)
def test_stages_that_do_not_fit_together(stages: list[list[Tensor]], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        find_intermediates([X, Y], stages, GFX942)
