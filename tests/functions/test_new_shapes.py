"""New shapes: what a selection prepares is shared, so that symbolic shapes of torch.compile cost one selection each."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tests.functions.kernels import ARCH, PRODUCTS
from tilewright import gemm
from tilewright.arch import load
from tilewright.functions.kernel_choice import prepare_registries
from tilewright.functions.options import get_options
from tilewright.ops import find_op

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)


def make_problem(m: int) -> gemm.Problem:
    return gemm.Problem(m=m, n=64, k=64, dtype="fp32", layout="rcr")


@pytest.mark.compile
@pytest.mark.parametrize("build", ["auto", "never"])
def test_shapes_with_the_same_kernel_share_its_registry(build: str) -> None:
    with tw.options(pool=PRODUCTS, build=build):
        first, second = prepare_registries([make_problem(33), make_problem(47)], load(ARCH), get_options())
        (again,) = prepare_registries([make_problem(50)], load(ARCH), get_options())
    assert first is second is again
    assert len(first) == 1


def test_problems_with_the_same_fields_have_one_portfolio() -> None:
    portfolio = find_op("gemm").portfolio
    assert portfolio is not None
    first, second = (portfolio.list_kernels(make_problem(m), load(ARCH)) for m in (33, 4096))
    assert first is second
    other = portfolio.list_kernels(gemm.Problem(m=33, n=64, k=64, dtype="fp16", layout="rcr"), load(ARCH))
    assert set(other).isdisjoint(first)


@pytest.mark.compile
def test_symbolic_shapes_are_compiled_once() -> None:
    graphs: list[Any] = []

    def count(module: Any, _: Any) -> Any:
        graphs.append(module)
        return module

    weight = torch.randn(64, 32)
    compiled = torch.compile(lambda x: twt.linear(x, weight), dynamic=True, fullgraph=True, backend=count)
    with tw.options(pool=PRODUCTS), twt.emulate(ARCH):
        for m in (5, 33, 34, 70):
            x = torch.randn(m, 32)
            torch.testing.assert_close(compiled(x), x @ weight.mT, rtol=1e-4, atol=1e-4)
    assert len(graphs) == 1
