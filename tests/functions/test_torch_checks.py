"""torch's own checks of every operator: schema, autograd, fake tensors, and tracing with fixed and symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from built_kernels import built
from tests.functions.attention_kernels import get_kernels
from tests.functions.grouped_kernels import POOL as GROUPED
from tests.functions.grouped_kernels import QUANTIZER
from tests.functions.grouped_kernels import SCALED as SCALED_GROUPS
from tests.functions.kernels import POOL
from tests.functions.norm_kernels import POOL as NORMS
from tests.functions.routing_kernels import SOFTMAX, SORTING
from tests.functions.scaled_kernels import POOL as SCALED
from tests.functions.test_conv import POOLS
from tests.functions.test_torch_operators import GRADIENT_KERNELS, draw, use
from tests.functions.test_torch_varlen import PACKED_KERNELS, find_starts
from tilewright.ops import parse_kernel

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402, F401  (registers the operators)

pytestmark = pytest.mark.compile
_ND1 = (
    "grouped_conv-gfx942-backward_weight-nd1-fp16-fp16-fp32-fp16-b32x16x32-w2x1x1-i16x16x32-compv4-intrawave-default-"
)
_ND3 = "fp32-fp32-fp32-fp32-b32x64x16-w1x4x1-i16x16x16-compv3-intrawave-cshuffle-v2x4x1"
LINES = [*POOLS["gfx942"], parse_kernel(f"{_ND1}v8x8x1-bpc2-b95734efdfc8")]
VOLUMES = [
    *POOLS["gfx90a"],
    parse_kernel(f"grouped_conv-gfx90a-backward_data-nd3-{_ND3}-682d758bb174"),
    parse_kernel(f"grouped_conv-gfx90a-backward_weight-nd3-{_ND3}-c50d089273ba"),
]
CACHE = get_kernels("split", "combine", "combine_lse")
PAGES = get_kernels("paged", "combine", "combine_lse")
# The seeds, and the sizes of queries and of pages of keys and values.
PAGED_SHAPES = ((1, 2, 1), (2, 4, 64), (3, 4, 64))


def draw_float(seed: int, *shape: int) -> Any:
    return draw(seed, *shape).detach().float().requires_grad_()


def transpose(tensor: Any, *places: int) -> Any:
    """The same values, with dimensions in another order in memory."""
    return tensor.detach().transpose(*places).contiguous().transpose(*places).requires_grad_()


def detach(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors without gradients: those of gradients are errors."""
    return tuple(each.detach() if isinstance(each, torch.Tensor) else each for each in tensors)


def make_lines() -> tuple[Any, ...]:
    return draw(1, 2, 16, 30), draw(2, 16, 16, 3, scale=0.2), draw(3, 16)


def make_volumes() -> tuple[Any, ...]:
    return draw_float(1, 2, 4, 5, 4, 6), draw_float(2, 8, 4, 3, 1, 3), draw_float(3, 8)


def make_attention(*, packed: bool = False, swapped: bool = False) -> tuple[Any, ...]:
    shapes = ((25, 2, 64), (40, 1, 64), (40, 1, 64)) if packed else ((1, 16, 4, 32), (1, 20, 2, 32), (1, 20, 2, 32))
    tensors = [draw(seed, *shape) for seed, shape in enumerate(shapes, 1)]
    if swapped:
        tensors = [transpose(tensor, 1, 2) for tensor in tensors]
    starts = (find_starts([5, 20]), find_starts([17, 23])) if packed else (None, None)
    longest = (20, 23) if packed else (0, 0)
    return *tensors, None, *starts, *longest, False, [-1, -1], None, 0.0, 0.0, 0, False


def make_attention_gradient(**kind: bool) -> tuple[Any, ...]:
    arguments = detach(make_attention(**kind))
    out, lse = torch.ops.tilewright.attention(*arguments)
    gradient = draw(7, *out.shape).detach().as_strided(out.shape, out.stride())
    return gradient, *arguments[:3], out, lse, *arguments[3:]


def make_cached_attention() -> tuple[Any, ...]:
    q, k_cache, v_cache = (draw(seed, 2, tokens, 2, 64).detach() for seed, tokens in ((1, 2), (2, 64), (3, 64)))
    lengths = torch.tensor([9, 30], dtype=torch.int32)
    return q, k_cache, v_cache, lengths, None, None, True, [-1, -1], None, 0.0, 3


def make_paged_attention() -> tuple[Any, ...]:
    q, k_cache, v_cache = (draw(seed, count, tokens, 2, 64).detach() for seed, count, tokens in PAGED_SHAPES)
    lengths, table = torch.tensor([70, 30], dtype=torch.int32), torch.tensor([[3, 0], [2, 1]], dtype=torch.int32)
    return q, k_cache, v_cache, lengths, table, None, True, [-1, -1], None, 0.0, 2


FP8 = torch.float8_e4m3fnuz  # of gfx942


def make_scaled() -> tuple[Any, ...]:
    a, b = (draw(seed, lines, 32).detach().to(FP8) for seed, lines in ((1, 6), (2, 8)))
    scales = (torch.linspace(0.5, 2, lines).reshape(shape) for lines, shape in ((6, (6, 1)), (8, (1, 8))))
    return a, b.t(), *scales, torch.bfloat16


def make_grouped() -> tuple[Any, ...]:
    """Without gradients: those of groups need kernels of other layouts, which are `deep`."""
    tokens, weights = (draw(seed, *shape).detach().bfloat16() for seed, shape in ((1, (6, 16)), (2, (2, 8, 16))))
    return tokens, weights.transpose(-2, -1), torch.tensor([2, 6], dtype=torch.int32), torch.bfloat16


def make_scaled_groups() -> tuple[Any, ...]:
    tokens, weights = (draw(seed, *shape).detach().to(FP8) for seed, shape in ((1, (6, 16)), (2, (2, 8, 16))))
    scales = torch.linspace(0.5, 2, 6), torch.linspace(0.5, 2, 16).reshape(2, 8)
    return tokens, weights.transpose(-2, -1), *scales, torch.tensor([2, 6], dtype=torch.int32), torch.bfloat16


def make_pairs() -> tuple[Any, ...]:
    ids = torch.tensor([[0, 3], [2, 0], [3, 1]], dtype=torch.int32)
    return ids, torch.linspace(0.1, 0.6, 6).reshape(3, 2), None, 4, 1


def make_conv_gradient(of: str, ndim: int) -> tuple[Any, ...]:
    images, filters, _ = detach(make_lines() if ndim == 1 else make_volumes())
    options = ([1] * ndim, [1] * ndim, [1] * ndim, 1)
    out = getattr(torch.nn.functional, f"conv{ndim}d")(images.double(), filters.double(), None, *options)
    gradient = draw(7, *out.shape).detach().to(images.dtype)
    if of == "input":
        return gradient, filters, list(images.shape), *options
    return images, gradient, list(filters.shape), *options


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@dataclass(frozen=True)
class Case:
    """Arguments of an operator, and the kernels that it needs."""

    operator: str
    kernels: Any
    make_arguments: Callable[[], tuple[Any, ...]]
    checks: tuple[str, ...] = CHECKS


BATCHES, PACKED = get_kernels(*GRADIENT_KERNELS), get_kernels(*PACKED_KERNELS)
CASES = {
    "linear": Case("linear", POOL, lambda: (draw_float(1, 6, 20), draw_float(2, 8, 20), draw_float(3, 8), "silu")),
    "linear of strided tensors": Case(
        "linear",
        POOL,
        lambda: (transpose(draw_float(1, 6, 20), 0, 1), transpose(draw_float(2, 8, 20), 0, 1), None, None),
    ),
    "mm": Case("mm", POOL, lambda: (draw_float(1, 6, 20), draw_float(2, 20, 8))),
    "bmm": Case("bmm", POOL, lambda: (draw_float(1, 3, 6, 20), draw_float(2, 3, 20, 8))),
    "conv1d": Case("conv1d", LINES, lambda: (*make_lines(), [2], [1], [1], 1)),
    "conv2d": Case(
        "conv2d", LINES, lambda: (draw(1, 2, 16, 7, 6), draw(2, 16, 16, 3, 3), draw(3, 16), [2, 1], [1, 1], [1, 1], 1)
    ),
    "conv3d": Case("conv3d", VOLUMES, lambda: (*make_volumes(), [1, 2, 1], [1, 0, 1], [1, 1, 1], 1)),
    **{
        f"conv_{of}_gradient in {ndim} dimensions": Case(
            f"conv_{of}_gradient",
            LINES if ndim == 1 else VOLUMES,
            lambda of=of, ndim=ndim: make_conv_gradient(of, ndim),
        )
        for of in ("input", "weight")
        for ndim in (1, 3)
    },
    # The check of the schema multiplies the arguments, which torch cannot do with 8-bit floats.
    "scaled_mm": Case("scaled_mm", SCALED, make_scaled, CHECKS[1:]),
    "grouped_mm": Case("grouped_mm", GROUPED, make_grouped),
    "scaled_grouped_mm": Case("scaled_grouped_mm", (SCALED_GROUPS,), make_scaled_groups, CHECKS[1:]),
    "quantize_rows": Case("quantize_rows", (QUANTIZER,), lambda: (draw(1, 6, 20).detach().bfloat16(), FP8), CHECKS[1:]),
    "topk": Case("topk", (SOFTMAX,), lambda: (draw_float(1, 6, 20), 3, "softmax")),
    "sort_by_expert": Case("sort_by_expert", (SORTING,), make_pairs),
    "rms_norm": Case("rms_norm", NORMS, lambda: (draw_float(1, 6, 20), [20], draw_float(2, 20), 1e-6)),
    "rms_norm of strided tensors": Case(
        "rms_norm", NORMS, lambda: (transpose(draw_float(1, 6, 20), 0, 1), [20], None, 1e-6)
    ),
    "layer_norm": Case(
        "layer_norm",
        NORMS,
        lambda: (draw_float(1, 2, 3, 20), [3, 20], draw_float(2, 3, 20), draw_float(3, 3, 20), 1e-5),
    ),
    "attention": Case("attention", BATCHES, make_attention),
    "attention with heads first": Case("attention", BATCHES, lambda: make_attention(swapped=True)),
    "attention to packed sequences": Case("attention", PACKED, lambda: make_attention(packed=True)),
    "attention_gradient": Case("attention_gradient", BATCHES, make_attention_gradient),
    "attention_gradient with heads first": Case(
        "attention_gradient", BATCHES, lambda: make_attention_gradient(swapped=True)
    ),
    "attention_gradient of packed sequences": Case(
        "attention_gradient", PACKED, lambda: make_attention_gradient(packed=True)
    ),
    "cached_attention": Case("cached_attention", CACHE, make_cached_attention),
    "cached_attention of pages": Case("cached_attention", PAGES, make_paged_attention),
}


# Other layouts and dimensions of operators that CI checks without them.
DEEP = (
    *("linear of strided tensors", "rms_norm of strided tensors"),
    *("conv_input_gradient in 3 dimensions", "conv_weight_gradient in 1 dimensions"),
    *("attention with heads first", "attention_gradient with heads first", "cached_attention of pages"),
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.deep if name in DEEP else ()) for name in CASES])
def test_an_operator_passes_torchs_checks(name: str) -> None:
    case = CASES[name]
    built(case.kernels)
    with use(case.kernels):
        operator = getattr(torch.ops.tilewright, case.operator).default
        done = torch.library.opcheck(operator, case.make_arguments(), test_utils=case.checks)
    assert done == dict.fromkeys(case.checks, "SUCCESS")


def test_every_operator_is_checked() -> None:
    assert {case.operator for name, case in CASES.items() if name not in DEEP} == {c.operator for c in CASES.values()}
    names = torch._C._dispatch_get_all_op_names()
    registered = {name.partition("::")[2].partition(".")[0] for name in names if name.startswith("tilewright::")}
    assert registered == {case.operator for case in CASES.values()}
