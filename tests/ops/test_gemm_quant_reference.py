"""The reference of products with scales against torch's, and the tolerance against wrong and right results."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.ops import find_op
from tilewright.ops.gemm_quant.config import GROUP_COLUMNS, GROUP_ROWS, GROUPED, Config
from tilewright.ops.gemm_quant.problem import Problem, apply_strides, list_tensors
from tilewright.ops.gemm_quant.reference import compute_reference, compute_tolerance, list_trials, make_inputs

torch = pytest.importorskip("torch")
from torch_products import multiply_scaled  # noqa: E402

OP = find_op("gemm_quant")
TORCH = {
    **{"fp8_ocp": torch.float8_e4m3fn, "bf8_ocp": torch.float8_e5m2},
    **{"fp8_fnuz": torch.float8_e4m3fnuz, "bf8_fnuz": torch.float8_e5m2fnuz},
}
OUTPUTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def make_problem(**fields: Any) -> Problem:
    values = {"m": 33, "n": 48, "k": 64, "quant": "rowcol", "layout": "rcr"}
    return Problem(**{**values, "dtype_a": "fp8", "dtype_b": "fp8", "dtype_c": "bf16", **fields})


def make_config(**fields: Any) -> Config:
    return OP.make_example(fields)  # type: ignore[return-value]


def to_torch(values: Any, dtype: str, gpu: str) -> Any:
    """The same bits as an 8-bit tensor of torch."""
    bits = torch.from_numpy(np.ascontiguousarray(values).view(np.uint8).copy())
    return bits.view(TORCH[archs.load(gpu).resolve_dtype(dtype)])


def scale_with_torch(problem: Problem, inputs: dict[str, Any], gpu: str) -> Any:
    a = to_torch(inputs["a"], problem.dtype_a, gpu)
    b = to_torch(np.asarray(inputs["b"]).T, problem.dtype_b, gpu).t()
    scales = [torch.from_numpy(np.asarray(inputs[name], np.float32)) for name in ("scale_a", "scale_b")]
    shaped = (scales[0][:, None], scales[1][None, :]) if problem.quant == "rowcol" else (scales[0][0], scales[1][0])
    return multiply_scaled(a, b, *shaped, OUTPUTS[problem.dtype_c])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("types", [("fp8", "fp8", "bf16"), ("bf8", "fp8", "fp16"), ("fp8", "bf8", "fp32")])
@pytest.mark.parametrize("quant", ["rowcol", "tensor"])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_torchs_scaled_product_is_within_the_tolerance(
    gpu: str, quant: str, types: tuple[str, str, str], seed: int
) -> None:
    arch = archs.load(gpu)
    problem = make_problem(quant=quant, **dict(zip(("dtype_a", "dtype_b", "dtype_c"), types, strict=True)))
    inputs = make_inputs(problem, seed, arch)
    found = compute_reference(problem, inputs, arch)
    wide = [torch.tensor(np.asarray(inputs[name], np.float64)) for name in ("a", "b", "scale_a", "scale_b")]
    exact = (wide[0] * wide[2][:, None]) @ (wide[1] * wide[3][None, :])
    np.testing.assert_allclose(found["c"], exact, rtol=1e-12, atol=1e-13)
    config = make_config(dtype_a=types[0], dtype_b=types[1], dtype_c=types[2], quant=quant)
    limit = compute_tolerance(config, problem, inputs, found, arch)["c"].limit
    of_torch = scale_with_torch(problem, inputs, gpu).double().numpy()
    assert (np.abs(of_torch - found["c"]) <= limit).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_scale_of_another_line_is_outside_the_tolerance(seed: int) -> None:
    arch, problem = archs.load("gfx942"), make_problem()
    inputs = make_inputs(problem, seed, arch)
    found = compute_reference(problem, inputs, arch)
    limit = compute_tolerance(make_config(), problem, inputs, found, arch)["c"].limit
    for name in ("scale_a", "scale_b"):
        moved = compute_reference(problem, {**inputs, name: np.roll(inputs[name], 1)}, arch)
        assert (np.abs(moved["c"] - found["c"]) > limit).mean() > 0.5
    unscaled = compute_reference(problem, {**inputs, "scale_a": np.ones_like(inputs["scale_a"])}, arch)
    assert (np.abs(unscaled["c"] - found["c"]) > limit).mean() > 0.5


def test_whole_numbers_with_powers_of_two_are_exact() -> None:
    arch, problem = archs.load("gfx950"), make_problem(dtype_c="fp32", k=512)
    inputs = make_inputs(problem, 0, arch)
    found = compute_reference(problem, inputs, arch)
    limit = compute_tolerance(make_config(dtype_c="fp32"), problem, inputs, found, arch)["c"].limit
    assert not limit.any()
    assert (np.frexp(inputs["scale_a"])[0] == 0.5).all()


def multiply_groups(problem: Problem, inputs: dict[str, Any], gpu: str) -> Any:
    """The product of each group by torch's `_scaled_mm` with a scale for each row and column, summed in double."""
    a = to_torch(inputs["a"], problem.dtype_a, gpu)
    b = to_torch(np.asarray(inputs["b"]).T, problem.dtype_b, gpu).t()
    rows, columns = (find.get(problem.quant) for find in (GROUP_ROWS, GROUP_COLUMNS))
    total = torch.zeros((problem.m, problem.n), dtype=torch.float64)
    for group, start in enumerate(range(0, problem.k, 128)):
        of_a = np.repeat(inputs["scale_a"][:, group], rows) if rows else np.ones(problem.m)
        of_b = np.repeat(inputs["scale_b"][group], columns) if columns else np.ones(problem.n)
        scale_a = torch.from_numpy(of_a[: problem.m, None].astype(np.float32))
        scale_b = torch.from_numpy(of_b[None, : problem.n].astype(np.float32))
        part = (a[:, start : start + 128], b[start : start + 128])
        total += multiply_scaled(*part, scale_a, scale_b, torch.float32).double()
    return total


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("quant", list(GROUPED))
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_the_sum_of_torchs_products_of_groups_is_within_the_tolerance(gpu: str, quant: str, seed: int) -> None:
    arch = archs.load(gpu)
    problem = make_problem(quant=quant, n=144, k=272, dtype_c="fp32")
    inputs = make_inputs(problem, seed, arch)
    found = compute_reference(problem, inputs, arch)
    config = make_config(quant=quant, block=(64, 128, 128), dtype_c="fp32")
    limit = compute_tolerance(config, problem, inputs, found, arch)["c"].limit
    of_torch = multiply_groups(problem, inputs, gpu).numpy()
    assert (np.abs(of_torch - found["c"]) <= limit).all()
    if seed == 0:
        assert not limit.any()
    for name, axis in itertools.product({"scale_a", "scale_b"} & set(inputs), (0, 1)):
        moved = compute_reference(problem, {**inputs, name: np.roll(inputs[name], 1, axis)}, arch)
        assert (np.abs(moved["c"] - found["c"]) > limit).mean() > 0.5


def test_tensors_of_groups() -> None:
    problem = make_problem(quant="b128x128", n=200, k=272)
    tensors = {tensor.name: (tensor.shape, tensor.strides) for tensor in list_tensors(problem)}
    assert list(tensors) == ["a", "b", "scale_b", "c"]
    assert tensors["scale_b"] == ((3, 2), (1, 3))
    assert {tensor.shape for tensor in list_tensors(make_problem(quant="b1x128"))} >= {(1, 48)}
    assert problem.bytes_moved == 33 * 272 + 272 * 200 + 3 * 2 * 4 + 33 * 200 * 2
    of_both = make_problem(quant="a1x128_b128x128", n=200, k=272)
    tensors = {tensor.name: (tensor.shape, tensor.strides) for tensor in list_tensors(of_both)}
    assert list(tensors) == ["a", "b", "scale_a", "scale_b", "c"]
    assert (tensors["scale_a"], tensors["scale_b"]) == (((33, 3), (3, 1)), ((3, 2), (1, 3)))
    assert of_both.bytes_moved == problem.bytes_moved + 33 * 3 * 4
    assert [tensor.name for tensor in list_tensors(make_problem(quant="a1x128"))] == ["a", "b", "scale_a", "c"]


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950", "gfx1201"])
def test_trials_reach_the_edges(gpu: str, layout: str) -> None:
    arch = archs.load(gpu)
    padded = {"pad_m": True, "pad_n": True, "pad_k": True}
    config = make_config(layout=layout, mma=(16, 16, 16) if gpu == "gfx1201" else (32, 32, 16), **padded)
    trials = list_trials(config, arch)
    assert len(trials) > 12
    assert min(trial.k for trial in trials) < config.block.k and min(trial.n for trial in trials) < config.block.n
    assert {trial.m % config.block.m == 0 for trial in trials} == {True, False}
    assert any(trial.stride_c > trial.n for trial in trials)


def test_tensors_and_strides() -> None:
    problem = make_problem(layout="ccr")
    shapes = {tensor.name: tensor.shape for tensor in list_tensors(problem)}
    assert shapes == {"a": (33, 64), "b": (64, 48), "scale_a": (33,), "scale_b": (48,), "c": (33, 48)}
    changed = apply_strides(problem, {"a": (1, 40), "b": (1, 80), "c": (64, 1)})
    assert (changed.stride_a, changed.stride_b, changed.stride_c) == (40, 80, 64)
    single = {tensor.name: tensor.shape for tensor in list_tensors(make_problem(quant="tensor"))}
    assert single["scale_a"] == single["scale_b"] == (1,)
    with pytest.raises(InvalidValueError, match="the problem's layout requires"):
        apply_strides(problem, {"a": (64, 1)})
