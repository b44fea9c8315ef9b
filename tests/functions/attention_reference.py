"""Attention by torch on the CPU in float32, and bounds of the rounding of kernels with 16-bit probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
# Half the distance of two numbers around 1.
ROUNDING = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24}
# Scores, exponentials and sums are computed in float32, for some hundred terms of at most 20.
_NOISE = 1e-4


@dataclass(frozen=True)
class Expected:
    """A result and the logarithm of the sums of exponentials, with the largest difference that rounding may cause."""

    out: Array
    lse: Array
    difference: Array

    def check(self, out: Array, lse: Array | None = None) -> None:
        wrong = np.abs(out.astype(np.float32) - self.out) > self.difference
        assert out.shape == self.out.shape
        assert not wrong.any(), f"{wrong.sum()} of {wrong.size} elements differ by more than rounding"
        if lse is not None:
            assert lse.dtype == np.float32
            np.testing.assert_allclose(lse, self.lse, atol=_NOISE)


def visible(queries: int, keys: int, left: int = -1, right: int = -1) -> Array:
    """The keys that a query sees, with the last query at the last key."""
    distance = np.arange(keys) - (np.arange(queries)[:, None] + keys - queries)
    return ((left < 0) | (distance >= -left)) & ((right < 0) | (distance <= right))


def attend(
    q: Array, k: Array, v: Array, *, left: int = -1, right: int = -1, bias: Array | None = None, scale: float = 0.0
) -> Expected:
    """Attention of one batch in the layout bshd."""
    name = q.dtype.name
    queries, keys, values = (_to_heads(array, q.shape[2]) for array in (q, k, v))
    seen = torch.from_numpy(visible(q.shape[1], k.shape[1], left, right))
    mask = torch.where(seen, 0.0, -torch.inf) if bias is None else _to_tensor(bias).masked_fill(~seen, -torch.inf)
    factor = scale or q.shape[-1] ** -0.5
    attention = torch.nn.functional.scaled_dot_product_attention
    out = attention(queries, keys, values, attn_mask=mask, scale=factor)
    size = attention(queries, keys, values.abs(), attn_mask=mask, scale=factor)
    lse = torch.logsumexp(queries @ keys.transpose(-1, -2) * factor + mask, dim=-1)
    # Probabilities are rounded, and so is the result.
    return Expected(_to_bshd(out), lse.numpy(), _to_bshd(size) * 2 * ROUNDING[name] + _NOISE * _to_bshd(size))


def compute_gradients(d_o: Array, q: Array, k: Array, v: Array, *, right: int = -1) -> list[tuple[Array, Array]]:
    """The gradients of q, k and v by torch.autograd, each with its largest difference by rounding."""
    leaves = [torch.from_numpy(array.astype(np.float32)).requires_grad_() for array in (q, k, v)]
    heads = q.shape[2]
    queries, keys, values = (_share_heads(leaf.transpose(1, 2), heads) for leaf in leaves)
    seen = torch.from_numpy(visible(q.shape[1], k.shape[1], -1, right))
    out = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
    d_out = _to_tensor(d_o).transpose(1, 2)
    out.backward(d_out)
    with torch.no_grad():
        scale = q.shape[-1] ** -0.5
        scores = (queries @ keys.transpose(-1, -2) * scale).masked_fill(~seen, -torch.inf)
        p = torch.softmax(scores, -1)
        # The sizes of the terms: probabilities, their gradients before and after they are rounded, and the sum d.
        d_p = d_out.abs() @ values.abs().transpose(-1, -2) + (d_out.abs() * out.abs()).sum(-1, keepdim=True)
        d_s = p * d_p * scale
        sizes = (d_s @ keys.abs(), d_s.transpose(-1, -2) @ queries.abs(), p.transpose(-1, -2) @ d_out.abs())
    found = []
    for leaf, size in zip(leaves, sizes, strict=True):
        shared = size.reshape(size.shape[0], leaf.shape[2], -1, *size.shape[2:]).sum(2)
        assert leaf.grad is not None
        # Heads that share keys are rounded before they are added.
        found.append((leaf.grad.numpy(), _to_bshd(shared) * 5 * ROUNDING["float16"] + _NOISE))
    return found


def _to_tensor(array: Array) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array.astype(np.float32)))


def _to_heads(array: Array, heads: int) -> Any:
    return _share_heads(_to_tensor(array).transpose(1, 2), heads)


def _share_heads(tensor: Any, heads: int) -> Any:
    return tensor.repeat_interleave(heads // tensor.shape[1], dim=1)


def _to_bshd(tensor: Any) -> Array:
    made: Array = tensor.transpose(1, 2).numpy()
    return made
