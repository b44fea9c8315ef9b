"""`scaled_matmul` and the torch operator on an emulated device, against torch's scaled product on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tests.functions.scaled_kernels import ARCH, BOTH, POOL
from tilewright.base.errors import InvalidValueError, TensorError, UnsupportedError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402
from torch_products import multiply_scaled  # noqa: E402

pytestmark = pytest.mark.compile
FP8 = torch.float8_e4m3fnuz
M, N, K = 37, 72, 144
SEED = 36_2026


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
    of_torch = multiply_scaled(a, b, scale_a, scale_b, torch.bfloat16)
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
        found.append(twt.scaled_mm(a, b, None, scale_b, out_dtype=torch.bfloat16))
    for each in found:
        assert each.dtype == torch.bfloat16
        assert ((each.double() - exact).abs() <= exact.abs() * 2.0**-7 + 1e-4).all()


# The strides in which frameworks hand over scales of groups. vLLM's activations have K contiguous, or M for its
# CUTLASS kernels. `torch._scaled_mm` requires M contiguous for 1 x 128 elements, and for 128 x 128 elements K
# contiguous, in newer versions with lines of a multiple of four scales (aten/src/ATen/native/cuda/ScaledBlas.cpp).
def lay_out_rows(scale: Any, order: str) -> Any:
    """Scales of rows of a, (m, groups)."""
    return scale if order == "vllm" else scale.t().contiguous().t()


def lay_out_blocks(of_weights: Any, order: str) -> Any:
    """Scales of blocks of b, (groups, n / 128), from those of the weights."""
    if order != "torch":
        return of_weights.t()
    lines, groups = of_weights.shape
    padded = torch.full((lines, -(-groups // 4) * 4), float("nan"))
    padded[:, :groups] = of_weights
    return padded[:, :groups].t()


def check_groups(a: Any, b: Any, scale_a: Any, scale_b: Any) -> None:
    """`scaled_matmul` and the operator, compared with double and with the sum of torch's products of groups."""
    k, n = b.shape
    of_a = scale_a.repeat_interleave(128, 1)[:, :k]
    of_b = torch.ones(k, n) if scale_b is None else expand_groups(scale_b, 128, n, k)
    exact = (a.double() * of_a.double()) @ (b.double() * of_b.double())
    of_torch = sum(
        multiply_scaled(
            a[:, at : at + 128],
            b[at : at + 128],
            of_a[:, at : at + 1].contiguous(),
            of_b[at : at + 1].contiguous(),
            torch.float32,
        )
        for at in range(0, k, 128)
    )
    found = [tw.scaled_matmul(a, b, scale_a, scale_b)]
    with twt.emulate(ARCH):
        found.append(twt.scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16))
    for each in found:
        assert each.dtype == torch.bfloat16
        assert ((each.double() - exact).abs() <= exact.abs() * 2.0**-7 + 1e-4).all()
        torch.testing.assert_close(each.float(), of_torch, rtol=2.0**-7, atol=1e-3)


@pytest.mark.parametrize("order", ["vllm", "torch"])
def test_scales_of_groups_of_a(order: str) -> None:
    n, k = 72, 272
    check_groups(draw(M, k), draw(n, k).t(), lay_out_rows(draw_scales(M, 3), order), None)


@pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)
@pytest.mark.parametrize("order", ["vllm", "torch"])
@pytest.mark.parametrize("k", [272, 128])
def test_scales_of_groups_of_a_and_b(order: str, k: int) -> None:
    """DeepSeek's scales. For one group along K, those of A have the shape of scales of rows."""
    n, groups = 200, -(-k // 128)
    scale_a, scale_b = lay_out_rows(draw_scales(M, groups), order), lay_out_blocks(draw_scales(2, groups), order)
    with use_tree(TREES / NEWER), tw.options(device=f"emulated:{ARCH}", pool=(BOTH,)):
        check_groups(draw(M, k), draw(n, k).t(), scale_a, scale_b)


def test_scales_of_groups_of_a_and_b_without_a_kernel_for_them() -> None:
    """The headers of 2025-11 have no such kernel: rule P346."""
    with pytest.raises(UnsupportedError, match=r"supports Problem.*quant=a1x128_b128x128"):
        tw.scaled_matmul(draw(M, K), draw(N, K).t(), draw_scales(M, 2), draw_scales(2, 1))


@pytest.mark.parametrize("count", [6, pytest.param(300, marks=pytest.mark.deep)])
@pytest.mark.parametrize("quant", ["tensor", "rowcol", "b128x128", "b1x128", "a1x128"])
def test_random_products(quant: str, count: int) -> None:
    for number in range(count):
        random, generator = Random(f"{SEED} {quant} {number}"), torch.Generator().manual_seed(SEED + number)
        m, n, k = random.randint(1, 80), 8 * random.randint(1, 40), 16 * random.randint(1, 30)
        gap = 16 * random.randrange(3)
        a, weight = (torch.randn((lines, k + gap), generator=generator).to(FP8)[:, :k] for lines in (m, n))
        scales = {
            "tensor": (1, 1),
            "rowcol": ((m, 1), (1, n)),
            "b128x128": (None, (-(-k // 128), -(-n // 128))),
            "b1x128": (None, (-(-k // 128), n)),
            "a1x128": ((m, -(-k // 128)), None),
        }[quant]
        scale_a, scale_b = (None if shape is None else torch.rand(shape, generator=generator) + 0.1 for shape in scales)
        found = tw.scaled_matmul(a, weight.t(), scale_a, scale_b)
        of_a = torch.ones(1, 1) if scale_a is None else scale_a
        of_b = torch.ones(1, 1) if scale_b is None else scale_b
        if quant[0] == "b":
            of_b = expand_groups(scale_b, 1 if quant == "b1x128" else 128, n, k)
        if quant[0] == "a":
            of_a = of_a.repeat_interleave(128, 1)[:, :k]
        left, right = a.double() * of_a.double(), weight.t().double() * of_b.double()
        exact, size = left @ right, left.abs() @ right.abs()
        wrong = (found.double() - exact).abs() > exact.abs() * 2.0**-7 + size * 2.0**-20
        assert not wrong.any(), f"{int(wrong.sum())} wrong: call {number}, {(m, n, k)}"


def test_the_shape_of_groups_is_checked() -> None:
    with pytest.raises(TensorError, match=r"must be one for each group along k of a row: \(37, 2\)"):
        tw.scaled_matmul(draw(M, K), draw(N, K).t(), torch.ones(M, 3), None)
    with pytest.raises(TensorError, match=r"with scales of groups of a it must be one for each group: \(2, 1\)"):
        tw.scaled_matmul(draw(M, K), draw(N, K).t(), torch.ones(M, 2), torch.ones(2, N))
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
        twt.scaled_mm(a, a, one, one, out_dtype=torch.bfloat16)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(each) for each in (a, b, one, one)]
        result = twt.scaled_mm(*fake, out_dtype=torch.float16)
    assert result.shape == (M, N) and result.dtype == torch.float16
