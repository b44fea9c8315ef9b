"""The reference of attention's gradients: against differences of the forward reference, and its stages together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.inputs import make_inputs
from tilewright.ops.fmha.kind import compute_reference
from tilewright.ops.fmha.kinds.convert_dq import CONVERT_DQ
from tilewright.ops.fmha.kinds.dot_do_o import DOT_DO_O
from tilewright.ops.fmha.kinds.dq_dk_dv import DQ_DK_DV
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.stages import make_stage

GFX942 = archs.load("gfx942")
SIZES = {"batch": 2, "heads": 4, "kv_heads": 2, "seqlen_q": 3, "seqlen_k": 4, "hdim_q": 3, "hdim_v": 2}
GROUP = {"mode": "group", "batch": 3, "total_q": 6, "total_k": 7}
STEP = 1e-5
CASES: list[dict[str, Any]] = [
    {},
    {"mask": "top_left"},
    {"mask": "bottom_right", "seqlen_q": 6, "window_left": 1},
    {"bias": "elementwise", "bias_gradient": True},
    {"bias": "alibi", "layout": "bhsd"},
    {"p_drop": 0.4, "drop_seed": 5, "bias": "elementwise", "bias_gradient": True},
    {"v_layout": "col", **GROUP},
    {"mask": "top_left", "sink": 1, "window_left": 0, **GROUP},
]


def problem(family: str = "backward", **values: Any) -> Problem:
    return Problem(**{"family": family, "dtype": "fp32", **SIZES, **values})


def in_float64(of: Problem, seed: int = 1) -> dict[str, Any]:
    """Inputs with o and lse that are not rounded, so that they fit each other exactly."""
    drawn = {name: np.asarray(each) for name, each in make_inputs(of, seed, GFX942).items()}
    wide = {name: each.astype(np.float64) if each.dtype != np.int32 else each for name, each in drawn.items()}
    forward = forward_of(of)
    return {**wide, **compute_reference(forward, wide, GFX942)}


def forward_of(of: Problem) -> Problem:
    kept = {name: getattr(of, name) for name in Problem.__dataclass_fields__}
    return Problem(**{**kept, "family": "forward", "lse": True, "bias_gradient": False})


def loss(of: Problem, given: dict[str, Any]) -> float:
    """A number whose gradient by o is d_o."""
    return float((compute_reference(forward_of(of), given, GFX942)["o"] * given["d_o"]).sum())


@pytest.mark.parametrize("values", CASES, ids=str)
def test_equals_differences(values: dict[str, Any]) -> None:
    of = problem(**values)
    given = in_float64(of)
    found = compute_reference(of, given, GFX942)
    generator = np.random.default_rng(0)
    for name in ("q", "k", "v", *(["bias"] if of.bias_gradient else [])):
        # The derivative in a random direction is the gradient times it.
        for _ in range(3):
            direction = generator.standard_normal(given[name].shape)
            up, down = ({**given, name: given[name] + sign * STEP * direction} for sign in (1, -1))
            slope = (loss(of, up) - loss(of, down)) / (2 * STEP)
            assert slope == pytest.approx(float((found[f"d{name}"] * direction).sum()), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("values", CASES, ids=str)
def test_stages_together_are_the_whole(values: dict[str, Any]) -> None:
    of = problem(**values)
    given = in_float64(of)
    expected = compute_reference(of, given, GFX942)
    known = dict(given)
    for stage in (DOT_DO_O, DQ_DK_DV, CONVERT_DQ):
        known.update(compute_reference(make_stage(of, stage), known, GFX942))
    for name, each in expected.items():
        np.testing.assert_allclose(known[name], each, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "values", [{}, {"mode": "group", "batch": 3, "total_q": 7, "total_k": 90}], ids=["batch", "group"]
)
def test_parts_of_a_deterministic_problem_add_up(values: dict[str, Any]) -> None:
    whole = problem(deterministic=True, seqlen_k=50, dq_parts=4, **values)
    given = in_float64(whole)
    known = {**given, **compute_reference(make_stage(whole, DOT_DO_O), given, GFX942)}
    parted = compute_reference(make_stage(whole, DQ_DK_DV, dq_parts=4), known, GFX942)["dq_acc"]
    single = compute_reference(make_stage(whole, DQ_DK_DV), known, GFX942)["dq_acc"]
    assert len(parted) == 4
    np.testing.assert_allclose(parted.sum(axis=0), single[0], rtol=1e-12, atol=1e-14)
    # The last of four tiles of 16 keys has two.
    assert 0 < np.abs(parted[3]).max() < np.abs(parted[:3]).max()
    dq = compute_reference(make_stage(whole, CONVERT_DQ, dq_parts=4), {**known, "dq_acc": parted}, GFX942)["dq"]
    np.testing.assert_allclose(dq, compute_reference(whole, given, GFX942)["dq"], rtol=1e-12, atol=1e-14)


def test_inputs_fit_each_other() -> None:
    """o, lse and d that kernels are given are those of a forward pass, rounded."""
    of = problem("dq_dk_dv", dtype="fp16", p_drop=0.3)
    given = make_inputs(of, 1, GFX942)
    forward = compute_reference(forward_of(of), given, GFX942)
    np.testing.assert_allclose(given["lse"], forward["lse"], rtol=1e-6)
    o = forward["o"].astype(np.float16).astype(np.float64)
    kept = float(np.float32(1 - float(np.float32(0.3))))
    d = (o * given["d_o"].astype(np.float64)).sum(axis=-1).swapaxes(1, 2) * kept
    np.testing.assert_allclose(given["d"], d, rtol=1e-6, atol=1e-7)


def test_capped_scores_have_no_gradient() -> None:
    of = problem(logits_cap=3.0)
    with pytest.raises(InvalidValueError, match="logits_cap"):
        compute_reference(of, make_inputs(of, 1, GFX942), GFX942)
