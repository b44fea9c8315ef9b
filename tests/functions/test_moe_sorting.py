"""`sort_by_expert` on an emulated device: exactly the pairs of each expert, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tests.functions.routing_kernels import ARCH, SORTING, make_sorting
from tilewright.base.errors import InvalidValueError, TensorError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402

pytestmark = pytest.mark.compile


@pytest.fixture(autouse=True)
def _use_small_kernels() -> Iterator[None]:
    built([SORTING])
    with tw.options(device=f"emulated:{ARCH}", pool=(SORTING,)):
        yield


def draw(tokens: int, experts: int, k: int) -> tuple[Any, Any]:
    generator = np.random.default_rng([tokens, experts, k])
    ids = np.array([generator.permutation(experts)[:k] for _ in range(tokens)], dtype=np.int32)
    return ids, generator.random(ids.shape).astype(np.float32)


def check(ids: Any, weights: Any, unit: int, found: tuple[Any, ...], number: dict[int, int]) -> None:
    """Compare with lists of Python: for each expert its pairs, filled up to whole blocks. The last of equal pairs is
    kept, in the entries of all."""
    entries, values, owners, totals = ([each.item() for each in array] for array in found)
    tokens, k = ids.shape
    wanted: list[tuple[int, float, int]] = []
    for expert, name in number.items():
        pairs = [(t, p) for t in range(tokens) for p in range(k) if ids[t, p] == expert]
        last = dict(pairs)
        wanted += [(t + (p << 24), float(weights[t, p]), name) for t, p in last.items()]
        wanted += [(tokens + (k << 24), 0.0, name)] * (len(pairs) - len(last) + -len(pairs) % unit)
    assert totals == [len(wanted), tokens]
    assert list(zip(entries, values, strict=True))[: len(wanted)] == [each[:2] for each in wanted]
    assert owners[: len(wanted) // unit] == [each[2] for each in wanted[::unit]]


@pytest.mark.parametrize(
    ("tokens", "experts", "k", "unit"), [(1, 8, 2, 16), (3, 64, 6, 32), (33, 8, 2, 1), (64, 128, 4, 32), (4, 1, 1, 3)]
)
def test_every_pair_is_in_a_block_of_its_expert(tokens: int, experts: int, k: int, unit: int) -> None:
    ids, weights = draw(tokens, experts, k)
    found = tw.sort_by_expert(ids, weights, experts, unit)
    check(ids, weights, unit, found, {expert: expert for expert in range(experts)})


def test_everything_in_one_expert() -> None:
    ids, weights = np.full((40, 1), 5, np.int32), draw(40, 8, 1)[1]
    check(ids, weights, 16, tw.sort_by_expert(ids, weights, 8, 16), {5: 5})


@pytest.mark.parametrize("share", [0.1, 1])
@pytest.mark.parametrize("seed", range(3))
def test_unknown_and_equal_experts(seed: int, share: float) -> None:
    generator = np.random.default_rng([seed, 36])
    tokens, experts, k = (int(generator.integers(*limits)) for limits in ((1, 70), (4, 40), (1, 5)))
    ids, weights = generator.integers(0, experts, (tokens, k)).astype(np.int32), draw(tokens, experts, k)[1]
    unknown = generator.choice([-1, experts, experts + 1, -1_000_000, 1_000_000, -(2**31), 2**31 - 1], ids.shape)
    ids = np.where(generator.random(ids.shape) < share, unknown, ids).astype(np.int32)
    for unit in (1, 7):
        found = tw.sort_by_expert(ids, weights, experts, unit)
        check(ids, weights, unit, found, {expert: expert for expert in range(experts)})


def test_torch_operator_has_the_same_results_as_the_function() -> None:
    ids, weights = draw(5, 8, 2)
    with twt.emulate(ARCH):
        found = twt.sort_by_expert(torch.tensor(ids), torch.tensor(weights), 8, 4)
    check(ids, weights, 4, found, {expert: expert for expert in range(8)})


def test_errors_tell_the_cause() -> None:
    ids, weights = draw(5, 8, 2)
    with pytest.raises(TensorError, match="topk_weights is fp16"):
        tw.sort_by_expert(ids, weights.astype(np.float16), 8, 4)
    with pytest.raises(TensorError, match="topk_ids has shape"):
        tw.sort_by_expert(ids[0], weights[0], 8, 4)
    with pytest.raises(InvalidValueError, match="k is 2, but there are 1 experts"):
        tw.sort_by_expert(ids, weights, 1, 4)


def test_no_tokens() -> None:
    found = tw.sort_by_expert(np.empty((0, 2), np.int32), np.empty((0, 2), np.float32), 8, 4)
    assert not found[3].any()


@pytest.mark.deep
def test_masked_experts_are_left_out_and_not_counted() -> None:
    kernel = make_sorting(masked=True)
    built([kernel])
    ids, weights = draw(33, 64, 6)
    mask = (np.arange(64) % 3 != 1).astype(np.int32)
    with tw.options(pool=(kernel,)):
        found = tw.sort_by_expert(ids, weights, 64, 8, expert_mask=mask)
    local = [expert for expert in range(64) if mask[expert]]
    check(ids, weights, 8, found, {expert: number for number, expert in enumerate(local)})
