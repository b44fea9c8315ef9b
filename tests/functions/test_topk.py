"""`topk_softmax` and `topk_sigmoid` on an emulated device, against torch's operators on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.routing_kernels import ARCH, SOFTMAX, make_topk
from tilewright.base.errors import InvalidValueError, TensorError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile
DEVICE = f"emulated:{ARCH}"


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


def test_experts_without_any_probability_are_chosen_last_and_exist() -> None:
    x = np.full((2, 10), -np.inf, np.float32)
    x[:, 7] = 0
    x[1, 2] = -1000  # its probability is 0 in fp32
    weights, indices = tw.topk_softmax(x, 3)
    np.testing.assert_array_equal(indices, [[7, 0, 1], [7, 0, 1]])
    np.testing.assert_array_equal(weights, [[1, 0, 0], [1, 0, 0]])


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
    x = torch.tensor(draw(33, 128)).to({"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]).requires_grad_()
    with tw.options(pool=(kernel,)), twt.emulate(ARCH):
        weights, indices = twt.topk_sigmoid(x, 8)
    # Halves round some of the logits to the same number: the order of torch.sort is that of indices, if it is stable.
    wanted, places = torch.sort(torch.sigmoid(x.double()), dim=-1, descending=True, stable=True)
    assert torch.equal(indices.long(), places[:, :8])
    torch.testing.assert_close(weights.double(), wanted[:, :8], rtol=1e-6, atol=0)
    (found,) = torch.autograd.grad(weights.sum(), x)
    assert found.dtype == x.dtype and int((found != 0).sum()) == 33 * 8
