"""The reference of grouped products against torch's, and the tolerance against wrong and right results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.ops import find_op, fits
from tilewright.ops.grouped_gemm import reference
from tilewright.ops.grouped_gemm.config import Config
from tilewright.ops.grouped_gemm.problem import RAGGED, Problem, apply_strides, list_tensors
from tilewright.ops.grouped_gemm.reference import (
    PATTERNS,
    choose_pattern,
    compute_reference,
    compute_tolerance,
    draw_ends,
    list_groups,
    list_trials,
    make_inputs,
)

torch = pytest.importorskip("torch")
OP = find_op("grouped_gemm")
OUTPUTS = {"bf16": torch.bfloat16, "fp16": torch.float16}
LAYOUTS = {"m": "rcr", "n": "rcr", "k": "crr", "none": "rrr"}


def make_problem(ragged: str, dtype: str = "bf16", **fields: Any) -> Problem:
    values = {"m": 32, "n": 48, "k": 64, "groups": 4, "layout": LAYOUTS[ragged]}
    return Problem(**{**values, "ragged": ragged, "dtype": dtype, **fields})


def make_config(**fields: Any) -> Config:
    return OP.make_example(fields)  # type: ignore[return-value]


def to_torch(values: Any, dtype: str, letter: str) -> Any:
    """A tensor of the same values, with its last two dimensions in the layout of the problem."""
    made = torch.from_numpy(np.asarray(values, np.float64)).to(OUTPUTS[dtype])
    return made if letter == "r" else made.transpose(-1, -2).contiguous().transpose(-1, -2)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("ragged", RAGGED)
def test_torchs_grouped_product_is_within_the_tolerance(
    ragged: str, dtype: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Torch's own checks need multiples of 8 along contiguous dimensions.
    monkeypatch.setattr(
        reference, "draw_ends", lambda problem, *_: np.array([0, 8, 24, getattr(problem, ragged)], np.int32)
    )
    arch, problem = archs.load("gfx942"), make_problem(ragged, dtype)
    inputs = make_inputs(problem, seed, arch)
    found = compute_reference(problem, inputs, arch)["c"]
    a, b = to_torch(inputs["a"], dtype, problem.layout[0]), to_torch(inputs["b"], dtype, problem.layout[1])
    offs = None if ragged == "none" else torch.from_numpy(inputs["offs"])
    of_torch = torch._grouped_mm(a, b, offs=offs).double().numpy()
    config = make_config(dtype_a=dtype, dtype_b=dtype, dtype_c=dtype, layout=problem.layout)
    limit = compute_tolerance(config, problem, inputs, {"c": found}, arch)["c"].limit
    assert found.shape == of_torch.shape
    assert (np.abs(of_torch - found) <= limit).all()
    assert np.isfinite(limit).all()


@pytest.mark.parametrize("ragged", ["m", "n", "k"])
def test_another_end_of_a_group_is_outside_the_tolerance(ragged: str) -> None:
    arch, problem = archs.load("gfx942"), make_problem(ragged)
    total = getattr(problem, ragged)
    for seed in (0, 1):
        inputs = {**make_inputs(problem, seed, arch), "offs": np.array([3, 10, 11, total], np.int32)}
        found = compute_reference(problem, inputs, arch)
        limit = compute_tolerance(make_config(), problem, inputs, found, arch)["c"].limit
        for place in range(3):
            moved = inputs["offs"].copy()
            moved[place] -= 1
            other = compute_reference(problem, {**inputs, "offs": moved}, arch)["c"]
            assert (np.abs(other - found["c"]) > limit).any()


@pytest.mark.parametrize("ragged", ["m", "n", "k"])
def test_groups_cover_what_ends_say(ragged: str) -> None:
    problem = make_problem(ragged, m=40, n=40, k=40)
    given = {"offs": np.array([0, 7, 7, 33], np.int32)}
    groups = list_groups(problem, given)
    counts = {name: np.zeros({"a": (40, 40), "b": (40, 40), "c": (40, 40)}[name]) for name in "abc"}
    for group in groups:
        for name, index in (("a", group.a), ("b", group.b), ("c", group.c)):
            if not isinstance(index, int):
                counts[name][index] += 1
    covered = {name: int(count.sum()) for name, count in counts.items()}
    assert covered == {name: 0 if name in {"m": "b", "n": "a", "k": "c"}[ragged] else 33 * 40 for name in "abc"}
    assert [group.terms for group in groups] == ([0, 7, 0, 26] if ragged == "k" else [40] * 4)


def test_elements_of_no_group_and_sums_without_terms_are_zero() -> None:
    arch, problem = archs.load("gfx942"), make_problem("m")
    inputs = {**make_inputs(problem, 1, arch), "offs": np.array([1, 1, 5, 20], np.int32)}
    found = compute_reference(problem, inputs, arch)
    limit = compute_tolerance(make_config(), problem, inputs, found, arch)["c"].limit
    assert not found["c"][20:].any() and not limit[20:].any() and (limit[:20] > 0).all()
    problem = make_problem("k")
    inputs = {**make_inputs(problem, 0, arch), "offs": np.array([0, 30, 30, 64], np.int32)}
    found = compute_reference(problem, inputs, arch)
    limit = compute_tolerance(make_config(layout="crr"), problem, inputs, found, arch)["c"].limit
    for empty in (0, 2):
        assert not found["c"][empty].any() and not limit[empty].any()


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize("gpu", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_trials_reach_edges_forms_and_patterns(gpu: str, layout: str) -> None:
    arch = archs.load(gpu)
    padded = {"pad_m": True, "pad_n": True, "pad_k": True, "epilogue": "default"}
    config = make_config(layout=layout, block=(64, 64, 32), mma=(16, 16, 16), **padded)
    trials = list_trials(config, arch)
    assert len(trials) > 24
    wanted = {"rcr": {"m", "n", "none"}, "rrr": {"m", "none"}, "crr": {"k", "none"}, "ccr": {"n", "none"}}[layout]
    assert {trial.ragged for trial in trials} == wanted
    divided = [trial for trial in trials if trial.ragged != "none"]
    drawn = {choose_pattern(trial, seed) for trial in divided if trial.groups > 2 for seed in (0, 1)}
    assert drawn == set(PATTERNS)
    assert min(trial.k for trial in trials) < config.block.k and min(trial.n for trial in trials) < config.block.n
    assert {trial.m % config.block.m == 0 for trial in trials} == {True, False}
    assert any(trial.stride_c > trial.n for trial in trials) and {1, 3} <= {trial.groups for trial in trials}
    assert all(not fits(config, trial, gpu) for trial in trials)


def test_ends_have_empty_groups_single_lines_and_everything_in_one_group() -> None:
    seen = set()
    for m in range(40, 140):
        problem = make_problem("m", m=m, groups=5)
        ends = draw_ends(problem, choose_pattern(problem, 0), np.random.default_rng(0))
        sizes = np.diff([0, *ends])
        assert (sizes >= 0).all() and ends[-1] <= m
        seen |= {("empty", bool((sizes == 0).any())), ("single", bool((sizes == 1).any()))}
        seen |= {("whole", bool((sizes == m).any())), ("short", bool(ends[-1] < m)), ("first", bool(sizes[0] == 0))}
    assert seen == {(name, value) for name in ("empty", "single", "whole", "short", "first") for value in (True, False)}


def test_tensors_and_strides() -> None:
    shapes = {ragged: {tensor.name: tensor.shape for tensor in list_tensors(make_problem(ragged))} for ragged in RAGGED}
    assert shapes["m"] == {"a": (32, 64), "b": (4, 64, 48), "offs": (4,), "c": (32, 48)}
    assert shapes["n"] == {"a": (4, 32, 64), "b": (64, 48), "offs": (4,), "c": (32, 48)}
    assert shapes["k"] == {"a": (32, 64), "b": (64, 48), "offs": (4,), "c": (4, 32, 48)}
    assert shapes["none"] == {"a": (4, 32, 64), "b": (4, 64, 48), "c": (4, 32, 48)}
    problem = make_problem("m")
    changed = apply_strides(problem, {"a": (80, 1), "b": (48 * 72, 1, 72), "c": (64, 1)})
    assert (changed.stride_a, changed.stride_b, changed.stride_c) == (80, 72, 64)
    with pytest.raises(InvalidValueError, match="the problem's layout requires"):
        apply_strides(problem, {"b": (48 * 72 + 8, 1, 72)})
    with pytest.raises(InvalidValueError, match="the problem's layout requires"):
        apply_strides(problem, {"a": (1, 32)})
