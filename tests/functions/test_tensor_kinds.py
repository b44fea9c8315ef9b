"""torch tensors whose memory does not hold their values: every function and every operator is right, or an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import tilewright as tw
from tests.functions.kernels import PRODUCTS
from tests.functions.test_torch_checks import CASES, DEEP, detach
from tests.functions.test_torch_operators import use
from tilewright.base.errors import TensorError, TilewrightError

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402  (needs torch)
from torch.autograd import forward_ad  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from tilewright import torch as twt  # noqa: E402

DEVICE = "emulated:gfx942"


def free(tensor: Any, kept: int = 0) -> Any:
    """A tensor of the same shape, of whose storage this number of bytes is left."""
    copy = tensor.clone()
    copy.untyped_storage().resize_(kept)
    return copy


@dataclass(frozen=True)
class Kind:
    """How to make such a tensor of a plain one, and a part of the error. Some kinds have no integers."""

    make: Callable[[Any], Any]
    message: str
    integers: bool = True


KINDS = {
    "pending negation": Kind(torch._neg_view, "pending negation"),
    "freed storage": Kind(free, "bytes of storage, and has 0"),
    "part of its storage": Kind(lambda plain: free(plain, 30), "bytes of storage, and has 30"),
    "zeros without memory": Kind(
        lambda plain: torch._efficientzerotensor(plain.shape, dtype=plain.dtype), "bytes of storage, and has 0"
    ),
    "FakeTensor": Kind(lambda plain: FakeTensorMode().from_tensor(plain), "FakeTensor is a torch tensor that computes"),
    "subclass": Kind(lambda plain: TwoTensor(plain, plain), "TwoTensor is a torch tensor that computes"),
    "functional tensor": Kind(torch._to_functional_tensor, "bytes of storage, and has 0"),
    "meta": Kind(lambda plain: plain.to("meta"), "on meta"),
    "sparse": Kind(lambda plain: plain.to_sparse(), "no memory that kernels can read"),
    "tangent": Kind(lambda plain: forward_ad.make_dual(plain, plain), "tangent", integers=False),
    "gradient": Kind(lambda plain: plain.clone().requires_grad_(), "requires a gradient", integers=False),
}

# Functions of `tilewright.torch` that call functions of arrays themselves, and those that call operators only, in which
# torch has resolved what is pending.
DIRECT = ("flash_attn_with_kvcache", "mha_batch_prefill_func")
BY_OPERATORS = (
    *("attention", "bmm", "cached_attention", "conv1d", "conv2d", "conv3d", "flash_attn_func", "fused_moe"),
    *("flash_attn_varlen_func", "grouped_mm", "layer_norm", "linear", "mm", "quantize_rows", "rms_norm"),
    *("scaled_grouped_mm", "scaled_mm", "sort_by_expert", "topk_sigmoid", "topk_softmax"),
)


def list_parameters(function: Any, annotation: str) -> list[str]:
    """The parameters that are tensors."""
    return [name for name, each in inspect.signature(function).parameters.items() if annotation in str(each.annotation)]


FUNCTIONS = {
    f"{module}.{name}": (getattr(owner, name), parameters)
    for module, owner, annotation, names in (("tw", tw, "Array", tw.__all__), ("twt", twt, "torch.Tensor", DIRECT))
    for name in names
    if inspect.isfunction(getattr(owner, name))
    for parameters in [list_parameters(getattr(owner, name), annotation)]
    if parameters
}
# What these need to reach their tensors: without new keys and values, flash_attn_with_kvcache calls an operator only.
NEEDED = {"twt.flash_attn_with_kvcache": ("k", "v", "cache_seqlens")}
# Arguments that are refused, whatever they are, and one that is passed to an operator.
SKIPPED = {
    "twt.flash_attn_with_kvcache": ("cache_batch_idx", "cache_leftpad", "alibi_slopes"),
    "twt.mha_batch_prefill_func": ("q_descale", "k_descale", "v_descale", "seqlen_k"),
}


@pytest.fixture(autouse=True)
def _use_emulated_device() -> Iterator[None]:
    with twt.emulate("gfx942"), tw.options(device=DEVICE, pool=(), build="never"), forward_ad.dual_level():
        yield


def make_plain(parameter: str) -> Any:
    return torch.ones(2, 2, 2, 2, dtype=torch.int32 if parameter == "cache_seqlens" else torch.float16)


def list_arguments() -> list[tuple[str, str]]:
    return [
        (name, parameter)
        for name, (_, parameters) in FUNCTIONS.items()
        for parameter in parameters
        if parameter not in SKIPPED.get(name, ())
    ]


@pytest.mark.parametrize(("name", "parameter"), list_arguments())
def test_functions_refuse_what_memory_does_not_hold(name: str, parameter: str) -> None:
    """No kernel is needed: tensors are read before anything else."""
    function, tensors = FUNCTIONS[name]
    given: dict[str, Any] = {}
    for each in inspect.signature(function).parameters.values():
        needed = each.default is inspect.Parameter.empty or each.name in NEEDED.get(name, ())
        if needed or each.name == parameter:
            given[each.name] = make_plain(each.name) if each.name in tensors else 1
    for kind in KINDS.values():
        plain = make_plain(parameter)
        if plain.is_floating_point() or kind.integers:
            with pytest.raises(TilewrightError, match=kind.message):
                function(**{**given, parameter: kind.make(plain)})


def test_every_function_of_tensors_is_listed() -> None:
    names = [name for name in twt.__all__ if inspect.isfunction(getattr(twt, name))]
    assert {name for name in names if list_parameters(getattr(twt, name), "torch.Tensor")} == {*DIRECT, *BY_OPERATORS}
    assert len([name for name in FUNCTIONS if name.startswith("tw.")]) >= 15


@pytest.mark.compile
def test_a_registry_refuses_what_memory_does_not_hold() -> None:
    registry = tw.build(PRODUCTS[:1])
    problem = tw.gemm.Problem(m=4, n=4, k=4, dtype="fp32", layout="rcr")
    plain = torch.ones(4, 4)
    for kind in KINDS.values():
        for place in range(3):
            a, b, out = (kind.make(plain) if index == place else plain.clone() for index in range(3))
            with pytest.raises(TensorError):
                registry.run(problem, a, b, out=out, device=DEVICE)


OPERATORS = [name for name in CASES if name not in DEEP and name == CASES[name].operator]


def change(arguments: tuple[Any, ...], make: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The arguments with other tensors for those that torch can compute with: 8-bit floats it cannot."""
    return tuple(
        make(each) if isinstance(each, torch.Tensor) and each.dtype in (torch.float16, torch.bfloat16, torch.float32)
        else each
        for each in arguments
    )  # fmt: skip


def to_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.compile
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_compute_what_is_pending(name: str) -> None:
    case = CASES[name]
    with use(case.kernels):
        arguments = detach(case.make_arguments())
        operator = getattr(torch.ops.tilewright, case.operator)
        wanted = to_list(operator(*arguments))
        negated = to_list(operator(*change(arguments, lambda each: torch._neg_view(-each))))
        wrapped = to_list(operator(*change(arguments, lambda each: TwoTensor(each, each))))
        for place, each in enumerate(arguments):
            if isinstance(each, torch.Tensor):
                # Operators that take a view of it first raise torch's own error.
                with pytest.raises((TensorError, RuntimeError), match=r"bytes of storage, and has 0|storage of size 0"):
                    operator(*arguments[:place], free(each), *arguments[place + 1 :])
    for want, one, other in zip(wanted, negated, wrapped, strict=True):
        for result in (one, other.a if isinstance(other, TwoTensor) else other):
            assert torch.equal(result.float().nan_to_num(7), want.float().nan_to_num(7))
