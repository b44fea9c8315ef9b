"""Learned sinks of batch_prefill: a score of each head that has no value."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError
from tilewright.dispatch.plan import get_execution
from tilewright.ops.fmha.call import CALL
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.sequences import iterate_sequences, repeat_kv_heads, select_rows
from tilewright.ops.fmha.tensors import list_tensors
from tilewright.ops.fmha.tolerance import compute_tolerance

ARCH = archs.load("gfx942")
EXECUTION = get_execution("fmha")
CONFIG = Config(
    family="batch_prefill", mode="group", dtype="fp16", pipeline="qr_async", paged=True, block=(64, 64, 32, 32, 32, 32)
)


def make_problem(**values: Any) -> Problem:
    common = {"family": "batch_prefill", "mode": "group", "dtype": "fp16", "batch": 4, "heads": 4, "kv_heads": 2}
    sizes = {"seqlen_q": 9, "total_q": 20, "seqlen_k": 75, "total_k": 130, "hdim_q": 24, "hdim_v": 16, "page_size": 16}
    return Problem(**{**common, **sizes, "lse": True, "sink_logits": True, **values})


def compute_by_concatenation(problem: Problem, given: Any, sequence: Any) -> tuple[Any, Any]:
    """Result and LSE of a sequence without a mask: the sink is one more column of the scores, and its value is 0."""
    q = select_rows(problem, given, "q", sequence).astype(np.float64)
    k, v = (
        repeat_kv_heads(problem, select_rows(problem, given, name, sequence).astype(np.float64)) for name in ("k", "v")
    )
    sinks = np.broadcast_to(given["sink_logits"].astype(np.float64)[:, None, None], (*q.shape[:2], 1))
    scores = np.concatenate([problem.scale * q @ k.transpose(0, 2, 1), sinks], axis=-1)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    return (weights[..., :-1] / total) @ v, (largest + np.log(total))[..., 0]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_sink_is_one_more_column_of_scores(seed: int) -> None:
    problem = make_problem()
    given = EXECUTION.inputs(problem, seed, ARCH)
    found = EXECUTION.reference(problem, given, ARCH)
    lengths = set()
    for sequence in iterate_sequences(problem, given):
        wanted = compute_by_concatenation(problem, given, sequence)
        for name, array in zip(("o", "lse"), wanted, strict=True):
            np.testing.assert_allclose(select_rows(problem, found, name, sequence), array, rtol=1e-12, atol=1e-14)
        lengths.add(sequence.keys)
    assert 0 in lengths, "a sequence without keys has the LSE of its sinks"


def test_a_sink_of_minus_infinity_changes_nothing() -> None:
    problem = make_problem(mask="bottom_right")
    given = {**EXECUTION.inputs(problem, 1, ARCH), "sink_logits": np.full(4, -np.inf, np.float32)}
    found = EXECUTION.reference(problem, given, ARCH)
    plain = EXECUTION.reference(replace(problem, sink_logits=False), given, ARCH)
    for name in ("o", "lse"):
        assert np.array_equal(found[name], plain[name])


def test_inputs_have_sinks_of_all_kinds() -> None:
    """Consecutive heads have sinks among the scores, far above them and far below; exact inputs have exact sums."""
    problem = make_problem(heads=8)
    for seed in range(1, 5):
        sinks = EXECUTION.inputs(problem, seed, ARCH)["sink_logits"]
        assert len(set(sinks)) == 8
        assert min(sinks) < -100
        assert max(sinks) > 5
        assert min(abs(sinks)) < 5
    exact = EXECUTION.inputs(problem, 0, ARCH)["sink_logits"]
    assert set(exact) == {0.0, -200.0}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp8bf16"])
def test_a_kernel_with_other_sinks_is_wrong(dtype: str, seed: int) -> None:
    """Errors that a kernel could make: it ignores sinks, takes those of other heads, or scales them as scores."""
    problem = make_problem(dtype=dtype)
    given = EXECUTION.inputs(problem, seed, ARCH)
    expected = EXECUTION.reference(problem, given, ARCH)
    allowed = compute_tolerance(replace(CONFIG, dtype=dtype), problem, given, expected, ARCH)
    sinks = given["sink_logits"]
    mistakes = {"ignored": np.full_like(sinks, -np.inf), "other heads": np.roll(sinks, 1)}
    if seed:
        mistakes["scaled"] = sinks * np.float32(problem.scale)
    for mistake, wrong in mistakes.items():
        made = EXECUTION.reference(problem, {**given, "sink_logits": wrong}, ARCH)
        for name in ("o", "lse"):
            off = np.abs(made[name] - expected[name])
            assert (off > allowed[name].limit).any(), (mistake, name)


def test_the_struct_says_whether_there_are_sinks() -> None:
    """A number says so before there are addresses."""
    problem = make_problem()
    args = CALL.make_arguments(problem)
    assert args.has_sinks == 1
    names = [tensor.name for tensor in list_tensors(problem)]
    CALL.make_address_setter(problem)(args, [1 + place for place in range(len(names))])
    assert args.sink_logits == 1 + names.index("sink_logits")
    assert CALL.make_arguments(replace(problem, sink_logits=False)).has_sinks == 0
    assert ctypes.sizeof(args) == args.size


def test_only_batch_prefill_has_sinks() -> None:
    with pytest.raises(InvalidValueError, match="sink_logits is only for batch_prefill"):
        make_problem(family="pagedkv")


def test_half_of_the_trials_have_sinks_where_kernels_take_them() -> None:
    config = replace(CONFIG, pad_q=True, pad_k=True, pad_hdim_q=8, pad_hdim_v=8, waves=(4, 1, 1, 4, 1, 1))
    earlier = EXECUTION.trials(config, ARCH)
    assert earlier
    assert not any(problem.sink_logits for problem in earlier)
    newer = EXECUTION.trials(config, replace(ARCH, ck=replace(ARCH.ck, generation="2026-06")))
    assert [replace(problem, sink_logits=False) for problem in newer] == list(earlier)
    assert 3 * sum(problem.sink_logits for problem in newer) > len(newer)
    assert any(problem.sink_logits and problem.heads > 1 for problem in newer)
    capped = EXECUTION.trials(replace(config, soft_cap=True), replace(ARCH, ck=replace(ARCH.ck, generation="2026-06")))
    assert capped
    assert not any(problem.sink_logits for problem in capped)
