"""Gradients of gradients: for every operator, with another layer before it, they are right or an error."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.functions.grouped_kernels import make_grouped
from tests.functions.test_torch_checks import CASES, DEEP, detach
from tests.functions.test_torch_operators import use

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402, F401  (registers the operators)

pytestmark = pytest.mark.compile
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
F = torch.nn.functional


def compute_topk(x: Any, k: int, activation: str) -> Any:
    weights = torch.softmax(x, -1) if activation == "softmax" else torch.sigmoid(x)
    return weights.gather(-1, x.topk(k, -1).indices)


def multiply_groups(a: Any, b: Any, offs: Any, _: Any) -> Any:
    ends = [0, *offs.tolist()]
    return torch.cat([a[i:j] @ b[group] for group, (i, j) in enumerate(itertools.pairwise(ends))])


# torch's own functions for operators that are differentiable twice. All others must raise torch's error for an operator
# without a gradient: their gradients are operators, too.
REFERENCES: dict[str, Callable[..., Any]] = {
    "linear": lambda x, weight, bias, _: F.silu(F.linear(x, weight, bias)),
    "mm": torch.mm,
    "bmm": torch.bmm,
    "rms_norm": F.rms_norm,
    "layer_norm": F.layer_norm,
    "topk": compute_topk,
    "grouped_mm": multiply_groups,
}
# Kernels of other layouts, which CI does not build.
MORE_KERNELS = {"grouped_mm": (make_grouped(layout="rrr"), make_grouped(layout="ccr", epilogue="default"))}
# Relative to the norm of a gradient. A kernel truncates bf16, so each rounding may be 2^-8.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
NAMES = [name for name, case in CASES.items() if name not in DEEP]


def draw_quarters(seed: int, tensor: Any) -> Any:
    """Numbers from -0.75 to 0.75 in the shape and type of a tensor, exact in all types."""
    return (torch.randint(-3, 4, tensor.shape, generator=torch.Generator().manual_seed(seed)) / 4).to(tensor.dtype)


def compute_second_gradients(operator: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """The gradients of a penalty on the gradients of inputs. The layer before multiplies these by factors."""
    leaves = [each for each in arguments if isinstance(each, torch.Tensor) and each.requires_grad]
    factors = [(1 + draw_quarters(seed, each)).requires_grad_() for seed, each in enumerate(leaves)]
    scaled = iter([leaf * factor for leaf, factor in zip(leaves, factors, strict=True)])
    result = operator(*(next(scaled) if any(each is leaf for leaf in leaves) else each for each in arguments))
    results = result if isinstance(result, tuple | list) else [result]
    first = next(each for each in results if each.dtype in (*FLOATS, torch.float64))
    gradients = torch.autograd.grad((first * draw_quarters(9, first) * first).sum(), leaves, create_graph=True)
    penalty = sum(each.square().sum() for each in gradients)
    return list(torch.autograd.grad(penalty, factors))


def to_double(each: Any) -> Any:
    return each.detach().double().requires_grad_() if isinstance(each, torch.Tensor) and each.requires_grad else each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep if name in MORE_KERNELS else ()) for name in NAMES]
)
def test_gradients_of_gradients_are_right_or_an_error(name: str) -> None:
    case = CASES[name]
    with use([*case.kernels, *MORE_KERNELS.get(name, ())]):
        arguments = tuple(
            each.requires_grad_() if isinstance(each, torch.Tensor) and each.dtype in FLOATS else each
            for each in detach(case.make_arguments())
        )
        operator = getattr(torch.ops.tilewright, case.operator)
        if case.operator not in REFERENCES:
            with pytest.raises(RuntimeError, match="no autograd formula was registered"):
                compute_second_gradients(operator, arguments)
            return
        found = compute_second_gradients(operator, arguments)
    wanted = compute_second_gradients(REFERENCES[case.operator], tuple(map(to_double, arguments)))
    for one, other in zip(found, wanted, strict=True):
        assert other.norm() > 0
        assert (one.double() - other).norm() <= TOLERANCES[one.dtype] * other.norm()
