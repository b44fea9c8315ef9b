"""PyTorch's own attention functions on Tilewright's kernels, through `torch.nn.attention`.

torch of these tests has no GPU. PyTorch's operators for flash attention are called with tensors in host memory, for
which torch has none, so that a result can only come from the emulated device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.functions.attention_kernels import get_kernels
from tests.functions.test_torch_operators import GRADIENT_KERNELS, attend, compare, draw, use
from tests.functions.test_torch_varlen import PACKED_KERNELS, attend_each, find_starts
from tilewright.base.errors import DeviceError, InvalidValueError, UnsupportedError

torch = pytest.importorskip("torch")
from torch.nn import attention as torch_attention  # noqa: E402
from torch.nn.attention.varlen import varlen_attn  # noqa: E402

from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = pytest.mark.compile
aten = torch.ops.aten


@pytest.fixture
def _active() -> Iterator[None]:
    twt.register_flash_attention()
    torch_attention.activate_flash_attention_impl("tilewright")
    try:
        yield
    finally:
        torch_attention.restore_flash_attention_impl()


def draw_heads(seed: int, *shape: int) -> Any:
    """Values (batch, heads, seqlen, size), as PyTorch's attention takes them."""
    return draw(seed, *shape)


@pytest.mark.usefixtures("_active")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens_first", [False, True])
def test_scaled_dot_product_attention_and_its_gradients_are_torchs(causal: bool, tokens_first: bool) -> None:
    inputs = [draw_heads(seed, 2, heads, 24, 32) for seed, heads in ((1, 4), (2, 2), (3, 2))]
    if tokens_first:
        inputs = [each.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for each in inputs]
    references = [tensor.detach().double().requires_grad_() for tensor in inputs]
    with use(get_kernels(*GRADIENT_KERNELS)):
        found = aten._scaled_dot_product_flash_attention(*inputs, 0.0, causal)[0]
        assert found.stride() == inputs[0].stride()
        wanted = attend(*(tensor.transpose(1, 2) for tensor in references), causal=causal).transpose(1, 2)
        compare(found, wanted, inputs, references, 4e-3)


@pytest.mark.usefixtures("_active")
@pytest.mark.parametrize("causal", [False, True])
def test_varlen_attn_and_its_gradients_are_torchs(causal: bool) -> None:
    lengths = [5, 20, 11]
    inputs = [draw(seed, sum(lengths), 2, 64) for seed in (1, 2, 3)]
    references = [tensor.detach().double().requires_grad_() for tensor in inputs]
    starts = find_starts(lengths)
    window = (-1, 0) if causal else (-1, -1)
    with use(get_kernels(*PACKED_KERNELS)):
        found = varlen_attn(*inputs, starts, starts, 20, 20, window_size=window)
        compare(found, attend_each(*references, lengths, lengths, causal=causal), inputs, references, 4e-3)


@pytest.mark.usefixtures("_active")
def test_results_are_written_to_a_given_tensor() -> None:
    q, k, v = (draw(seed, 1, 40, 2, 32).detach() for seed in (1, 2, 3))
    out = torch.empty_like(q)
    with use(get_kernels("plain")):
        aten._flash_attention_forward_no_dropout_inplace(out, q, k, v, None, None, 40, 40, 0.0, False, False)
    assert (out.double() - attend(q.double(), k.double(), v.double())).abs().max() < 4e-3


@pytest.mark.usefixtures("_active")
def test_unsupported_arguments_are_errors() -> None:
    q = draw(1, 1, 2, 8, 32).detach()
    with use(get_kernels("plain")):
        with pytest.raises(InvalidValueError, match=r"dropout_p, which is 0\.5"):
            aten._scaled_dot_product_flash_attention(q, q, q, 0.5)
        with pytest.raises(InvalidValueError, match="block_table"):
            table = torch.zeros(1, 1, dtype=torch.int32)
            aten._flash_attention_forward(q, q, q, None, None, 8, 8, 0.0, False, False, block_table=table)
    with pytest.raises(DeviceError, match=r"tilewright\.torch\.emulate"):
        aten._scaled_dot_product_flash_attention(q, q, q)


def test_torchs_operators_are_restored() -> None:
    twt.register_flash_attention()
    assert "tilewright" in torch_attention.list_flash_attention_impls()
    torch_attention.activate_flash_attention_impl("tilewright")
    assert torch_attention.current_flash_attention_impl() == "tilewright"
    torch_attention.restore_flash_attention_impl()
    q = draw(1, 1, 2, 8, 32).detach()
    with use(get_kernels("plain")), pytest.raises(NotImplementedError, match="CPU"):
        aten._scaled_dot_product_flash_attention(q, q, q)


def test_an_older_torch_is_an_error_with_the_version_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch_attention, "register_flash_attention_impl")
    with pytest.raises(UnsupportedError, match=r"torch 2\.10"):
        twt.register_flash_attention()
