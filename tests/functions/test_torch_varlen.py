"""Gradients of attention to packed sequences of different lengths, compared with torch's on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functions.attention_kernels import get_kernels
from tests.functions.test_torch_operators import attend, draw, use

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = pytest.mark.compile
PACKED_KERNELS = (
    "packed", "packed_plain", "packed_dot_do_o", "packed_gradients", "packed_masked_gradients", "packed_convert_dq",
)  # fmt: skip
# Lengths of queries and of keys, heads of queries and of keys, and the size of heads.
CASES = {
    "equal lengths": ([5, 20, 11], [5, 20, 11], 2, 2, 64),
    "shared heads": ([9, 30], [9, 30], 4, 2, 64),
    "one head of keys": ([16, 3], [16, 3], 3, 1, 64),
    "more keys than queries": ([5, 20, 1], [33, 20, 70], 2, 1, 64),
    "one sequence": ([37], [65], 2, 2, 64),
}


def find_starts(lengths: list[int]) -> Any:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).to(torch.int32)


def attend_each(q: Any, k: Any, v: Any, q_lengths: list[int], k_lengths: list[int], *, causal: bool) -> Any:
    """torch's attention of each sequence on its own."""
    parts = zip(q.split(q_lengths), k.split(k_lengths), v.split(k_lengths), strict=True)
    return torch.cat([attend(*(part[None] for part in each), causal=causal)[0] for each in parts])


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_packed_sequences_are_torchs(name: str, causal: bool) -> None:
    q_lengths, k_lengths, heads, kv_heads, size = CASES[name]
    shapes = ((sum(q_lengths), heads, size), (sum(k_lengths), kv_heads, size), (sum(k_lengths), kv_heads, size))
    inputs = [draw(seed, *shape) for seed, shape in enumerate(shapes, 1)]
    references = [tensor.detach().double().requires_grad_() for tensor in inputs]
    starts = find_starts(q_lengths), find_starts(k_lengths)
    with use(get_kernels(*PACKED_KERNELS)):
        found = twt.flash_attn_varlen_func(*inputs, *starts, max(q_lengths), max(k_lengths), causal=causal)
        weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(9))
        mine = [found, *torch.autograd.grad(found, inputs, weights.half())]
    wanted = attend_each(*references, q_lengths, k_lengths, causal=causal)
    theirs = [wanted, *torch.autograd.grad(wanted, references, weights.double())]
    for one, other in zip(mine, theirs, strict=True):
        assert one.shape == other.shape
        # Probabilities, their gradients and results are rounded to 11 bits, relative to the largest value.
        assert (one.double() - other).abs().max() <= 4e-3 * other.abs().max()
