"""The reference of norms against torch's operators on the CPU, and the tolerance against wrong and right results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ci_kernels import read_samples
from tilewright import arch as archs
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.norm.config import Config
from tilewright.ops.norm.problem import Problem, apply_strides, list_tensors
from tilewright.ops.norm.reference import compute_reference, compute_tolerance, list_trials, make_inputs
from tilewright.ops.norm.rules import RULES
from tilewright.ops.rule import is_legal

torch = pytest.importorskip("torch")
NORM = find_op("norm")
GPU = archs.load("gfx942")
DTYPES = ("fp32", "fp16", "bf16")
# OCP's fp8 and that of CDNA 3; CK Tile quantises to int8 symmetrically.
LARGEST = {"int8": 127.0, "fp8_fnuz": 240.0, "fp8_ocp": 448.0}
SAMPLE = [kernel for expected, kernel in read_samples() if expected == "computes" and kernel.op == NORM.name]


def make_config(**fields: Any) -> Config:
    values = {"kind": "rms", "dtype": "fp16", "rows": 1, "columns": 1024, "threads": 64, "vector": 4, "pad": True}
    return Config(**{**values, **fields, "dtype_y": fields.get("dtype_y", fields.get("dtype", "fp16"))})


def to_torch(values: Any) -> Any:
    return torch.tensor(np.asarray(values, dtype=np.float64))


def normalize(problem: Problem, inputs: dict[str, Any]) -> Any:
    """The result before quantisation, by torch in float64."""
    given = {name: to_torch(values) for name, values in inputs.items()}
    x = given["x"] + given.get("residual", 0)
    epsilon = float(np.float32(problem.epsilon))
    if problem.kind == "smoothquant":
        return x * given["smooth"]
    if problem.kind == "rms":
        y = torch.nn.functional.rms_norm(x, x.shape[1:], given["weight"], epsilon)
    else:
        y = torch.nn.functional.layer_norm(x, x.shape[1:], given["weight"], given["bias"], epsilon)
    return y * given.get("smooth", 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("residual", ["none", "store"])
@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_reference_is_torchs(kind: str, residual: str, dtype: str, seed: int) -> None:
    problem = Problem(
        kind=kind, rows=5, columns=96, dtype=dtype, dtype_y=dtype, residual=residual, save=True, epsilon=0.01
    )
    inputs = make_inputs(problem, seed, GPU)
    found = compute_reference(problem, inputs, GPU)
    np.testing.assert_allclose(found["y"], normalize(problem, inputs), rtol=1e-12, atol=1e-12)
    total = np.asarray(inputs["x"], np.float64) + np.asarray(inputs.get("residual", 0), np.float64)
    if residual == "store":
        np.testing.assert_array_equal(found["sum"], total)
    if kind == "layer":
        *_, mean, rstd = torch.native_layer_norm(to_torch(total), [96], None, None, float(np.float32(0.01)))
        np.testing.assert_allclose(found["mean"], mean[:, 0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found["rstd"], rstd[:, 0], rtol=1e-12)


@pytest.mark.parametrize("dtype_y", ["int8", "fp8"])
@pytest.mark.parametrize(("kind", "quant"), [("rms", "dynamic"), ("layer", "smooth"), ("smoothquant", "smooth")])
@pytest.mark.parametrize("gpu", ["gfx942", "gfx950"])
def test_quantised_rows_use_the_whole_range(kind: str, quant: str, dtype_y: str, gpu: str) -> None:
    arch = archs.load(gpu)
    problem = Problem(kind=kind, rows=7, columns=64, dtype="bf16", quant=quant, dtype_y=dtype_y)
    inputs = make_inputs(problem, 3, arch)
    found = compute_reference(problem, inputs, arch)
    exact, largest = normalize(problem, inputs).numpy(), LARGEST[arch.resolve_dtype(dtype_y)]
    np.testing.assert_allclose(found["scale"], np.abs(exact).max(axis=1) / largest, rtol=1e-12)
    off = np.abs(found["y"] * found["scale"][:, None] - exact)
    assert (off <= found["scale"][:, None] * (1 if dtype_y == "int8" else 1e-9)).all()
    assert np.abs(found["y"]).max() >= largest - 1


@pytest.mark.parametrize("kernel", SAMPLE, ids=lambda kernel: kernel.slug)
def test_reference_and_torch_agree_on_the_trials_of_every_kernel(kernel: Kernel) -> None:
    """Kernels are compared with the reference on these inputs. So torch's results are those that they must have."""
    arch, config = archs.load(kernel.arch), kernel.config
    assert isinstance(config, Config)
    for problem in list_trials(config, arch):
        inputs = make_inputs(problem, 1, arch)
        found = compute_reference(problem, inputs, arch)
        y = normalize(problem, inputs).numpy()
        if problem.quant == "none":
            np.testing.assert_allclose(found["y"], y, rtol=1e-11, atol=1e-11)
            continue
        largest = LARGEST[arch.resolve_dtype(problem.dtype_y)]
        scale = np.abs(y).max(axis=1, keepdims=True) / largest
        np.testing.assert_allclose(found["scale"], scale[:, 0], rtol=1e-11)
        exact = y / scale
        if problem.dtype_y == "int8":
            near = np.abs(exact - np.rint(exact)) < 1e-9  # rounding of float64 decides
            np.testing.assert_array_equal(found["y"][~near], np.trunc(exact)[~near])
            assert np.abs(found["y"] - exact)[near].max(initial=0) < 1 + 1e-9
            assert near.mean() < 0.5
        else:
            np.testing.assert_allclose(found["y"], exact, rtol=1e-10, atol=1e-10)


def test_a_row_of_zeros_stays_zero() -> None:
    problem = Problem(kind="rms", rows=1, columns=8, dtype="fp16", quant="dynamic", dtype_y="int8")
    inputs = {"x": np.zeros((1, 8), np.float16), "weight": np.ones(8, np.float16)}
    found = compute_reference(problem, inputs, GPU)
    assert not found["y"].any() and found["scale"] == 0
    assert np.isfinite(compute_tolerance(make_config(), problem, inputs, found, GPU)["y"].limit).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_fp32_results_are_within_the_limit_and_coarser_ones_are_not(kind: str, dtype: str) -> None:
    problem = Problem(kind=kind, rows=16, columns=1000, dtype=dtype, dtype_y=dtype, save=True)
    inputs = make_inputs(problem, 1, GPU)
    reference = compute_reference(problem, inputs, GPU)
    limit = compute_tolerance(make_config(kind=kind, dtype=dtype), problem, inputs, reference, GPU)["rstd"].limit
    x = np.asarray(inputs["x"], np.float32)
    centred = x - (x.mean(axis=1, keepdims=True) if kind == "layer" else np.float32(0))
    right = 1 / np.sqrt((centred * centred).mean(axis=1) + np.float32(problem.epsilon))
    assert (np.abs(right - reference["rstd"]) <= limit).all()
    coarse = right.astype(np.float16).astype(np.float64)
    assert (np.abs(coarse - reference["rstd"]) > limit).any()
    one_less = 1 / np.sqrt((centred[:, 1:] ** 2).sum(axis=1) / 1000 + np.float32(problem.epsilon))
    assert (np.abs(one_less - reference["rstd"]) > limit).any()


def test_int8_is_exact_but_where_an_integer_is_near() -> None:
    problem = Problem(kind="rms", rows=16, columns=1000, dtype="fp16", quant="dynamic", dtype_y="int8")
    inputs = make_inputs(problem, 1, GPU)
    reference = compute_reference(problem, inputs, GPU)
    limit = compute_tolerance(make_config(dtype_y="int8"), problem, inputs, reference, GPU)["y"].limit
    assert set(np.unique(limit)) == {0, 1}
    assert limit.mean() < 0.01
    assert (limit[np.abs(reference["y"]) >= 126.5].all()) or (np.abs(reference["y"]).max() < 127)


@pytest.mark.parametrize("gpu", ["gfx90a", "gfx1100"])
def test_trials_are_supported_and_reach_the_edges(gpu: str) -> None:
    arch = archs.load(gpu)
    for two_pass in (False, True):
        config = make_config(two_pass=two_pass, rows=2)
        assert is_legal(RULES, config, arch)
        columns = [trial.columns for trial in list_trials(config, arch)]
        assert min(columns) == config.vector and max(columns) > (2 * config.columns if two_pass else config.columns - 1)


def test_strides_of_tensors_become_those_of_the_problem() -> None:
    problem = Problem(kind="rms", rows=3, columns=8, dtype="fp16", dtype_y="fp16", residual="store")
    changed = apply_strides(problem, {"x": (16, 1), "sum": (9, 1)})
    assert (changed.stride_x, changed.stride_residual, changed.stride_sum) == (16, 8, 9)
    assert [tensor.strides[0] for tensor in list_tensors(changed) if tensor.name in ("x", "sum")] == [16, 9]
