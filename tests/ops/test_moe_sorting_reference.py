"""The reference of sorting against torch's stable sort, and the elements that kernels need not write."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base.errors import TilewrightError
from tilewright.ops import find_op
from tilewright.ops.moe_sorting.config import Config
from tilewright.ops.moe_sorting.problem import Problem, apply_strides, list_tensors
from tilewright.ops.moe_sorting.reference import compute_reference, compute_tolerance, list_trials, make_inputs

torch = pytest.importorskip("torch")
SORTING = find_op("moe_sorting")
GPU = archs.load("gfx942")
CONFIG = Config(tile=1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("place", range(7))
def test_blocks_of_one_entry_are_a_stable_sort(place: int, seed: int) -> None:
    """Without filled-up blocks, entries are the pairs in the order of a stable sort by expert."""
    trial = list_trials(CONFIG, GPU)[place]
    problem = Problem(tokens=trial.tokens, experts=trial.experts, k=trial.k, unit=1)
    inputs = make_inputs(problem, seed, GPU)
    found = compute_reference(problem, inputs, GPU)
    owners, order = torch.sort(torch.tensor(inputs["topk_ids"]).reshape(-1), stable=True)
    pairs = problem.tokens * problem.k
    wanted = order // problem.k + (order % problem.k) * 2**24
    np.testing.assert_array_equal(found["sorted_ids"][:pairs], wanted)
    np.testing.assert_array_equal(found["sorted_experts"][:pairs], owners)
    np.testing.assert_array_equal(found["sorted_weights"][:pairs], inputs["topk_weights"].reshape(-1)[order])
    assert found["totals"].tolist() == [pairs, problem.tokens]
    assert np.isnan(found["sorted_ids"][pairs:]).all()


def test_blocks_are_filled_up_and_empty_experts_left_out_or_kept() -> None:
    ids = np.array([[3, 1], [3, 0], [1, 3]], np.int32)
    weights = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    none = 3 + 2 * 2**24
    place = 2**24
    first = [1 + place, none, place, 2, 0, 1, 2 + place, none]
    for keep, empty in ((False, []), (True, [none, none])):
        problem = Problem(tokens=3, experts=4, k=2, unit=2, keep_empty=keep)
        found = compute_reference(problem, {"topk_ids": ids, "topk_weights": weights}, GPU)
        wanted = [*first[:4], *empty, *first[4:]]
        assert found["sorted_ids"][: len(wanted)].tolist() == wanted
        assert found["sorted_experts"][: len(wanted) // 2].tolist() == [0, 1, *([2] if keep else []), 3, 3]
        assert found["totals"].tolist() == [len(wanted), 3]
        assert len(wanted) <= problem.entries


def test_masked_experts_are_not_counted() -> None:
    problem = Problem(tokens=2, experts=4, k=2, unit=1, masked=True)
    given = {"topk_ids": np.array([[0, 3], [2, 3]]), "topk_weights": np.ones((2, 2)), "expert_mask": [0, 1, 1, 1]}
    found = compute_reference(problem, {name: np.asarray(values) for name, values in given.items()}, GPU)
    assert found["sorted_ids"][:3].tolist() == [1, 2**24, 1 + 2**24]
    assert found["sorted_experts"][:3].tolist() == [1, 2, 2]


def test_only_elements_behind_the_last_entry_may_have_any_value() -> None:
    problem = Problem(tokens=5, experts=8, k=2, unit=4)
    inputs = make_inputs(problem, 1, GPU)
    reference = compute_reference(problem, inputs, GPU)
    tolerance = compute_tolerance(CONFIG, problem, inputs, reference, GPU)
    entries = int(reference["totals"][0])
    assert not tolerance["sorted_ids"].limit[:entries].any() and not tolerance["totals"].limit.any()
    assert np.isinf(tolerance["sorted_ids"].limit[entries:]).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_experts_of_a_token_are_different_and_some_experts_are_empty(seed: int) -> None:
    problem = Problem(tokens=9, experts=64, k=6, unit=16)
    ids = make_inputs(problem, seed, GPU)["topk_ids"]
    assert all(len(set(row)) == 6 for row in ids.tolist())
    assert len(np.unique(ids)) < 64 and (seed != 0 or len(np.unique(ids)) == 6)


def test_tensors_must_be_packed() -> None:
    problem = Problem(tokens=5, experts=8, k=2, unit=4)
    assert apply_strides(problem, {"topk_ids": (2, 1)}) == problem
    assert [tensor.name for tensor in list_tensors(problem)][:2] == ["topk_ids", "topk_weights"]
    with pytest.raises(TilewrightError, match="topk_ids"):
        apply_strides(problem, {"topk_ids": (3, 1)})
