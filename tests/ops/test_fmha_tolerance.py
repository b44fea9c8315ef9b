"""The tolerance of attention holds for a simulated kernel, and not for one with a mistake."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from played import Played
from simulated_attention import Simulated, shares

import tilewright as tw
from tilewright import arch as archs
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.inputs import make_inputs
from tilewright.ops.fmha.kind import compute_reference
from tilewright.ops.fmha.kinds.combine import COMBINE
from tilewright.ops.fmha.kinds.splitkv import SPLITKV
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.stages import make_stage
from tilewright.ops.fmha.tolerance import compute_tolerance

GFX942, GFX90A = archs.load("gfx942"), archs.load("gfx90a")
SIZES = {"batch": 3, "heads": 4, "kv_heads": 2, "seqlen_q": 40, "seqlen_k": 75, "hdim_q": 32, "hdim_v": 16}
GROUP = {"mode": "group", "total_q": 70, "total_k": 120}
TILE = 32
# Wrong in one way: the kernel that makes the mistake, from the problem and its inputs.
Mistake = Callable[[Problem, dict[str, Any]], tuple[Simulated, dict[str, Any]]]


def problem(family: str = "forward", **values: Any) -> Problem:
    return Problem(**{"family": family, "dtype": "fp16", **SIZES, **values})


def config(family: str, pipeline: str = "qr") -> Config:
    """One with tiles of 32 keys; of the rest only the pipeline counts."""
    block = {"combine": (32, 16), "dq_dk_dv": (16, TILE, 32, 16, 16, 16, 32, 32, 16)}
    whole = {"backward": "dq_dk_dv"}
    usual = (64, TILE, 16, 16, 16, 32)
    return Config(
        family=whole.get(family, family), mode="batch", dtype="fp16", pipeline=pipeline, block=block.get(family, usual)
    )


def computed(kernel: Simulated, given: dict[str, Any]) -> dict[str, Any]:
    family = kernel.problem.family
    names = {"splitkv": "splitkv", "combine": "combine", "dq_dk_dv": "gradients", "backward": "gradients"}
    made: dict[str, Any] = getattr(kernel, names.get(family, "forward"))(given)
    return made


def worst(of: Problem, mistake: Mistake | None = None, arch: Any = GFX942, seed: int = 1) -> float:
    """The largest share of the tolerance that a kernel's errors have."""
    given = make_inputs(of, seed, arch)
    expected = compute_reference(of, given, arch)
    allowed = compute_tolerance(config(of.family), of, given, expected, arch)
    kernel, given = (Simulated(of, arch, TILE, seed), given) if mistake is None else mistake(of, dict(given))
    return max(shares(computed(kernel, given), expected, allowed).values())


RIGHT = [
    *(problem(dtype=dtype, lse=True) for dtype in ("fp16", "bf16", "fp32", "fp8", "fp8bf16")),
    problem(mask="bottom_right", lse=True, **GROUP),
    problem(mask="top_left", window_left=20, window_right=5, sink=3, bias="alibi", lse=True),
    problem(bias="elementwise", lse=True, p_drop=0.3),
    problem(logits_cap=5.0, lse=True),
    problem(dtype="fp8", static_quant=True, scale_p=64.0, scale_o=0.5),
    problem("pagedkv", page_size=8, lse=True, mask="bottom_right"),
    problem("batch_prefill", page_size=1, lse=True),
    problem("splitkv", num_splits=7, mask="bottom_right", **GROUP),
    problem("combine", num_splits=7, lse=True),
    problem("dq_dk_dv", mask="top_left"),
    problem("dq_dk_dv", dtype="bf16", bias="alibi"),
    problem("backward", bias="elementwise", bias_gradient=True, p_drop=0.3),
    problem("backward", dtype="fp32", mask="bottom_right", window_left=9, **GROUP),
]


@pytest.mark.parametrize("of", RIGHT, ids=lambda of: f"{of.family}-{of.dtype}-{of.mask}-{of.bias}")
def test_holds(of: Problem) -> None:
    for seed in range(4):
        assert worst(of, seed=seed) <= 1.0
    assert worst(of) > 0.005


@pytest.mark.parametrize("of", RIGHT, ids=lambda of: f"{of.family}-{of.dtype}-{of.mask}-{of.bias}")
def test_a_right_kernel_has_room(of: Problem) -> None:
    """Also by the root mean square of its errors."""
    played = Played(tw.kernel_of(config(of.family), "gfx942"), of, GFX942, seeds=(0, 1, 2, 3))
    assert played.share(lambda given, seed: computed(Simulated(of, GFX942, TILE, seed), dict(given))) < 0.7


def test_holds_where_subnormals_are_flushed() -> None:
    assert worst(problem(), arch=GFX90A) <= 1.0


def test_some_pipelines_cut_probabilities_off() -> None:
    of = problem()
    given = make_inputs(of, 1, GFX942)
    expected = compute_reference(of, given, GFX942)
    rounds, cuts = (
        compute_tolerance(config("forward", name), of, given, expected, GFX942)["o"].limit
        for name in ("qr", "qr_async")
    )
    assert np.all(rounds < cuts)
    assert np.all(cuts < 2.5 * rounds)


@pytest.mark.parametrize("values", [{}, {"mask": "bottom_right", **GROUP}, {"page_size": 8}], ids=str)
def test_holds_for_two_kernels(values: dict[str, Any]) -> None:
    of = problem(num_splits=3, lse=True, **values)
    given = make_inputs(of, 1, GFX942)
    expected = compute_reference(of, given, GFX942)
    configs = config("splitkv"), config("combine")
    allowed = compute_tolerance(configs, of, given, expected, GFX942)
    first, second = make_stage(of, SPLITKV), make_stage(of, COMBINE)
    between = Simulated(first, GFX942, TILE).splitkv(given)
    found = Simulated(second, GFX942, TILE).combine({**given, **between})
    assert max(shares(found, expected, allowed).values()) <= 1.0
    # Not much wider than for one kernel.
    one = compute_tolerance(config("forward"), replace(of, num_splits=0), {**given}, expected, GFX942)
    assert np.all(allowed["o"].limit <= 1.5 * one["o"].limit + 1e-5)


def test_what_is_left_open() -> None:
    of = problem(
        mask="top_left", p_drop=0.2, store_randval=True, lse=True, min_seqlen_q=20, **{**GROUP, "total_k": 200}
    )
    given = make_inputs(of, 1, GFX942)
    found = compute_tolerance(config("forward"), of, given, compute_reference(of, given, GFX942), GFX942)
    allowed = {name: each.limit for name, each in found.items()}
    starts = given["seqstart_q"]
    for first, last in itertools.pairwise(starts):
        short = last - first <= 20
        assert np.all(np.isinf(allowed["o"][first:last]) == short)
        assert np.all(np.isinf(allowed["lse"][:, first:last]) == short)
        if not short:
            assert not allowed["randval"][:, first, 0].any()
            assert np.all(np.isinf(allowed["randval"][:, first, 1:]))


def test_sharp_inputs_leave_only_the_last_rounding() -> None:
    """Seed 0: nothing but a division and the rounding of the result is left to be off."""
    of = problem()
    given = make_inputs(of, 0, GFX942)
    expected = compute_reference(of, given, GFX942)
    allowed = compute_tolerance(config("forward"), of, given, expected, GFX942)["o"].limit
    assert np.all(allowed <= 0.51 * np.spacing(np.abs(expected["o"]).astype(np.float16)).astype(float) + 1e-7)


def overlooking(of: Problem, given: dict[str, Any]) -> tuple[Simulated, dict[str, Any]]:
    return Simulated(of, GFX942, overlooked=of.seqlen_k // 4), given


def changed(**values: Any) -> Mistake:
    def mistake(of: Problem, given: dict[str, Any]) -> tuple[Simulated, dict[str, Any]]:
        return Simulated(replace(of, **values), GFX942), given

    return mistake


def without_factor(of: Problem, given: dict[str, Any]) -> tuple[Simulated, dict[str, Any]]:
    kernel = Simulated(of, GFX942)
    kernel.factor = np.float32(1)
    return kernel, given


def other(name: str, change: Callable[[Any], Any]) -> Mistake:
    def mistake(of: Problem, given: dict[str, Any]) -> tuple[Simulated, dict[str, Any]]:
        return Simulated(of, GFX942), {**given, name: change(given[name])}

    return mistake


def swapped(table: Any) -> Any:
    """The first two pages of the longest sequence in the other order."""
    made = table.copy()
    made[:, [0, 1]] = made[:, [1, 0]]
    return made


def halved(values: Any) -> Any:
    return (values * np.float32(0.5)).astype(values.dtype)


WRONG = {
    "one key left out": (problem(), overlooking),
    "one key left out, bf16": (problem(dtype="bf16"), overlooking),
    "one key left out, fp8": (problem(dtype="fp8fp16"), overlooking),
    "one key left out of a group": (problem(**GROUP), overlooking),
    "one key too many": (problem(mask="bottom_right"), changed(window_right=1)),
    "window one too short": (problem(mask="top_left", window_left=9), changed(window_left=8)),
    "other corner": (problem(mask="top_left"), changed(mask="bottom_right")),
    "no sink": (problem(mask="top_left", window_left=9, sink=2), changed(sink=0)),
    "one sink": (problem(mask="top_left", window_left=9, sink=2), changed(sink=1)),
    "not scaled": (problem(), changed(scale=1.0)),
    "not capped": (problem(logits_cap=2.0), changed(logits_cap=0.0)),
    "page swapped": (problem("pagedkv", page_size=8), other("page_table", swapped)),
    "listed page swapped": (problem("batch_prefill", page_size=1), other("page_list", lambda pages: np.roll(pages, 1))),
    "a length too long": (problem("splitkv", num_splits=2), other("seqlens_k", lambda n: np.minimum(n + 1, 75))),
    "dropout without factor": (problem(p_drop=0.2), without_factor),
    "other random numbers": (problem(p_drop=0.2), changed(drop_seed=1)),
    "other offset": (problem(p_drop=0.2), changed(drop_offset=64)),
    "bias left out": (problem(bias="elementwise"), changed(bias="none")),
    "slopes of other heads": (problem(bias="alibi"), other("bias", lambda slopes: np.roll(slopes, 1, axis=1))),
    "parts with another scale": (problem("splitkv", num_splits=3), changed(scale=0.1)),
    "LSE of another part": (problem("combine", num_splits=3), other("lse_acc", lambda lse: np.roll(lse, 1, axis=0))),
    "gradient: one key left out": (problem("backward"), overlooking),
    "gradient: no d": (problem("dq_dk_dv"), other("d", np.zeros_like)),
    "gradient: half of d": (problem("dq_dk_dv"), other("d", halved)),
    "gradient: dropout without factor": (problem("backward", p_drop=0.2), without_factor),
    "gradient: other random numbers": (problem("backward", p_drop=0.2), changed(drop_seed=1)),
    "gradient: mask off by one": (problem("dq_dk_dv", mask="bottom_right"), changed(window_right=1)),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_sees_mistakes(what: str) -> None:
    of, mistake = WRONG[what]
    assert max(worst(of, mistake, seed=seed) for seed in (0, 1)) > 2.0
