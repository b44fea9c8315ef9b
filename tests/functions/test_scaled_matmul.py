"""`scaled_matmul` and the torch operator on an emulated device, against torch's scaled product on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.scaled_kernels import ARCH, POOL
from tilewright.base.errors import InvalidValueError, TensorError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile
FP8 = torch.float8_e4m3fnuz
M, N, K = 37, 72, 144


@pytest.fixture(autouse=True)
def _use_small_kernels() -> Iterator[None]:
    built(POOL)
    with tw.options(device=f"emulated:{ARCH}", pool=POOL):
        yield


def draw(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(FP8)


def draw_scales(*shape: int) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(7)) + 0.25


def compare(found: Any, a: Any, b: Any, scale_a: Any, scale_b: Any) -> None:
    """bf16 is truncated or rounded: one step of 2**-8."""
    exact = (a.double() * scale_a.double()) @ (b.double() * scale_b.double())
    assert found.dtype == torch.bfloat16
    assert ((found.double() - exact).abs() <= exact.abs() * 2.0**-7 + 1e-4).all()
    of_torch = torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)
    torch.testing.assert_close(found, of_torch, rtol=2.0**-6, atol=1e-3)


@pytest.mark.parametrize(("rows", "columns"), [((), ()), ((M, 1), (1, N))], ids=["tensor", "rowcol"])
def test_the_product_is_torchs(rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    a, b, scale_a, scale_b = draw(M, K), draw(N, K).t(), draw_scales(*rows), draw_scales(*columns)
    compare(tw.scaled_matmul(a, b, scale_a, scale_b), a, b, scale_a, scale_b)
    with twt.emulate(ARCH):
        compare(twt.scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16), a, b, scale_a, scale_b)


def test_a_single_scale_is_repeated_for_all_columns() -> None:
    a, b, scale_a, scale_b = draw(M, K), draw(N, K).t(), draw_scales(M), torch.tensor([0.5])
    found = tw.scaled_matmul(a, b, scale_a, scale_b)
    compare(found, a, b, scale_a[:, None], scale_b.expand(1, N).contiguous())


def expand_groups(scale: Any, columns: int, n: int = N, k: int = K) -> Any:
    """The scale of each element of b, from those of its groups."""
    return scale.repeat_interleave(128, 0)[:k].repeat_interleave(columns, 1)[:, :n]


@pytest.mark.parametrize("columns", [1, 128])
@pytest.mark.parametrize("order", ["weights", "packed"])
def test_scales_of_groups_of_b(columns: int, order: str) -> None:
    n, k = 200, 272  # two groups of columns, the last of both kinds is not whole
    a, b = draw(M, k), draw(n, k).t()
    of_weights = draw_scales(-(-n // columns), 3)
    scale_b = of_weights.t() if order == "weights" else of_weights.t().contiguous()
    exact = a.double() @ (b.double() * expand_groups(scale_b, columns, n, k).double())
    found = [tw.scaled_matmul(a, b, None, scale_b)]
    with twt.emulate(ARCH):
        found.append(twt.scaled_mm(a, b, None, scale_b))
    for each in found:
        assert each.dtype == torch.bfloat16
        assert ((each.double() - exact).abs() <= exact.abs() * 2.0**-7 + 1e-4).all()


def test_the_shape_of_groups_is_checked() -> None:
    with pytest.raises(TensorError, match=r"one for each group: \(2, 72\) or \(2, 1\)"):
        tw.scaled_matmul(draw(M, K), draw(N, K).t(), None, torch.ones(3, 1))
    with pytest.raises(TensorError, match="scales are float32"):
        tw.scaled_matmul(draw(M, K), draw(N, K).t(), None, torch.ones((2, 1), dtype=torch.float64))


def test_views_and_an_array_for_the_result() -> None:
    wide, weight, out = draw(M, 2 * K), draw(N, K), torch.empty((M, 2 * N), dtype=torch.bfloat16)
    a, scale_a, scale_b = wide[:, :K], draw_scales(2 * M)[::2], draw_scales(N)
    view = out[:, :N]
    assert tw.scaled_matmul(a, weight.t(), scale_a, scale_b, out=view) is view
    compare(view, a, weight.t(), scale_a[:, None].contiguous(), scale_b[None, :])


def test_an_empty_product() -> None:
    one = torch.ones(1)
    assert tw.scaled_matmul(draw(0, K), draw(N, K).t(), one, one).shape == (0, N)
    assert not tw.scaled_matmul(draw(M, 0), draw(N, 0).t(), one, one).any()


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"scale_a": torch.ones(N)}, TensorError, "scale_a has shape"),
        ({"scale_b": torch.ones(1, dtype=torch.float16)}, TensorError, "scales are float32"),
        ({"a": torch.ones(M, K)}, TensorError, "must be a matrix of fp8 or bf8"),
        ({"b": draw(K, N)[1:]}, TensorError, "columns of a need"),
        ({"out_dtype": "int8"}, InvalidValueError, "fp16, bf16, fp32"),
    ],
)
def test_errors_tell_what_is_wrong(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    values = {"a": draw(M, K), "b": draw(N, K).t(), "scale_a": torch.ones(1), "scale_b": torch.ones(1)}
    with pytest.raises(error, match=said):
        tw.scaled_matmul(**{**values, **changes})


def test_the_torch_operator_has_a_fake_form_and_refuses_what_it_lacks() -> None:
    a, b, one = draw(M, K), draw(N, K).t(), torch.ones(1)
    with pytest.raises(InvalidValueError, match="neither bias nor scale_result"):
        twt.scaled_mm(a, b, one, one, bias=torch.ones(N))
    with twt.emulate(ARCH), pytest.raises(TensorError, match=r"needs a \(m, k\) and b"):
        twt.scaled_mm(a, a, one, one)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(each) for each in (a, b, one, one)]
        result = twt.scaled_mm(*fake, out_dtype=torch.float16)
    assert result.shape == (M, N) and result.dtype == torch.float16
