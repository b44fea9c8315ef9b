"""`rms_norm`, `layer_norm` and `smooth_quantize` on an emulated device, against torch's operators on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.norm_kernels import ARCH, POOL
from tilewright.base.errors import InvalidValueError, TensorError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile
DEVICE = f"emulated:{ARCH}"


@pytest.fixture(autouse=True)
def _use_small_kernels() -> Iterator[None]:
    built(POOL)
    with tw.options(device=DEVICE, pool=POOL):
        yield


def draw(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(list(shape)).normal(size=shape).astype(dtype)


def compute_rms(x: Any, weight: Any, epsilon: float = 1e-6) -> Any:
    wide = torch.tensor(np.asarray(x, dtype=np.float64))
    factor = torch.tensor(np.asarray(weight, dtype=np.float64))
    return torch.nn.functional.rms_norm(wide, wide.shape[-1:], factor, epsilon).numpy()


@pytest.mark.parametrize("shape", [(5, 24), (24,), (2, 3, 33), (1, 512)])
def test_rms_norm_is_torchs(shape: tuple[int, ...]) -> None:
    x, weight = draw(*shape), draw(shape[-1])
    found = tw.rms_norm(x, weight)
    assert found.shape == shape and found.dtype == np.float32
    np.testing.assert_allclose(found, compute_rms(x, weight), rtol=1e-5, atol=1e-6)


def test_a_view_is_not_copied_and_a_transposed_array_is() -> None:
    wide, weight = draw(6, 40), draw(24)
    np.testing.assert_allclose(tw.rms_norm(wide[:, 3:27], weight), compute_rms(wide[:, 3:27], weight), rtol=1e-5)
    turned = draw(24, 6).T
    np.testing.assert_allclose(tw.rms_norm(turned, weight), compute_rms(turned, weight), rtol=1e-5)


def test_layer_norm_with_and_without_a_bias() -> None:
    x, weight, bias = draw(7, 48), draw(48), draw(48)
    wide = [torch.tensor(each, dtype=torch.float64) for each in (x, weight, bias)]
    wanted = torch.nn.functional.layer_norm(wide[0], (48,), wide[1], wide[2])
    np.testing.assert_allclose(tw.layer_norm(x, weight, bias), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(tw.layer_norm(x, weight), wanted - wide[2], rtol=1e-5, atol=1e-5)


def test_a_residual_and_a_quantised_result() -> None:
    x, residual, weight = (draw(*shape, dtype="float16") for shape in ((3, 1024), (3, 1024), (1024,)))
    y, total, scale = tw.rms_norm(x, weight, residual=residual, return_sum=True, quantize="int8")
    np.testing.assert_array_equal(total, (x.astype(np.float32) + residual).astype(np.float16))
    exact = compute_rms(x.astype(np.float64) + residual, weight)
    assert y.dtype == np.int8 and scale.shape == (3,)
    np.testing.assert_allclose(scale, np.abs(exact).max(axis=1) / 127, rtol=1e-5)
    off = exact / scale[:, None] - y
    assert np.abs(off).max() < 1.0001 and (off * exact >= -1e-3).all()  # towards zero


def test_an_array_for_the_result_and_empty_arrays() -> None:
    x, weight, out = draw(5, 24), draw(24), np.empty((5, 24), np.float32)
    assert tw.rms_norm(x, weight, out=out) is out
    np.testing.assert_allclose(out, compute_rms(x, weight), rtol=1e-5, atol=1e-6)
    assert tw.rms_norm(draw(0, 24), weight).shape == (0, 24)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"return_sum": True}, InvalidValueError, "return_sum needs a residual"),
        ({"smooth": draw(24)}, InvalidValueError, "smooth needs quantize"),
        ({"quantize": "int9"}, InvalidValueError, "int8"),
        ({"residual": draw(4, 24)}, TensorError, "residual has shape"),
        ({"out": (draw(5, 24), draw(5))}, InvalidValueError, "out has 2 arrays"),
    ],
)
def test_errors_tell_what_is_wrong(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        tw.rms_norm(draw(5, 24), draw(24), **options)


def test_torch_operators_and_their_gradients() -> None:
    x, weight, bias = (torch.tensor(draw(*shape)).requires_grad_() for shape in ((4, 3, 20), (20,), (20,)))
    for name, factors in (
        ("rms_norm", (weight,)),
        ("rms_norm", ()),
        ("layer_norm", (weight, bias)),
        ("layer_norm", ()),
    ):
        with twt.emulate(ARCH):
            found = getattr(twt, name)(x, (20,), *factors)
        wanted = getattr(torch.nn.functional, name)(x, (20,), *factors)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        for one, other in zip(
            torch.autograd.grad(found.square().sum(), (x, *factors)),
            torch.autograd.grad(wanted.square().sum(), (x, *factors)),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_torch_operators_refuse_other_shapes() -> None:
    with twt.emulate(ARCH), pytest.raises(TensorError, match="needs x with these last dimensions"):
        twt.rms_norm(torch.zeros(3, 20), (21,))
