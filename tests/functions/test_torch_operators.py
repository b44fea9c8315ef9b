"""The operators of `tilewright.torch` for convolution and attention, and functions with flash-attn's signatures."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.attention_kernels import get_kernels
from tests.functions.test_conv import POOLS
from tilewright.base.errors import InvalidValueError, TensorError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = pytest.mark.compile
ARCH = "gfx942"


@contextmanager
def use(kernels: Any) -> Iterator[None]:
    built(kernels)
    with tw.options(pool=kernels, build="never"), twt.emulate(kernels[0].arch):
        yield


def draw(seed: int, *shape: int, scale: float = 1.0) -> Any:
    """Half-precision values that need a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator)).half().requires_grad_()


def compare(found: Any, wanted: Any, inputs: list[Any], references: list[Any], tolerance: float) -> None:
    """Compare results and gradients with those of double precision, relative to the largest value."""
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(9))
    mine = [found, *torch.autograd.grad(found, inputs, weights.to(found.dtype))]
    theirs = [wanted, *torch.autograd.grad(wanted, references, weights.double())]
    for one, other in zip(mine, theirs, strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= tolerance * other.abs().max()


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]] = [
    ((2, 16, 7, 6), (16, 16, 3, 3), False, {}),
    ((2, 16, 7, 6), (16, 16, 3, 3), True, {"stride": (2, 1), "padding": (1, 2)}),
    ((1, 8, 9, 8), (8, 8, 3, 2), True, {"dilation": 2, "padding": 1}),
    ((2, 16, 5, 5), (32, 8, 3, 3), False, {"groups": 2, "padding": "same"}),
    ((2, 8, 6, 5), (8, 8, 2, 4), False, {"padding": "same"}),
    ((1, 8, 5, 9), (16, 8, 1, 1), True, {}),
    ((3, 8, 6, 6), (8, 8, 5, 5), False, {"padding": 2}),
    ((1, 16, 8, 8), (16, 4, 3, 3), False, {"groups": 4, "padding": 1}),
    ((2, 8, 9, 9), (8, 8, 3, 3), False, {"stride": 3, "dilation": (1, 2)}),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("images", "filters", "has_bias", "options"), CONVOLUTIONS)
def test_convolutions_and_their_gradients_are_torchs(
    images: tuple[int, ...], filters: tuple[int, ...], has_bias: bool, options: dict[str, Any]
) -> None:
    inputs = [draw(1, *images), draw(2, *filters, scale=0.2), *([draw(3, filters[0])] if has_bias else [])]
    references = [tensor.detach().double().requires_grad_() for tensor in inputs]
    with use(POOLS[ARCH]):
        wanted = torch.nn.functional.conv2d(*references, **options)
        compare(twt.conv2d(*inputs, **options), wanted, inputs, references, 2e-3)


def attend(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
    """torch's attention, with a mask that is aligned to the last query and the last key."""
    heads = q.shape[2] // k.shape[2]
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k.repeat_interleave(heads, 2), v.repeat_interleave(heads, 2)))
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2]) if causal else None
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


LENGTHS = [(40, 40, 2, 2), (33, 70, 4, 2), (8, 64, 2, 1), (17, 17, 3, 1), (64, 65, 2, 2)]
GRADIENT_KERNELS = ("plain", "masked", "dot_do_o", "gradients", "masked_gradients", "convert_dq")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "keys", "heads", "kv_heads"), LENGTHS)
def test_attention_and_its_gradients_are_torchs(
    length: int, keys: int, heads: int, kv_heads: int, causal: bool
) -> None:
    inputs = [draw(1, 2, length, heads, 32), draw(2, 2, keys, kv_heads, 32), draw(3, 2, keys, kv_heads, 32)]
    references = [tensor.detach().double().requires_grad_() for tensor in inputs]
    with use(get_kernels(*GRADIENT_KERNELS)):
        wanted = attend(*references, causal=causal)
        compare(twt.attention(*inputs, causal=causal), wanted, inputs, references, 4e-3)


@pytest.mark.parametrize("window", [(-1, -1), (16, 0)])
def test_causal_attention_is_torchs(window: tuple[int, int]) -> None:
    q, k, v = (draw(seed, 1, 40, 2, 32).detach() for seed in (1, 2, 3))
    with use(get_kernels("masked")):
        found = twt.flash_attn_func(q, k, v, causal=True, window_size=window)
    wanted = attend(q.double(), k.double(), v.double(), causal=True)
    if window == (-1, -1):
        assert (found.double() - wanted).abs().max() < 4e-3
    else:
        assert (found[:, :16].double() - wanted[:, :16]).abs().max() < 4e-3
        assert (found[:, 24:].double() - wanted[:, 24:]).abs().max() > 1e-2


def test_packed_sequences() -> None:
    lengths = [5, 20, 11]
    q, k, v = (draw(seed, sum(lengths), 2, 64).detach() for seed in (1, 2, 3))
    ends = torch.tensor([0, 5, 25, 36], dtype=torch.int32)
    with use(get_kernels("packed")):
        found = twt.flash_attn_varlen_func(q, k, v, ends, ends, 20, 20, causal=True)
    for start, end in ((0, 5), (5, 25), (25, 36)):
        wanted = attend(*(tensor[None, start:end].double() for tensor in (q, k, v)), causal=True)
        assert (found[start:end].double() - wanted[0]).abs().max() < 4e-3


def test_a_cache_of_different_lengths() -> None:
    q = draw(1, 2, 2, 2, 64).detach()
    k_cache, v_cache = (draw(seed, 2, 64, 2, 64).detach() for seed in (4, 5))
    lengths = torch.tensor([9, 30], dtype=torch.int32)
    with use(get_kernels("split", "combine", "combine_lse")):
        found = twt.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths, causal=True, num_splits=3)
    for sequence, length in enumerate(lengths.tolist()):
        part = (q[sequence], k_cache[sequence, :length], v_cache[sequence, :length])
        wanted = attend(*(tensor[None].double() for tensor in part), causal=True)
        assert (found[sequence].double() - wanted[0]).abs().max() < 4e-3


class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A convolution and an attention."""

    def forward(self, images: Any, weight: Any, q: Any, k: Any, v: Any) -> Any:
        return twt.conv2d(images, weight, padding=1), twt.attention(q, k, v)


def test_compiled_and_exported_modules_compute_the_same() -> None:
    arguments = (draw(1, 2, 16, 7, 6), draw(2, 16, 16, 3, 3), *(draw(seed, 1, 16, 2, 32) for seed in (3, 4, 5)))
    plain = tuple(tensor.detach() for tensor in arguments)
    with use([*POOLS[ARCH], *get_kernels(*GRADIENT_KERNELS)]):
        wanted = Block()(*plain)
        compiled = torch.compile(Block(), fullgraph=True, backend="aot_eager")
        exported = torch.export.export(Block(), plain).module()
        for found in (compiled(*plain), exported(*plain)):
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0)
        one, two = compiled(*arguments)
        (one.float().sum() + two.float().sum()).backward()
    assert all(tensor.grad is not None for tensor in arguments)


# The parameters of flash-attn 2.8.3 with their defaults, from flash_attn/flash_attn_interface.py at the tag v2.8.3
# (commit 060c9188). They are the same at the tags v2.7.4 and v2.8.3.post1.
SIGNATURES = {
    "flash_attn_func": "q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
    "alibi_slopes=None, deterministic=False, return_attn_probs=False",
    "flash_attn_varlen_func": "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, "
    "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, "
    "return_attn_probs=False, block_table=None",
    "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, "
    "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
    "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
    "return_softmax_lse=False",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_flash_attn(name: str) -> None:
    found = inspect.signature(getattr(twt, name))
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({SIGNATURES[name]})"


Q = torch.zeros(1, 8, 2, 32)
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "ranks of a convolution": (lambda: twt.conv2d(Q[0], Q), TensorError, "4 dimensions"),
    "strides": (lambda: twt.conv2d(Q, Q, stride=(1, 2, 3)), InvalidValueError, "stride has 3 numbers"),
    "padding": (lambda: twt.conv2d(Q, Q, padding="full"), InvalidValueError, "same, valid"),
    "same with stride": (lambda: twt.conv2d(Q, Q, padding="same", stride=2), InvalidValueError, "stride of 1"),
    "ranks of attention": (lambda: twt.attention(Q[0], Q, Q), TensorError, "batch, seqlen, heads, size"),
    "ranks of packed sequences": (
        lambda: twt.flash_attn_varlen_func(Q, Q, Q, Q, Q, 8, 8),
        TensorError,
        "tokens, heads, size",
    ),
    "probabilities": (lambda: twt.flash_attn_func(Q, Q, Q, return_attn_probs=True), InvalidValueError, "attn_probs"),
    "leftpad": (lambda: twt.flash_attn_with_kvcache(Q, Q, Q, cache_leftpad=Q), InvalidValueError, "cache_leftpad"),
    "batch index": (lambda: twt.flash_attn_with_kvcache(Q, Q, Q, cache_batch_idx=Q), InvalidValueError, "batch_idx"),
    "only k": (lambda: twt.flash_attn_with_kvcache(Q, Q, Q, k=Q), InvalidValueError, "both k and v"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_one_error(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
