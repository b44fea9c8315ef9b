"""`attention` and `attention_gradient` on emulated devices, against torch on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright as tw
from tests.functions.attention_kernels import use_kernels
from tilewright.base.errors import UnsupportedError

torch = pytest.importorskip("torch")
from tests.functions.attention_reference import attend, compute_gradients  # noqa: E402  (needs torch)

pytestmark = pytest.mark.compile


def draw(*shape: int, dtype: Any = "float16", seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def draw_qkv(batch: int, queries: int, keys: int, heads: int, kv_heads: int, size: int, **how: Any) -> list[Any]:
    shapes = (batch, queries, heads, size), (batch, keys, kv_heads, size), (batch, keys, kv_heads, size)
    return [draw(*shape, seed=seed, **how) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"causal": True}, {"right": 0}),
        ({"window": (20, 5)}, {"left": 20, "right": 5}),
        ({"causal": True, "window": (9, -1)}, {"left": 9, "right": 0}),
        ({"window": (-1, 30), "scale": 0.3}, {"right": 30, "scale": 0.3}),
    ],
)
def test_masks_are_aligned_to_the_last_query_and_heads_are_shared(
    options: dict[str, Any], limits: dict[str, Any]
) -> None:
    q, k, v = draw_qkv(2, 70, 101, 4, 2, 32)
    with use_kernels("masked"):
        out, lse = tw.attention(q, k, v, return_lse=True, **options)
    attend(q, k, v, **limits).check(out, lse)


def test_without_a_mask() -> None:
    q, k, v = draw_qkv(1, 33, 65, 2, 2, 32, dtype=ml_dtypes.bfloat16)
    with use_kernels("bf16"):
        out = tw.attention(q, k, v)
    assert out.dtype == q.dtype
    attend(q, k, v).check(out)


def test_layouts_and_views_give_the_same_result() -> None:
    q, k, v = draw_qkv(2, 40, 40, 2, 1, 32)
    swapped = [np.ascontiguousarray(array.swapaxes(1, 2)) for array in (q, k, v)]
    with use_kernels("masked"):
        wanted, lse = tw.attention(q, k, v, causal=True, return_lse=True)
        by_head, _ = tw.attention(*swapped, causal=True, layout="bhsd", return_lse=True)
        viewed, _ = tw.attention(*(array.swapaxes(1, 2) for array in swapped), causal=True, return_lse=True)
        cut = np.concatenate([q, q], axis=-1)[..., :32]
        copied, _ = tw.attention(cut, k, v, causal=True, return_lse=True)
        out, lse_out = np.zeros((2, 40, 2, 64), "float16")[..., ::2], np.empty_like(lse)
        assert tw.attention(q, k, v, causal=True, return_lse=True, out=(out, lse_out))[0] is out
    assert by_head.shape == (2, 2, 40, 32)
    assert viewed.shape == q.shape
    for found in (by_head.swapaxes(1, 2), viewed, copied, out):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(lse_out, lse)


def test_torch_tensors_give_torch_tensors() -> None:
    q, k, v = draw_qkv(1, 40, 40, 2, 2, 32)
    tensors = [torch.from_numpy(array).transpose(1, 2).contiguous().transpose(1, 2) for array in (q, k, v)]
    with use_kernels("masked"):
        out, lse = tw.attention(*tensors, causal=True, return_lse=True)
    assert isinstance(out, torch.Tensor)
    assert out.shape == q.shape
    attend(q, k, v, right=0).check(out.numpy(), lse.numpy())


def test_dropout_drops_the_given_share_and_can_be_repeated() -> None:
    q, k, v = draw_qkv(1, 64, 64, 2, 2, 32)
    ones = np.ones_like(v)
    with use_kernels("dropout"):
        first, _ = tw.attention(q, k, ones, dropout=0.25, seed=7, return_lse=True)
        again, _ = tw.attention(q, k, ones, dropout=0.25, seed=7, return_lse=True)
        other, _ = tw.attention(q, k, ones, dropout=0.25, seed=8, return_lse=True)
        _, lse = tw.attention(q, k, v, dropout=0.25, return_lse=True)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    # Each row is the sum of the weights that are kept, divided by the share of 3/4: 1 on average.
    assert abs(first.astype(np.float64).mean() - 1) < 0.05
    np.testing.assert_allclose(lse, attend(q, k, v).lse, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 40, 64), (1, 3, 40, 64), (40, 64)])
def test_a_bias_is_broadcast(shape: tuple[int, ...]) -> None:
    q, k, v = draw_qkv(2, 40, 64, 3, 1, 32, dtype="float32")
    bias = draw(*shape, dtype="float32")
    with use_kernels("bias"):
        out = tw.attention(q, k, v, bias=bias)
    attend(q, k, v, bias=np.broadcast_to(bias, (2, 3, 40, 64))).check(out)


@pytest.mark.parametrize("causal", [True, False])
def test_packed_sequences(causal: bool) -> None:
    lengths_q, lengths_k = (5, 70, 0, 33), (64, 70, 9, 90)
    starts_q, starts_k = (np.cumsum([0, *each]).astype("int32") for each in (lengths_q, lengths_k))
    q = draw(starts_q[-1], 4, 64)
    k, v = (draw(starts_k[-1], 2, 64, seed=seed) for seed in (1, 2))
    tables = {"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k, "max_seqlen_q": 128, "max_seqlen_k": 96}
    window = None if causal else (50, 50)
    with use_kernels("packed"):
        out, lse = tw.attention(q, k, v, causal=causal, window=window, return_lse=True, **tables)
    assert lse.shape == (4, 108)
    limits = {"right": 0} if causal else {"left": 50, "right": 50}
    for place in (0, 1, 3):
        of_q, of_k = slice(*starts_q[place : place + 2]), slice(*starts_k[place : place + 2])
        wanted = attend(q[None, of_q], k[None, of_k], v[None, of_k], **limits)
        wanted.check(out[None, of_q], lse[None, :, of_q])


def test_a_cache_with_different_lengths() -> None:
    lengths = np.asarray([200, 1, 77], "int32")
    q, k, v = draw_qkv(3, 9, 200, 4, 2, 64)
    with use_kernels("split", "combine", "combine_lse"):
        out = tw.attention(q, k, v, causal=True, seqlens_k=lengths, num_splits=3)
        same, lse = tw.attention(q, k, v, causal=True, seqlens_k=lengths, num_splits=3, return_lse=True)
    np.testing.assert_array_equal(out, same)
    for place in (0, 2):
        kept = slice(lengths[place])
        wanted = attend(q[place, None], k[place, None, kept], v[place, None, kept], right=0)
        wanted.check(out[place, None], lse[place, None])
    assert (out[1, :8] == 0).all()  # the first eight queries come before the only key
    np.testing.assert_array_equal(out[1, 8], np.repeat(v[1, 0], 2, axis=0))


def test_a_cache_that_is_not_split() -> None:
    lengths = np.asarray([130, 64], "int32")
    q, k, v = draw_qkv(2, 64, 130, 2, 1, 32)
    with use_kernels("cache"):
        out = tw.attention(q, k, v, window=(40, 0), seqlens_k=lengths, num_splits=0)
    for place in (0, 1):
        kept = slice(lengths[place])
        attend(q[place, None], k[place, None, kept], v[place, None, kept], left=40, right=0).check(out[place, None])


def test_pages_in_any_order() -> None:
    lengths = np.asarray([130, 64, 17], "int32")
    table = np.asarray([[5, 0, 3], [2, 6, 6], [4, 1, 1]], "int32")
    q = draw(3, 1, 4, 64)
    k, v = draw(7, 64, 2, 64, seed=1), draw(7, 64, 2, 64, seed=2)
    with use_kernels("paged", "combine", "combine_lse"):
        out, lse = tw.attention(
            q, k, v, causal=True, seqlens_k=lengths, page_table=table, num_splits=2, return_lse=True
        )
    for place, length in enumerate(lengths):
        keys, values = (each[table[place]].reshape(1, -1, 2, 64)[:, :length] for each in (k, v))
        attend(q[place, None], keys, values).check(out[place, None], lse[place, None])


def rotate(array: NDArray[Any], cos: NDArray[Any], sin: NDArray[Any], first: int) -> NDArray[Any]:
    """Tokens (tokens, heads, elements) rotated by the angles of their positions; pairs are one of each half."""
    tokens, half = len(array), array.shape[-1] // 2
    c, s = (table[first : first + tokens, None].astype(np.float32) for table in (cos, sin))
    left, right = array[..., :half].astype(np.float32), array[..., half:].astype(np.float32)
    return np.concatenate([left * c - right * s, right * c + left * s], axis=-1)


@pytest.mark.parametrize("paged", [False, True])
def test_new_tokens_are_rotated_and_appended_in_place(paged: bool) -> None:
    lengths, new = np.asarray([70, 0, 5], "int32"), 3
    table = np.asarray([[5, 0], [2, 1], [4, 3]], "int32")
    q, k, v = draw_qkv(3, new, new, 4, 2, 64)
    shape = (6, 64, 2, 64) if paged else (3, 128, 2, 64)
    k_cache, v_cache = draw(*shape, seed=5), draw(*shape, seed=6)
    angles = np.arange(160)[:, None] * 0.3 ** np.arange(32)
    cos, sin = np.cos(angles).astype("float16"), np.sin(angles).astype("float16")
    old = q.copy(), k_cache.copy(), v_cache.copy()
    with use_kernels("append_pages" if paged else "append"):
        tables = {"seqlens_k": lengths, "page_table": table if paged else None, "rotary_cos": cos, "rotary_sin": sin}
        assert tw.append_to_cache(q, k_cache, v_cache, k, v, causal=True, **tables) is None
    rows = table if paged else np.arange(3)[:, None]
    for place, length in enumerate(lengths):
        kept, added = slice(length), slice(length, length + new)
        for cache, before, tokens in (
            (k_cache, old[1], rotate(k[place], cos, sin, length)),
            (v_cache, old[2], v[place]),
        ):
            sequence = cache[rows[place]].reshape(-1, 2, 64)
            np.testing.assert_array_equal(sequence[kept], before[rows[place]].reshape(-1, 2, 64)[kept])
            np.testing.assert_allclose(sequence[added], tokens, rtol=2**-10, atol=2**-10)
        np.testing.assert_allclose(q[place], rotate(old[0][place], cos, sin, length), rtol=2**-10, atol=2**-10)


def test_arrays_on_a_device_are_used_in_place() -> None:
    q, k, v = draw_qkv(1, 40, 40, 2, 2, 32)
    device = tw.Device("emulated:gfx942")
    views = []
    for array in (q, k, v):
        buffer = device.allocate(array.nbytes)
        buffer.copy_from(array)
        views.append(tw.view_on(buffer, array.shape, "fp16"))
    with use_kernels("masked"):
        for _ in range(2):  # the second call takes the fast path
            out, lse = tw.attention(*views, causal=True, return_lse=True)
            found, sums = np.empty_like(q), np.empty((1, 2, 40), "float32")
            out.owner.copy_to(found)
            lse.owner.copy_to(sums)
            attend(q, k, v, right=0).check(found, sums)


@pytest.mark.parametrize(
    ("kernel", "size", "causal"), [("gradients", 40, False), ("causal_gradients", 128, True)], ids=["heads", "causal"]
)
def test_gradients_are_those_of_autograd(kernel: str, size: int, causal: bool) -> None:
    q, k, v = draw_qkv(1, 50, 70, 2, 1, size)
    d_o = draw(*q.shape, seed=3)
    right = 0 if causal else -1
    wanted = attend(q, k, v, right=right)
    out, lse = wanted.out.astype("float16"), wanted.lse
    with use_kernels("dot_do_o", kernel, "convert_dq"):
        found = tw.attention_gradient(d_o, q, k, v, out, lse, causal=causal)
        views = [np.ascontiguousarray(array.swapaxes(1, 2)) for array in (d_o, q, k, v, out)]
        by_head = tw.attention_gradient(*views, lse, causal=causal, layout="bhsd")
    for made, same, like, (gradient, difference) in zip(
        found, by_head, (q, k, v), compute_gradients(d_o, q, k, v, right=right), strict=True
    ):
        assert (made.shape, made.dtype) == (like.shape, like.dtype)
        wrong = np.abs(made.astype(np.float32) - gradient) > difference
        assert not wrong.any(), f"{wrong.sum()} of {wrong.size} elements differ by more than rounding"
        assert (np.abs(same.swapaxes(1, 2).astype(np.float32) - gradient) <= difference).all()


def test_empty_batches_give_empty_results_without_a_kernel() -> None:
    q, k, v = draw_qkv(0, 8, 8, 2, 1, 32)
    with tw.options(device="emulated:gfx942", build="never"):
        out, lse = tw.attention(q, k, v, return_lse=True)
        assert (out.shape, lse.shape) == ((0, 8, 2, 32), (0, 2, 8))
        q, k, v = draw_qkv(1, 8, 0, 2, 1, 32)
        np.testing.assert_array_equal(tw.attention(q, k, v), np.zeros_like(q))
        made = tw.attention_gradient(q, q, k, v, q, np.zeros((1, 2, 8), "float32"))
    assert [array.shape for array in made] == [q.shape, k.shape, v.shape]


def test_a_head_size_that_no_kernel_has_is_an_error_with_the_sizes() -> None:
    q, k, v = draw_qkv(1, 8, 8, 1, 1, 512)
    with tw.options(device="emulated:gfx942"), pytest.raises(UnsupportedError, match=r"512 elements.*128/128.*256/256"):
        tw.attention(q, k, v)
