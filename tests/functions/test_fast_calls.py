"""Fast calls: later calls on device arrays, also of views of them, are one look-up and one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright as tw
from built_kernels import built
from tests.functions.kernels import ARCH, PRODUCTS
from tests.functions.test_conv import POOLS
from tilewright.functions import compute

pytestmark = pytest.mark.compile
DEVICE = tw.Device(f"emulated:{ARCH}")


def put(array: NDArray[Any], dtype: str) -> Any:
    buffer = DEVICE.allocate(array.nbytes)
    buffer.copy_from(array)
    return tw.view_on(buffer, array.shape, dtype)


def get(view: Any, like: NDArray[Any]) -> NDArray[Any]:
    found = np.empty_like(like)
    view.owner.copy_to(found)
    return found


def make_integers(seed: int, *shape: int, dtype: str) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


def test_a_batch_of_rows_is_viewed_as_one_matrix() -> None:
    b = make_integers(0, 32, 32, dtype="float32")
    known = len(compute._fast_calls)
    with tw.options(pool=PRODUCTS):
        for seed in (1, 2, 3):  # the first call prepares, later ones are fast, at other addresses
            a = make_integers(seed, 2, 16, 32, dtype="float32")
            out = put(np.zeros_like(a), "fp32")
            assert tw.matmul(put(a, "fp32"), put(b, "fp32"), out=out) is out
            np.testing.assert_array_equal(get(out, a), a @ b)
    assert len(compute._fast_calls) == known + 1


def test_convolutions_view_channels_as_groups() -> None:
    torch = pytest.importorskip("torch")
    built(POOLS[ARCH])
    weight = make_integers(0, 16, 3, 3, 16, dtype="float16")
    known = len(compute._fast_calls)
    with tw.options(pool=POOLS[ARCH], build="never"):
        for seed in (1, 2):
            images = make_integers(seed, 2, 5, 4, 16, dtype="float16")
            out = put(np.zeros((2, 3, 2, 16), "float16"), "fp16")
            tw.conv(put(images, "fp16"), put(weight, "fp16"), layout="channels_last", out=out)
            first = [torch.from_numpy(each.astype("float64")).permute(0, 3, 1, 2) for each in (images, weight)]
            wanted = torch.nn.functional.conv2d(*first).permute(0, 2, 3, 1).numpy()
            np.testing.assert_array_equal(get(out, np.empty((2, 3, 2, 16), "float16")), wanted)
    assert len(compute._fast_calls) == known + 1
