"""Rules of convolutions that hold for some generations of CK Tile only."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.arch.ck_api import DEFAULT_API, make_generation_api
from tilewright.arch.spec import Arch
from tilewright.ops import find_op
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.rule import find_violations

CONV = find_op("grouped_conv")
assert CONV.execution is not None
EXECUTION = CONV.execution
EARLIER = archs.load("gfx942", DEFAULT_API)
NEWER = archs.load("gfx942", make_generation_api("2026-06", CONV.ck_probes))
DATA = {"direction": "backward_data", "vector": (8, 8, 8)}
WEIGHT = {"direction": "backward_weight", "vector": (8, 8, 8), "split_k": True}
POINT = {"specialization": "filter1x1_stride1_pad0", "explicit_gemm": True, "vector": (8, 8, 8)}
POINT_PROBLEM = {"filter_size": 1, "left_pad": 0, "right_pad": 0}


def broken_rules(changes: Any, arch: Arch) -> list[str]:
    return [violation.code for violation in find_violations(CONV.rules, CONV.make_example(changes), arch)]


def broken_fit_rules(changes: Any, problem: Any, arch: Arch) -> list[str]:
    base = {"direction": "backward_weight", "n": 1, "c": 64, "k": 64, "input_size": "8x8", "filter_size": 3}
    made = Problem(**{**base, "left_pad": 1, "right_pad": 1, "dtype": "fp16", **problem})
    found = find_violations(CONV.fit_rules, CONV.make_example(changes), made, arch)
    return [violation.code for violation in found]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({**DATA, "pipeline": "compv4"}, "P330"),
        ({**DATA, "pipeline": "compv6"}, "P331"),
        ({**DATA, "dtype_c": "fp32", "vector": (8, 8, 4)}, "P341"),
        ({**POINT, "pipeline": "compv4"}, "P337"),
    ],
)
def test_kernels_of_2026_have_more_pipelines_and_types(changes: Any, code: str) -> None:
    assert broken_rules(changes, EARLIER) == [code]
    assert broken_rules(changes, NEWER) == []


def test_parts_of_a_plain_gemm_need_not_be_even_since_2026() -> None:
    uneven = {**POINT_PROBLEM, "input_size": "8x9", "k_batch": 2}  # 72 = 48 + 24: two steps of 32, and one
    assert broken_fit_rules({**POINT, **WEIGHT}, uneven, EARLIER) == ["S506"]
    assert broken_fit_rules({**POINT, **WEIGHT}, uneven, NEWER) == []


def test_sums_in_bf16_stop_at_the_last_row_since_2026() -> None:
    changes = {**POINT, **WEIGHT, **expand_dtype("bf16")}
    rows = {**POINT_PROBLEM, "k": 72, "k_batch": 2, "dtype": "bf16"}
    assert broken_fit_rules(changes, rows, EARLIER) == ["S510"]
    assert broken_fit_rules(changes, rows, NEWER) == []


def test_a_sum_has_as_many_parts_as_mma_steps_since_2026() -> None:
    many = {"k_batch": 5}  # 64 positions are four steps of 16
    assert broken_fit_rules(WEIGHT, many, EARLIER) == []
    assert broken_fit_rules(WEIGHT, many, NEWER) == ["S516"]
    assert broken_fit_rules(WEIGHT, {"k_batch": 4}, NEWER) == []


def test_narrow_results_have_up_to_128_parts_since_2026() -> None:
    wide = {**WEIGHT, "two_stage": True, "vector": (8, 8, 4)}
    for k_batch, broken in ((128, []), (129, ["S516"])):
        problem = {"input_size": "64x64", "k_batch": k_batch}
        assert broken_fit_rules(WEIGHT, problem, NEWER) == broken
        assert broken_fit_rules(wide, problem, NEWER) == []
        assert broken_fit_rules(WEIGHT, problem, EARLIER) == []


def test_trials_of_compv6_have_the_steps_that_ck_tile_requires() -> None:
    config = CONV.make_example({**WEIGHT, "pipeline": "compv6", "block": (64, 64, 32)})
    steps = [
        -(-problem.n * problem.output_size[0] * problem.output_size[1] // (32 * problem.k_batch))
        for problem in EXECUTION.trials(config, NEWER)
    ]
    assert len(steps) > 10
    assert min(steps) == 4
    assert {problem.k_batch for problem in EXECUTION.trials(config, NEWER)} > {1}
