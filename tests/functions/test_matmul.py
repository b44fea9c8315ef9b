"""`matmul` on an emulated device: NumPy, torch, batches, strides, bias, activations, options."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
from tests.functions.kernels import ARCH, HALF, POOL, PRODUCTS
from tilewright.base.errors import DeviceError, TensorError, UnknownValueError, UnsupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.compile
DEVICE = f"emulated:{ARCH}"


@pytest.fixture(autouse=True)
def _use_small_kernels() -> Iterator[None]:
    with tw.options(device=DEVICE, pool=POOL):
        yield


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(list(shape)).integers(-4, 5, shape).astype(dtype)


PAIRS = {
    "odd sizes": (draw(37, 19), draw(19, 23)),
    "transposed weights": (draw(33, 20), draw(40, 20).T),
    "transposed a": (draw(20, 33).T, draw(20, 40)),
    "both transposed": (draw(20, 33).T, draw(40, 20).T),
    "part of a wider array": (draw(33, 64)[:, 3:23], draw(20, 50)[:, :40]),
    "every second": (draw(33, 40)[:, ::2], draw(20, 40)),
    "one weight for a batch": (draw(2, 3, 5, 20), draw(20, 8)),
    "batch": (draw(3, 17, 20), draw(3, 20, 9)),
    "broadcast batch": (draw(2, 1, 5, 20), draw(3, 20, 8)),
    "vector": (draw(20), draw(20, 8)),
    "by a vector": (draw(5, 20), draw(20)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_products_are_numpys(name: str) -> None:
    a, b = PAIRS[name]
    found = tw.matmul(a, b)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, a @ b)  # small integers are exact


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
@pytest.mark.parametrize("bias", [False, True])
def test_bias_and_activation_are_in_the_kernel(activation: str | None, bias: bool) -> None:
    a, b = draw(5, 20), draw(24, 20).T
    row = draw(24) if bias else None
    total = a @ b + (0 if row is None else row)
    wanted = {None: total, "relu": np.maximum(total, 0), "silu": total / (1 + np.exp(-total))}[activation]
    np.testing.assert_allclose(tw.matmul(a, b, bias=row, activation=activation), wanted, rtol=1e-6, atol=1e-6)


def test_torch_tensors_give_a_torch_tensor_and_may_be_parameters() -> None:
    x = torch.from_numpy(draw(7, 20))
    layer = torch.nn.Linear(20, 8)
    with torch.no_grad():
        found = tw.matmul(x, layer.weight.t(), bias=layer.bias)
        torch.testing.assert_close(found, layer(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(TensorError, match="requires a gradient"):
        tw.matmul(x, layer.weight.t())


def test_halves() -> None:
    a, b = draw(33, 40, dtype="float16"), draw(24, 40, dtype="float16").T
    np.testing.assert_array_equal(tw.matmul(a, b), a @ b)


def test_out_is_filled_in_any_layout() -> None:
    a, b = draw(5, 20), draw(20, 8)
    for out in (
        np.full((5, 8), np.nan, "float32"),
        np.full((8, 5), np.nan, "float32").T,
        np.zeros((5, 16), "float32")[:, ::2],
    ):
        assert tw.matmul(a, b, out=out) is out
        np.testing.assert_array_equal(out, a @ b)


def test_device_arrays_stay_on_the_device() -> None:
    device = tw.Device(DEVICE)
    a, b = draw(33, 20), draw(20, 40)
    views = []
    for array in (a, b):
        buffer = device.allocate(array.nbytes)
        buffer.copy_from(array)
        views.append(tw.view_on(buffer, array.shape, "fp32"))
    for _ in range(2):  # the second call takes the fast path
        found = tw.matmul(*views)
        result = np.empty((33, 40), "float32")
        found.owner.copy_to(result)
        np.testing.assert_array_equal(result, a @ b)


@pytest.mark.parametrize(("a", "b"), [((0, 4), (4, 3)), ((5, 0), (0, 3)), ((2, 0, 4), (4, 3))])
def test_empty_products(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(tw.matmul(draw(*a), draw(*b)), draw(*a) @ draw(*b))


def test_never_building_uses_the_store_only() -> None:
    a, b = draw(5, 20), draw(20, 8)
    with tw.options(build="never"):
        np.testing.assert_array_equal(tw.matmul(a, b), a @ b)
    missing = tw.gemm.config(**{**vars(PRODUCTS[0].config), "block": "16x16x16", "waves": "1x1x1"})
    with tw.options(build="never", pool=[missing]), pytest.raises(UnsupportedError, match="is in the store"):
        tw.matmul(a, draw(8, 20).T)


def test_the_first_use_of_a_kernel_can_be_verified() -> None:
    with tw.options(verify="first", pool=HALF):
        a, b = draw(8, 40, dtype="float16"), draw(24, 40, dtype="float16").T
        np.testing.assert_array_equal(tw.matmul(a, b), a @ b)


def test_warm_builds_for_problems() -> None:
    problem = tw.gemm.Problem(m=5, n=8, k=20, dtype="fp32", layout="rcr")
    assert tw.warm([problem], DEVICE) == (PRODUCTS[0],)


def test_wrong_uses() -> None:
    a, b = draw(5, 20), draw(20, 8)
    with pytest.raises(TensorError, match="a is float32, b is float16"):
        tw.matmul(a, b.astype("float16"))
    with pytest.raises(UnknownValueError, match="auto"), tw.options(build="always"):
        pass
    with pytest.raises(UnknownValueError, match="device"), tw.options(gpu="gfx942"):
        pass
    with tw.options(device=None), pytest.raises(DeviceError, match="no device is set"):
        tw.matmul(a, b)
    with pytest.raises(TensorError, match="is not a tensor"):
        tw.matmul([[1.0]], b)
