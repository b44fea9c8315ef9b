"""Functions with a counterpart in torch have its parameters with its defaults, and compute the same without them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.functions.grouped_kernels import POOL as GROUPED
from tests.functions.kernels import POOL as PRODUCTS
from tests.functions.norm_kernels import HALF_RMS, LAYER
from tests.functions.test_tensor_kinds import BY_OPERATORS, DIRECT
from tests.functions.test_torch_checks import LINES, VOLUMES, draw_float
from tests.functions.test_torch_operators import draw, use
from tilewright.base.errors import InvalidValueError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)

F = torch.nn.functional
# A function of Python, or the operator behind one that is not.
COUNTERPARTS: dict[str, Any] = {
    "bmm": torch.ops.aten.bmm.default,
    "conv1d": torch.ops.aten.conv1d.default,
    "conv2d": torch.ops.aten.conv2d.default,
    "conv3d": torch.ops.aten.conv3d.default,
    "grouped_mm": torch.ops.aten._grouped_mm.default,
    "layer_norm": F.layer_norm,
    "linear": torch.ops.aten.linear.default,
    "mm": torch.ops.aten.mm.default,
    "rms_norm": F.rms_norm,
    "scaled_grouped_mm": torch.ops.aten._scaled_grouped_mm.default,
    "scaled_mm": torch.ops.aten._scaled_mm.default,
}
OWN = (
    *("attention", "cached_attention", "flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"),
    *("fused_moe", "mha_batch_prefill_func", "quantize_rows", "sort_by_expert", "topk_sigmoid", "topk_softmax"),
)


def list_defaults(function: Any) -> list[tuple[str, object]]:
    """The parameters with defaults, in order. One number for each dimension is one number."""
    if inspect.isfunction(function):
        found = [(each.name, each.default) for each in inspect.signature(function).parameters.values()]
        return [(name, default) for name, default in found if default is not inspect.Parameter.empty]
    given = [(each.name, each.default_value) for each in function._schema.arguments if each.has_default_value()]
    return [(name, value[0] if isinstance(value, list) else value) for name, value in given]


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_defaults_are_torchs(name: str) -> None:
    wanted = list_defaults(COUNTERPARTS[name])
    found = list_defaults(getattr(twt, name))
    assert found[: len(wanted)] == wanted
    assert [name for name, _ in found[len(wanted) :]] == (["activation"] if name == "linear" else [])


def test_every_function_has_a_counterpart_or_is_listed() -> None:
    assert {*COUNTERPARTS, *OWN} == {*DIRECT, *BY_OPERATORS}


def test_modules_have_torchs_parameters() -> None:
    for name in ("Conv1d", "Conv2d", "Conv3d", "Linear"):
        wanted = inspect.signature(getattr(torch.nn, name)).parameters
        found = inspect.signature(getattr(twt, name)).parameters
        assert {key: found[key].default for key in wanted} == {key: each.default for key, each in wanted.items()}
        assert set(found) - set(wanted) == ({"activation"} if name == "Linear" else set())


def make_groups() -> tuple[Any, ...]:
    tokens, weights = draw(1, 6, 16).bfloat16(), draw(2, 2, 8, 16).bfloat16()
    return tokens, weights.transpose(-2, -1), torch.tensor([2, 6], dtype=torch.int32)


# Kernels, arguments without a default, and torch's function. Rows of a norm are so small that its epsilon counts.
CALLS: dict[str, tuple[Any, Any, Any]] = {
    "bmm": (PRODUCTS, lambda: (draw_float(1, 3, 6, 20), draw_float(2, 3, 20, 8)), torch.bmm),
    "conv1d": (LINES, lambda: (draw(1, 2, 16, 30), draw(2, 16, 16, 3, scale=0.2)), F.conv1d),
    "conv2d": (LINES, lambda: (draw(1, 2, 16, 7, 6), draw(2, 16, 16, 3, 3, scale=0.2)), F.conv2d),
    "conv3d": (VOLUMES, lambda: (draw_float(1, 2, 4, 5, 4, 6), draw_float(2, 8, 4, 3, 1, 3)), F.conv3d),
    "grouped_mm": (GROUPED, make_groups, torch._grouped_mm),
    "layer_norm": ((LAYER,), lambda: (draw_float(1, 6, 20) * 0.002, [20]), F.layer_norm),
    "linear": (PRODUCTS, lambda: (draw_float(1, 6, 20), draw_float(2, 8, 20)), F.linear),
    "mm": (PRODUCTS, lambda: (draw_float(1, 6, 20), draw_float(2, 20, 8)), torch.mm),
    "rms_norm": ((HALF_RMS,), lambda: (draw(1, 3, 512, scale=0.001), [512]), F.rms_norm),
}
# Relative to the largest value: two roundings.
TOLERANCES = {torch.float32: 2**-18, torch.float16: 2**-9, torch.bfloat16: 2**-6}


@pytest.mark.compile
@pytest.mark.parametrize("name", CALLS)
def test_results_without_options_are_torchs(name: str) -> None:
    kernels, make_arguments, compute = CALLS[name]
    with torch.no_grad(), use(kernels):
        found, wanted = getattr(twt, name)(*make_arguments()), compute(*make_arguments())
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert (found.double() - wanted.double()).abs().max() <= TOLERANCES[found.dtype] * wanted.double().abs().max()


def test_types_of_results_that_kernels_lack_are_errors() -> None:
    """Without out_dtype, `torch._scaled_mm` returns the 8-bit type of its operands."""
    matrix, one = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(())
    assert torch._scaled_mm(matrix, matrix.t(), one, one).dtype == torch.float8_e4m3fn
    with twt.emulate("gfx950"), pytest.raises(InvalidValueError, match="pass out_dtype"):
        twt.scaled_mm(matrix, matrix.t(), one, one)
