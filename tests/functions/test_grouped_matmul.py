"""`grouped_matmul` and the torch operator on an emulated device, against torch's grouped product on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.grouped_kernels import ARCH, POOL, SCALED, make_grouped, make_scaled
from tilewright import grouped_gemm
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.dispatch.tensors import to_view
from tilewright.functions.device_copies import run_padded
from tilewright.functions.kernel_choice import prepare_registry
from tilewright.functions.options import get_options

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile
GROUPS, SIZE, N, K = 4, 56, 40, 48  # SIZE: of the divided dimension
# Ends of groups: with empty ones, of one line, and all in one group.
ENDS = {
    "empty": [0, 17, 17, SIZE],
    "one": [1, 2, 40, SIZE],
    "first": [SIZE, SIZE, SIZE, SIZE],
    "last": [0, 0, 0, SIZE],
    "none": [0, 0, 0, 0],
}
FORMS = ("2d3d", "3d2d", "2d2d", "3d3d")


@pytest.fixture(autouse=True)
def _use_small_kernels() -> Iterator[None]:
    built(POOL)
    with tw.options(device=f"emulated:{ARCH}", pool=POOL):
        yield


def draw(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def make_operands(form: str) -> tuple[Any, Any]:
    if form == "2d3d":
        return draw(SIZE, K), draw(GROUPS, N, K).transpose(-2, -1)
    if form == "3d2d":
        return draw(GROUPS, N, K), draw(SIZE, K).t()
    if form == "2d2d":
        return draw(SIZE, N).t(), draw(SIZE, K)
    return draw(GROUPS, SIZE, K), draw(GROUPS, N, K).transpose(-2, -1)


def multiply_groups(a: Any, b: Any, ends: list[int] | None) -> Any:
    """The product in float64, group by group; 0 for elements of no group."""
    left, right = a.double(), b.double()
    if ends is None:
        return left @ right
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    if a.dim() == b.dim() == 2:
        return torch.stack([left[:, part] @ right[part] for part in parts])
    c = torch.zeros(a.shape[-2], b.shape[-1], dtype=torch.float64)
    for group, part in enumerate(parts):
        if a.dim() == 2:
            c[part] = left[part] @ right[group]
        else:
            c[:, part] = left[group] @ right[:, part]
    return c


def compare(found: Any, exact: Any) -> None:
    """bf16 is truncated or rounded: one step of 2**-8."""
    assert found.shape == exact.shape
    assert ((found.double() - exact).abs() <= exact.abs() * 2.0**-7 + 1e-4).all()


@pytest.mark.parametrize("ends", list(ENDS.values()), ids=list(ENDS))
@pytest.mark.parametrize("form", FORMS)
def test_the_products_are_torchs(form: str, ends: list[int]) -> None:
    if form == "3d3d" and ends is not ENDS["empty"]:
        pytest.skip("all groups have the same sizes")
    given = None if form == "3d3d" else ends
    offs = None if given is None else torch.tensor(given, dtype=torch.int32)
    a, b = make_operands(form)
    exact = multiply_groups(a, b, given)
    with twt.emulate(ARCH):
        found = twt.grouped_mm(a, b, offs)
    compare(found, exact)
    if form == "3d2d" and ends is ENDS["one"]:
        return  # torch's product on the CPU needs offsets that are multiples of 8
    of_torch = torch._grouped_mm(a, b, offs=offs)
    inside = exact != 0  # torch does not store what belongs to no group
    torch.testing.assert_close(found[inside], of_torch[inside], rtol=2.0**-6, atol=1e-3)


@pytest.mark.parametrize(("n", "k"), [(40, 2), (5, 48), (31, 33), (1, 1), (3, 7)])
@pytest.mark.parametrize("form", FORMS)
def test_odd_sizes_are_padded(form: str, n: int, k: int) -> None:
    """Those that are not ragged, in C and in the operands: m is `n` where columns or terms are ragged."""
    ends = None if form == "3d3d" else [0, 17, 18, 23]
    a, b = {
        "2d3d": (draw(23, k), draw(4, n, k).transpose(-1, -2)),
        "3d2d": (draw(4, n, k), draw(k, 23)),
        "2d2d": (draw(n, 23), draw(23, k)),
        "3d3d": (draw(4, 11, k), draw(4, n, k).transpose(-1, -2)),
    }[form]
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    compare(tw.grouped_matmul(a, b, offs), multiply_groups(a, b, ends))


def test_tensors_of_a_gpu_are_padded_by_torch() -> None:
    """It does the same for tensors in host memory."""
    device = tw.Device(f"emulated:{ARCH}")
    problem = grouped_gemm.Problem(m=23, n=5, k=31, groups=4, ragged="m", dtype="bf16", layout="rcr")
    registry = prepare_registry(problem, device, get_options())
    padded = registry.plan(problem, device, pad=True).launched
    assert (padded.m, padded.n, padded.k) == (23, 5, 32)  # the default epilogue stores single elements
    a, b, ends = draw(23, 31), draw(4, 5, 31).transpose(-1, -2), [0, 17, 18, 23]
    offs, out = torch.tensor(ends, dtype=torch.int32), torch.empty(23, 5, dtype=torch.bfloat16)
    run_padded(registry, padded, [to_view(each) for each in (a, b, offs)], [to_view(out)], None, device)
    compare(out, multiply_groups(a, b, ends))


def test_arrays_of_other_layouts_are_copied() -> None:
    offs = torch.tensor(ENDS["empty"], dtype=torch.int32)
    for form in FORMS[:3]:
        a, b = make_operands(form)
        moved = [each.contiguous().transpose(-1, -2).contiguous().transpose(-1, -2) for each in (a, b)]
        given = {"2d3d": (moved[0], b), "3d2d": (a, b.contiguous()), "2d2d": (a.contiguous(), moved[1])}[form]
        compare(tw.grouped_matmul(*given, offs), multiply_groups(a, b, ENDS["empty"]))


def test_views_and_an_array_for_the_result() -> None:
    wide, offs = draw(SIZE, 2 * K), torch.tensor([[end, 0] for end in ENDS["empty"]], dtype=torch.int32)[:, 0]
    weight, out = draw(GROUPS, N, 2 * K)[..., :K], torch.zeros((SIZE, 2 * N), dtype=torch.bfloat16)
    view = out[:, :N]
    assert tw.grouped_matmul(wide[:, :K], weight.transpose(-1, -2), offs, out=view) is view
    compare(view, multiply_groups(wide[:, :K], weight.transpose(-1, -2), ENDS["empty"]))
    assert not out[:, N:].any()


@pytest.mark.parametrize("form", ["2d3d", "3d2d"])
def test_elements_behind_the_last_group_are_zero(form: str) -> None:
    a, b = make_operands(form)
    ends = [3, 9, 9, 20]
    compare(tw.grouped_matmul(a, b, torch.tensor(ends, dtype=torch.int32)), multiply_groups(a, b, ends))


def test_wrong_ends_do_not_lead_outside_of_the_arrays() -> None:
    a, b = make_operands("2d3d")
    offs = torch.tensor([-5, 30, 10, 4 * SIZE], dtype=torch.int32)
    found = tw.grouped_matmul(a, b, offs)
    # A group that ends before its beginning is empty, and the last one begins where the one before it ends.
    exact = multiply_groups(a, b, [0, 30, 30, SIZE])
    compare(found[:10], exact[:10])
    compare(found[30:], exact[30:])


def test_the_gradient_of_weights_is_a_product_of_another_form() -> None:
    a, b = make_operands("2d3d")
    weights, ends = b.detach().requires_grad_(), [8, 8, 31, SIZE]
    with twt.emulate(ARCH):
        result = twt.grouped_mm(a, weights, torch.tensor(ends, dtype=torch.int32))
        gradient = draw(*result.shape)
        result.backward(gradient)
    wide = b.double().requires_grad_()
    multiply_groups(a, wide, ends).backward(gradient.double())
    compare(weights.grad, wide.grad)


@pytest.mark.deep
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_products_of_other_forms(form: str) -> None:
    pool = (*POOL, make_grouped(layout="rrr"), make_grouped(layout="ccr", epilogue="default"))
    built(pool)
    a, b = (each.detach().requires_grad_() for each in make_operands(form))
    ends = None if form == "3d3d" else [8, 8, 32, SIZE]
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    with twt.emulate(ARCH), tw.options(pool=pool):
        result = twt.grouped_mm(a, b, offs)
        gradient = draw(*result.shape)
        result.backward(gradient)
    wide = [each.detach().double().requires_grad_() for each in (a, b)]
    multiply_groups(*wide, ends).backward(gradient.double())
    compare(a.grad, wide[0].grad)
    compare(b.grad, wide[1].grad)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"offs": None}, TensorError, "offs must have the end of each group"),
        ({"offs": torch.zeros(GROUPS)}, TensorError, "must be a vector of int32"),
        ({"offs": torch.zeros(3, dtype=torch.int32)}, TensorError, "the numbers of groups are"),
        ({"a": torch.ones(SIZE, K)}, TensorError, "kernels need the same type"),
        ({"b": draw(GROUPS, K + 8, N)}, TensorError, "columns of a need"),
        ({"b": draw(K)}, TensorError, "2 or 3 dimensions"),
        ({"out_dtype": "int8"}, InvalidValueError, "fp16, bf16, fp32"),
    ],
)
def test_errors_tell_what_is_wrong(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    a, b = make_operands("2d3d")
    values = {"a": a, "b": b, "offs": torch.tensor(ENDS["one"], dtype=torch.int32)}
    with pytest.raises(error, match=said):
        tw.grouped_matmul(**{**values, **changes})


def test_an_empty_product() -> None:
    offs = torch.zeros(GROUPS, dtype=torch.int32)
    assert tw.grouped_matmul(draw(0, K), draw(GROUPS, K, N), offs).shape == (0, N)
    assert not tw.grouped_matmul(draw(SIZE, 0), draw(0, N), offs).any()


def test_the_torch_operator_has_a_fake_form_and_refuses_what_it_lacks() -> None:
    a, b = make_operands("2d2d")
    offs = torch.tensor(ENDS["one"], dtype=torch.int32)
    with pytest.raises(InvalidValueError, match="no bias"):
        twt.grouped_mm(a, b, offs, bias=torch.ones(N))
    with twt.emulate(ARCH), pytest.raises(TensorError, match="needs offs"):
        twt.grouped_mm(a, b)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(each) for each in (a, b, offs)]
        result = twt.grouped_mm(*fake, out_dtype=torch.float32)
    assert result.shape == (GROUPS, N, K) and result.dtype == torch.float32


FP8 = torch.float8_e4m3fnuz  # gfx942 has another encoding than OCP's
SCALED_FORMS = {"2d3d": ((SIZE,), (GROUPS, N)), "3d3d": ((GROUPS, SIZE), (GROUPS, N))}


def make_scaled_operands(form: str) -> tuple[Any, ...]:
    shape_a, shape_b = ((GROUPS, N), (GROUPS, K)) if form == "2d2d" else SCALED_FORMS[form]
    generator = torch.Generator().manual_seed(3)
    scales = (2.0 ** torch.rand(shape, generator=generator) for shape in (shape_a, shape_b))
    return *(each.to(FP8) for each in make_operands(form)), *scales


def multiply_scaled(a: Any, b: Any, scale_a: Any, scale_b: Any, ends: list[int] | None) -> Any:
    """The product in float64 of operands that are multiplied by their scales."""
    if a.dim() == b.dim() == 2:
        exact = multiply_groups(a, b, ends)
        return exact * scale_a.double()[..., None] * scale_b.double()[:, None]
    return multiply_groups(a.double() * scale_a.double()[..., None], b.double() * scale_b.double()[:, None], ends)


@pytest.mark.parametrize("ends", list(ENDS.values()), ids=list(ENDS))
def test_products_with_scales(ends: list[int]) -> None:
    built([SCALED])
    operands = make_scaled_operands("2d3d")
    with twt.emulate(ARCH), tw.options(pool=[SCALED]):
        found = twt.scaled_grouped_mm(*operands, torch.tensor(ends, dtype=torch.int32))
        assert found.dtype == torch.bfloat16
        compare(found, multiply_scaled(*operands, ends))
        if ends is ENDS["empty"]:
            stacked = make_scaled_operands("3d3d")
            compare(twt.scaled_grouped_mm(*stacked), multiply_scaled(*stacked, None))


@pytest.mark.deep
def test_scales_of_products_whose_terms_are_divided() -> None:
    kernel = make_scaled(layout="crr", pad_m=True)
    built([kernel])
    a, b, scale_a, scale_b = make_scaled_operands("2d2d")
    for ends in ENDS.values():
        offs = torch.tensor(ends, dtype=torch.int32)
        with twt.emulate(ARCH), tw.options(pool=[kernel]):
            found = twt.scaled_grouped_mm(a, b, scale_a.flatten(), scale_b.flatten(), offs)  # vectors, as in torch
        compare(found, multiply_scaled(a, b, scale_a, scale_b, ends))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale_a": None}, "scale_a must be given"),
        ({"scale_b": torch.ones(GROUPS, N + 1)}, "must be float32 of shape"),
        ({"scale_b": torch.ones(GROUPS, N).half()}, "must be float32 of shape"),
        ({"a": draw(SIZE, K), "b": draw(GROUPS, K, N)}, "leave scale_a and scale_b out"),
        ({"a": draw(GROUPS, SIZE, K).to(FP8), "b": draw(K, N).to(FP8)}, "do not divide columns"),
    ],
)
def test_errors_of_scales(changes: dict[str, Any], said: str) -> None:
    a, b, scale_a, scale_b = make_scaled_operands("2d3d")
    values = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "offs": torch.tensor(ENDS["one"]).int()}
    with pytest.raises(TensorError, match=said):
        tw.grouped_matmul(**{**values, **changes})


def test_the_torch_operator_with_scales_refuses_what_it_lacks() -> None:
    operands = make_scaled_operands("2d3d")
    with pytest.raises(InvalidValueError, match="neither bias nor scale_result"):
        twt.scaled_grouped_mm(*operands, torch.tensor(ENDS["one"]).int(), bias=torch.ones(N))
