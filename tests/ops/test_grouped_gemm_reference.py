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


def make_problem(ragged: str, dtype: str | None = "bf16", **fields: Any) -> Problem:
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


FP8 = {"gfx942": {"fp8": torch.float8_e4m3fnuz, "bf8": torch.float8_e5m2fnuz}}
FP8["gfx950"] = {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2}


def multiply_scaled(problem: Problem, inputs: Any, gpu: str) -> tuple[Any, list[tuple[Any, ...]]]:
    """The products by torch in float64 of operands that torch converts from 8 bits, each times its scale; and the parts
    of each group: operands with scales, and the place of its result."""
    kinds = (FP8[gpu][problem.dtype_a], FP8[gpu][problem.dtype_b])
    bits = (torch.from_numpy(np.ascontiguousarray(inputs[name]).view(np.uint8)) for name in ("a", "b"))
    a, b = (each.view(kind).double() for each, kind in zip(bits, kinds, strict=True))
    scale_a, scale_b = (torch.from_numpy(inputs[name]).double() for name in ("scale_a", "scale_b"))
    ends = [0, *inputs["offs"].tolist()] if problem.ragged != "none" else []
    c = torch.zeros(
        (problem.m, problem.n) if problem.ragged == "m" else (problem.groups, problem.m, problem.n)
    ).double()
    parts = []
    for group in range(problem.groups):
        part = slice(*ends[group : group + 2]) if ends else slice(None)
        left, right, place, rows = {
            "m": lambda part=part, group=group: (a[part], b[group], part, scale_a[part]),
            "k": lambda part=part, group=group: (a[:, part], b[part], group, scale_a[group]),
            "none": lambda group=group: (a[group], b[group], group, scale_a[group]),
        }[problem.ragged]()
        parts.append((left * rows[:, None], right * scale_b[group], place))
        c[place] = parts[-1][0] @ parts[-1][1]
    return c, parts


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("gpu", "dtype"), [("gfx942", "fp8"), ("gfx942", "bf8"), ("gfx950", "fp8")])
@pytest.mark.parametrize("ragged", ["m", "k", "none"])
def test_scaled_products_are_those_of_torch(ragged: str, gpu: str, dtype: str, seed: int) -> None:
    arch = archs.load(gpu)
    problem = make_problem(ragged, None, dtype_a=dtype, dtype_b=dtype, dtype_c="bf16")
    inputs = make_inputs(problem, seed, arch)
    found = compute_reference(problem, inputs, arch)
    wanted, parts = multiply_scaled(problem, inputs, gpu)
    assert np.abs(found["c"] - wanted.numpy()).max() <= 1e-13 * np.abs(found["c"]).max()
    config = make_config(dtype_a=dtype, dtype_b=dtype, layout=problem.layout, block=(128, 128, 64))
    limit = compute_tolerance(config, problem, inputs, found, arch)["c"].limit
    assert np.isfinite(limit).all()
    if seed == 0:  # scales are powers of two: bf16 has the scaled operands exactly
        for left, right, place in parts:
            of_torch = (left.bfloat16() @ right.bfloat16()).double().numpy()
            assert (np.abs(of_torch - found["c"][place]) <= limit[place] + np.abs(found["c"][place]) * 2.0**-8).all()
    # A scale of another row or column is outside the tolerance.
    for name in ("scale_a", "scale_b"):
        moved = compute_reference(problem, {**inputs, name: np.roll(inputs[name], 1, -1)}, arch)["c"]
        assert (np.abs(moved - found["c"]) > limit)[found["c"] != 0].mean() > 0.5


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
    scaled = [make_problem(ragged, "fp8") for ragged in RAGGED]
    of_scales = [tuple(t.shape for t in list_tensors(each) if t.name.startswith("scale")) for each in scaled]
    assert of_scales == [((32,), (4, 48)), ((4, 32), (48,)), ((4, 32), (4, 48)), ((4, 32), (4, 48))]
    problem = make_problem("m")
    changed = apply_strides(problem, {"a": (80, 1), "b": (48 * 72, 1, 72), "c": (64, 1)})
    assert (changed.stride_a, changed.stride_b, changed.stride_c) == (80, 72, 64)
    with pytest.raises(InvalidValueError, match="the problem's layout requires"):
        apply_strides(problem, {"b": (48 * 72 + 8, 1, 72)})
    with pytest.raises(InvalidValueError, match="the problem's layout requires"):
        apply_strides(problem, {"a": (1, 32)})
