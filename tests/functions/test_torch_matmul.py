"""The operators of `tilewright.torch` for products: gradients, `torch.compile`, `torch.export`, autocast, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw
from tests.functions.kernels import ARCH, POOL
from tilewright.base.errors import DeviceError, TensorError, UnknownValueError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = pytest.mark.compile


@pytest.fixture(autouse=True)
def _emulate() -> Iterator[None]:
    with tw.options(pool=POOL), twt.emulate(ARCH):
        yield


def draw(*shape: int, grad: bool = True) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).requires_grad_(grad)


def transpose(tensor: Any) -> Any:
    return tensor.detach().mT.contiguous().mT.requires_grad_()


LINEAR = {
    "vector": (draw(20), draw(8, 20), draw(8), None),
    "matrix": (draw(6, 20), draw(8, 20), None, None),
    "bias": (draw(6, 20), draw(8, 20), draw(8), None),
    "three dimensions": (draw(2, 3, 20), draw(8, 20), draw(8), None),
    "strided input": (transpose(draw(6, 20)), draw(8, 20), None, None),
    "strided weight": (draw(6, 20), transpose(draw(8, 20)), None, None),
    "relu": (draw(6, 20), draw(8, 20), draw(8), "relu"),
    "silu": (draw(6, 20), draw(8, 20), draw(8), "silu"),
    "silu without bias": (draw(6, 20), draw(8, 20), None, "silu"),
}


def compare_gradients(found: Any, wanted: Any, inputs: list[Any]) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(7))
    mine = torch.autograd.grad(found, inputs, weights)
    theirs = torch.autograd.grad(wanted, inputs, weights)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LINEAR)
def test_linear_and_its_gradients_are_torchs(name: str) -> None:
    x, weight, bias, activation = LINEAR[name]
    functional = torch.nn.functional
    wanted = functional.linear(x, weight, bias)
    wanted = {"relu": functional.relu, "silu": functional.silu, None: lambda y: y}[activation](wanted)
    inputs = [tensor for tensor in (x, weight, bias) if tensor is not None]
    compare_gradients(twt.linear(x, weight, bias, activation), wanted, inputs)


SIZES = [(6, 20, 8), (33, 17, 5), (1, 8, 1), (2, 2, 2), (31, 32, 33), (64, 16, 40), (5, 1, 7), (1, 50, 3)]


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_mm_and_its_gradients_are_torchs(m: int, k: int, n: int, strided: bool) -> None:
    a, b = draw(m, k), draw(k, n)
    a, b = (transpose(a), transpose(b)) if strided else (a, b)
    compare_gradients(twt.mm(a, b), a @ b, [a, b])


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_linear_of_every_size(m: int, k: int, n: int) -> None:
    x, weight, bias = draw(2, m, k), draw(n, k), draw(n)
    compare_gradients(twt.linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias), [x, weight, bias])


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_bmm_and_its_gradients_are_torchs(m: int, k: int, n: int) -> None:
    a, b = draw(3, m, k), draw(3, k, n)
    compare_gradients(twt.bmm(a, b), torch.bmm(a, b), [a, b])


class Network(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Every operator once."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = twt.Linear(20, 8, activation="silu")
        self.second = twt.Linear(8, 4, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        return twt.bmm(y, y.mT), twt.mm(self.second(y)[0], self.second.weight)


def test_compiled_and_exported_modules_compute_the_same() -> None:
    network, x = Network(), draw(3, 6, 20, grad=False)
    wanted = network(x)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")(x)
    exported = torch.export.export(network, (x,)).module()(x)
    for found in (compiled, exported):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    one, two = compiled
    (one.sum() + two.sum()).backward()
    assert network.first.weight.grad is not None


def test_a_torch_module_is_replaced_with_its_parameters() -> None:
    torch.manual_seed(4)
    layer = torch.nn.Linear(20, 8)
    mine = twt.Linear.from_torch(layer)
    x = draw(6, 20, grad=False)
    assert mine.weight is layer.weight
    torch.testing.assert_close(mine(x), layer(x), rtol=1e-5, atol=1e-5)


def test_autocast_selects_the_type() -> None:
    a, b = draw(6, 40, grad=False), draw(40, 8, grad=False)
    with torch.autocast("cpu", torch.bfloat16):
        found = twt.mm(a, b)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), a @ b, rtol=0.05, atol=0.2)


WRONG = {
    "features": (lambda: twt.linear(draw(6, 20), draw(8, 21)), TensorError, "20 features"),
    "weight": (lambda: twt.linear(draw(6, 20), draw(20)), TensorError, "weight \\(n, k\\)"),
    "bias": (lambda: twt.linear(draw(6, 20), draw(8, 20), draw(7)), TensorError, "must be \\(8,\\)"),
    "activation": (lambda: twt.linear(draw(6, 20), draw(8, 20), None, "swish"), UnknownValueError, "silu"),
    "types": (lambda: twt.mm(draw(6, 20), draw(20, 8).half()), TensorError, "one type"),
    "ranks": (lambda: twt.mm(draw(2, 6, 20), draw(20, 8)), TensorError, "2 dimensions"),
    "sizes": (lambda: twt.bmm(draw(2, 6, 20), draw(3, 20, 8)), TensorError, "cannot multiply"),
    "integers": (lambda: twt.mm(draw(4, 4).long(), draw(4, 4).long()), TensorError, "int64"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_one_error(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()


def test_host_tensors_need_an_emulated_device() -> None:
    import contextvars

    def run() -> None:
        with pytest.raises(DeviceError, match=r"tilewright\.torch\.emulate"):
            twt.mm(draw(4, 4), draw(4, 4))

    contextvars.Context().run(run)
    with pytest.raises(UnknownValueError, match="gfx942"), twt.emulate("gfx9999"):
        pass
