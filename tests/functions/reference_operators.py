"""The operators of attention computed by torch, for tests of what adapters pass to them, without a compiler.

They are registered with torch's own `torch.library`, for tensors in host memory, and have the documented meaning of
`tilewright.torch.attention`: a causal mask and a window are aligned to the last query and the last key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def find_visible(queries: int, keys: int, causal: bool, window: Any) -> Any:
    """Which keys each query sees, (queries, keys)."""
    distance = torch.arange(queries)[:, None] + (keys - queries) - torch.arange(keys)[None]
    seen = distance >= 0 if causal else torch.ones(queries, keys, dtype=torch.bool)
    left, right = window
    return seen & ((left < 0) | (distance <= left)) & ((right < 0) | (-distance <= right))


def compute_weights(q: Any, k: Any, causal: bool, window: Any, scale: float | None, softcap: float) -> Any:
    """The probabilities of one sequence, (heads, queries, keys). A query that sees nothing has zeros."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    seen = find_visible(len(q), len(k), causal, window)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1).masked_fill(~seen, 0.0)


def split(tensor: Any, starts: Any) -> Any:
    """The sequences of a tensor: the rows of a batch, or packed ones."""
    if starts is None:
        return tensor.unbind(0)
    assert starts.dtype == torch.int32
    return tensor.split(starts.diff().tolist())


def join(parts: list[Any], starts: Any) -> Any:
    return torch.stack(parts) if starts is None else torch.cat(parts)


def check_lengths(tensor: Any, starts: Any, longest: int) -> None:
    if starts is not None:
        assert int(starts[0]) == 0
        assert int(starts[-1]) == len(tensor)
        assert int(starts.diff().min()) > 0
        assert int(starts.diff().max()) <= longest


def attend(
    q: Any, k: Any, v: Any, slopes: Any, q_starts: Any, k_starts: Any, longest_q: int, longest_k: int, causal: bool,
    window: Any, scale: float | None, softcap: float, dropout: float, seed: int, deterministic: bool,
) -> Any:  # fmt: skip
    """`tilewright::attention`; its logarithms of sums are not computed."""
    assert slopes is None
    assert dropout == 0
    check_lengths(q, q_starts, longest_q)
    check_lengths(k, k_starts, longest_k)
    shared = q.shape[-2] // k.shape[-2]
    parts = []
    for one_q, one_k, one_v in zip(split(q, q_starts), split(k, k_starts), split(v, k_starts), strict=True):
        keys, values = (each.repeat_interleave(shared, 1) for each in (one_k, one_v))
        weights = compute_weights(one_q, keys, causal, window, scale, softcap)
        parts.append(torch.einsum("hqk,khd->qhd", weights, values))
    return join(parts, q_starts), q.new_zeros((q.shape[-2], len(q)) if q.dim() == 3 else q.shape[:-1])


def differentiate(
    gradient: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, slopes: Any, q_starts: Any, k_starts: Any,
    longest_q: int, longest_k: int, causal: bool, window: Any, scale: float | None, softcap: float, dropout: float,
    seed: int, deterministic: bool,
) -> Any:  # fmt: skip
    """`tilewright::attention_gradient`."""
    shared = q.shape[-2] // k.shape[-2]
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    pieces = [split(gradient, q_starts), split(q, q_starts), split(k, k_starts), split(v, k_starts)]
    results: tuple[list[Any], ...] = ([], [], [])
    for d_out, one_q, one_k, one_v in zip(*pieces, strict=True):
        keys, values = (each.repeat_interleave(shared, 1) for each in (one_k, one_v))
        weights = compute_weights(one_q, keys, causal, window, scale, 0.0)
        d_weights = torch.einsum("qhd,khd->hqk", d_out, values)
        d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True)) * factor
        results[0].append(torch.einsum("hqk,khd->qhd", d_scores, keys))
        for index, each in ((1, torch.einsum("hqk,qhd->khd", d_scores, one_q)),
                            (2, torch.einsum("hqk,qhd->khd", weights, d_out))):  # fmt: skip
            results[index].append(each.unflatten(1, (-1, shared)).sum(2))
    return join(results[0], q_starts), join(results[1], k_starts), join(results[2], k_starts)


@contextmanager
def compute_by_torch() -> Iterator[None]:
    """Replace the two operators inside the `with` block."""
    with torch.library._scoped_library("tilewright", "IMPL") as library:
        library.impl("attention", attend, "CPU")
        library.impl("attention_gradient", differentiate, "CPU")
        yield
