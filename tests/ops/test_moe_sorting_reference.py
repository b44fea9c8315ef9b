"""The reference of sorting against torch's stable sort, and the elements that kernels need not write."""

from __future__ import annotations

import itertools
from typing import Any

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


def draw_different(problem: Problem) -> dict[str, Any]:
    generator = np.random.default_rng(problem.tokens)
    ids = generator.random((problem.tokens, problem.experts)).argsort(axis=1)[:, : problem.k]
    return {"topk_ids": ids.astype(np.int32), "topk_weights": generator.random(ids.shape).astype(np.float32)}


@pytest.mark.parametrize("trial", list_trials(CONFIG, GPU), ids=str)
def test_blocks_of_one_entry_are_a_stable_sort(trial: Problem) -> None:
    """Without filled-up blocks, entries are the pairs in the order of a stable sort by expert."""
    problem = Problem(tokens=trial.tokens, experts=trial.experts, k=trial.k, unit=1)
    inputs = draw_different(problem)
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


def test_unknown_experts_are_left_out_and_the_last_of_equal_ones_is_sorted() -> None:
    ids = np.array([[3, -1, 3], [4, 1, 0], [1_000_000, -(2**31), 2**31 - 1]], np.int32)
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    problem = Problem(tokens=3, experts=4, k=3, unit=1)
    found = compute_reference(problem, {"topk_ids": ids, "topk_weights": weights}, GPU)
    place, none = 2**24, 3 + 3 * 2**24
    assert found["totals"].tolist() == [4, 3]
    assert found["sorted_ids"][:4].tolist() == [1 + 2 * place, 1 + place, 2 * place, none]
    assert found["sorted_weights"][:4].tolist() == [5, 4, 2, 0]
    assert found["sorted_experts"][:4].tolist() == [0, 1, 3, 3]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("unit", [1, 3])
def test_results_have_room_for_any_experts(keep: bool, unit: int) -> None:
    for ids in itertools.product(range(-1, 3), repeat=4):
        given = {"topk_ids": np.reshape(ids, (2, 2)), "topk_weights": np.ones((2, 2))}
        problem = Problem(tokens=2, experts=3, k=2, unit=unit, keep_empty=keep)
        entries = compute_reference(problem, given, GPU)["totals"][0]
        assert entries <= problem.entries, ids


def test_inputs_have_empty_experts_unknown_ones_and_equal_ones_of_a_token() -> None:
    problem = Problem(tokens=99, experts=64, k=6, unit=16)
    same, different = (make_inputs(problem, seed, GPU)["topk_ids"] for seed in (0, 1))
    assert len(np.unique(same)) == 6 and all(len(set(row)) == 6 for row in same.tolist())
    unknown = set(np.unique(different)) - set(range(64))
    assert unknown == {-1, 64, -1_000_000, 1_000_000, -(2**31), 2**31 - 1}
    assert any(len(set(row)) < 6 for row in different.tolist())


def test_tensors_must_be_packed() -> None:
    problem = Problem(tokens=5, experts=8, k=2, unit=4)
    assert apply_strides(problem, {"topk_ids": (2, 1)}) == problem
    assert [tensor.name for tensor in list_tensors(problem)][:2] == ["topk_ids", "topk_weights"]
    with pytest.raises(TilewrightError, match="topk_ids"):
        apply_strides(problem, {"topk_ids": (3, 1)})
