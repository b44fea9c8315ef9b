"""`topk_softmax` and `topk_sigmoid` on an emulated device, against torch's operators on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.routing_kernels import ARCH, SOFTMAX, make_topk
from tilewright import topk
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops import parse_kernel

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile
DEVICE = f"emulated:{ARCH}"
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Kernels of CI's list: waves of 32 and 64 lanes, several rows of a lane, vectors.
EVERY_GPU = (
    "topk-gfx942-softmax-fp32-e64-m1-t64-v1-1fc08c9799d9",
    "topk-gfx942-sigmoid-bf16-e32-m4-t256-v1-4301c4df6c0e",
    "topk-gfx950-softmax-bf16-e16-m2-t512-v2-7a3e991a73ad",
    "topk-gfx950-sigmoid-fp16-e256-m1-t256-v4-add5820785f6",
    "topk-gfx1100-softmax-fp32-e256-m1-t128-v2-64ef4cd5f82b",
    "topk-gfx1100-sigmoid-bf16-e128-m2-t512-v1-db68e89879ef",
    "topk-gfx1201-softmax-fp16-e384-m1-t128-v1-ca633f5c1cee",
    "topk-gfx1201-sigmoid-fp32-e16-m4-t64-v2-4f90e005f562",
)


@pytest.fixture(autouse=True)
def _use_small_kernels() -> Iterator[None]:
    built([SOFTMAX])
    with tw.options(device=DEVICE, pool=(SOFTMAX,)):
        yield


def draw(*shape: int) -> Any:
    """Logits that are all different within a row, in random order."""
    generator = np.random.default_rng(list(shape))
    rows = [generator.permutation(shape[-1]) for _ in range(int(np.prod(shape[:-1])))]
    return (np.reshape(rows, shape) / 8 - 3).astype(np.float32)


@pytest.mark.parametrize(("shape", "k"), [((1, 64), 8), ((3, 64), 1), ((33, 60), 6), ((2, 2, 5), 5), ((4, 1), 1)])
def test_indices_are_exactly_torchs(shape: tuple[int, ...], k: int) -> None:
    x = draw(*shape)
    weights, indices = tw.topk_softmax(x, k)
    wanted, places = torch.topk(torch.softmax(torch.tensor(x, dtype=torch.float64), -1), k)
    assert indices.dtype == np.int32 and weights.dtype == np.float32
    np.testing.assert_array_equal(indices, places.numpy())
    np.testing.assert_allclose(weights, wanted.numpy(), rtol=1e-6)


def test_of_equal_logits_the_lower_index_is_first() -> None:
    x = np.zeros((3, 64), np.float32)
    x[1, 40:] = 1
    x[2, [3, 5, 60]] = 1, 2, 2
    _, indices = tw.topk_softmax(x, 4)
    np.testing.assert_array_equal(indices, [[0, 1, 2, 3], [40, 41, 42, 43], [5, 60, 3, 0]])


def test_logits_choose_where_weights_are_equal() -> None:
    x = np.full((2, 10), -np.inf, np.float32)
    x[:, 7] = 0
    x[1, 2] = -1000  # its probability is 0 in fp32
    weights, indices = tw.topk_softmax(x, 3)
    np.testing.assert_array_equal(indices, [[7, 0, 1], [7, 2, 0]])
    np.testing.assert_array_equal(weights, [[1, 0, 0], [1, 0, 0]])


def draw_any(generator: np.random.Generator, rows: int, experts: int) -> Any:
    """Rows of logits of any size, with few or many NaN, infinities, zeros of both signs, and equal numbers."""
    x = generator.standard_normal((rows, experts)) * generator.choice([1, 30, 200, 1e4], (rows, 1))
    x = np.where(generator.random((rows, 1)) < 0.3, np.round(x / 8), x)
    special = generator.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 18, 88.8, -104, 65504, -65504], x.shape)
    return np.where(generator.random(x.shape) < generator.choice([0, 0.05, 0.5, 1], (rows, 1)), special, x)


def check_against_torch(x: Any, k: int, activation: str, weights: Any, indices: Any) -> None:
    wide = x.double()
    order = torch.sort(wide, dim=-1, descending=True, stable=True)[1][:, :k]
    np.testing.assert_array_equal(indices, order)
    values = torch.softmax(wide, -1) if activation == "softmax" else torch.sigmoid(wide)
    # e^104 overflows: relative errors are up to 104 roundings of an exponent. Smaller weights may be 0.
    np.testing.assert_allclose(weights, values.gather(-1, order), rtol=2e-5, atol=2.0**-126)


@pytest.mark.parametrize("name", EVERY_GPU)
def test_any_logits_are_as_for_torch(name: str) -> None:
    kernel = parse_kernel(name)
    built([kernel])
    config, generator = kernel.config, np.random.default_rng(36)
    assert isinstance(config, topk.Config)
    select = tw.topk_softmax if config.activation == "softmax" else tw.topk_sigmoid
    with tw.options(device=f"emulated:{kernel.arch}", pool=(kernel,)):
        for experts in (config.experts, config.experts - config.vector, config.vector):
            x = torch.tensor(draw_any(generator, 33, experts)).to(DTYPES[config.dtype])
            k = int(generator.integers(1, min(experts, 16) + 1))
            weights, indices = select(x, k)
            check_against_torch(x, k, config.activation, weights, indices)


def test_views_arrays_for_results_and_no_tokens() -> None:
    wide = draw(6, 64)
    weights, indices = np.empty((6, 2), np.float32), np.empty((6, 2), np.int32)
    found = tw.topk_softmax(wide[:, 4:36], 2, out=(weights, indices))
    assert found[0] is weights and found[1] is indices
    np.testing.assert_array_equal(indices, np.argsort(-wide[:, 4:36], axis=1)[:, :2])
    assert [each.shape for each in tw.topk_softmax(draw(0, 64), 2)] == [(0, 2), (0, 2)]


def test_errors_tell_the_cause() -> None:
    with pytest.raises(TensorError, match="k is 65, must be 1 to 64"):
        tw.topk_softmax(draw(2, 64), 65)
    with pytest.raises(TensorError, match="x is int32"):
        tw.topk_softmax(np.zeros((2, 64), np.int32), 1)
    with pytest.raises(InvalidValueError, match="out has 1 arrays"):
        tw.topk_softmax(draw(2, 64), 1, out=np.empty((2, 1), np.float32))


def test_torch_operator_and_its_gradient() -> None:
    x = torch.tensor(draw(5, 64)).requires_grad_()
    with twt.emulate(ARCH):
        weights, indices = twt.topk_softmax(x, 4)
    wanted, places = torch.topk(torch.softmax(x, -1), 4)
    torch.testing.assert_close(weights, wanted, rtol=1e-6, atol=1e-7)
    assert torch.equal(indices.long(), places)
    factors = torch.arange(4.0)
    (found,) = torch.autograd.grad((weights * factors).sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad((wanted * factors).sum(), x)[0])
    with twt.emulate(ARCH), pytest.raises(TensorError, match="got k 65"):
        twt.topk_softmax(x, 65)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_sigmoid_of_halves(dtype: str) -> None:
    kernel = make_topk(activation="sigmoid", dtype=dtype, experts=128, vector=2)
    built([kernel])
    x = torch.tensor(draw(33, 128)).to(DTYPES[dtype]).requires_grad_()
    with tw.options(pool=(kernel,)), twt.emulate(ARCH):
        weights, indices = twt.topk_sigmoid(x, 8)
    # Halves round some of the logits to the same number: the order of torch.sort is that of indices, if it is stable.
    wanted, places = torch.sort(torch.sigmoid(x.double()), dim=-1, descending=True, stable=True)
    assert torch.equal(indices.long(), places[:, :8])
    torch.testing.assert_close(weights.double(), wanted[:, :8], rtol=1e-6, atol=0)
    (found,) = torch.autograd.grad(weights.sum(), x)
    assert found.dtype == x.dtype and int((found != 0).sum()) == 33 * 8
