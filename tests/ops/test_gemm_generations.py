"""Rules, resources and split sums of GEMM that differ between generations of CK Tile."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.arch.ck_api import DEFAULT_API, CkApi, make_generation_api
from tilewright.arch.spec import Arch
from tilewright.codegen.render import render
from tilewright.ops import find_op
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.rules.examples import COMPV5
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.gemm import Problem
from tilewright.ops.gemm.kinds import preshuffle
from tilewright.ops.rule import find_violations

GEMM = find_op("gemm")
NEWER_API = make_generation_api("2026-06", GEMM.ck_probes)
EARLIER, NEWER = archs.load("gfx942", DEFAULT_API), archs.load("gfx942", NEWER_API)
NEWER_950 = archs.load("gfx950", NEWER_API)
EIGHT = {"block": (128, 128, 32), "waves": (4, 2, 1), "mma": (16, 16, 32)}
TWO_WAVES = {"waves": (1, 2, 1), "mma": (16, 16, 32)}
SPLIT = {"split_k": True, "pad_k": True}


def broken_rules(changes: Any, arch: Arch) -> list[str]:
    return [violation.code for violation in find_violations(GEMM.rules, GEMM.make_example(changes), arch)]


def broken_fit_rules(changes: Any, problem: Any, arch: Arch) -> list[str]:
    types = {name: value for name, value in expand_dtype(problem.get("dtype", "fp16")).items() if name != "dtype_acc"}
    sizes = {name: value for name, value in problem.items() if name != "dtype"}
    made = Problem(**{"m": 256, "n": 256, "k": 256, "layout": "rcr", **types, **sizes})
    return [violation.code for violation in find_violations(GEMM.fit_rules, GEMM.make_example(changes), made, arch)]


@pytest.mark.parametrize(
    ("changes", "earlier", "newer"),
    [
        ({"variant": "batched", "pipeline": "compv4"}, ["P322"], []),
        (COMPV5, [], ["P324"]),
        (EIGHT, [], []),
        ({**TWO_WAVES, "block": (16, 128, 32)}, [], []),
        ({**TWO_WAVES, "block": (16, 128, 32), "vector": (4, 8, 8)}, [], []),
        ({**TWO_WAVES, "block": (16, 128, 32), "vector": (8, 8, 8)}, [], ["P326"]),
    ],
)
def test_rules_of_generations(changes: Any, earlier: list[str], newer: list[str]) -> None:
    assert broken_rules(changes, EARLIER) == earlier
    assert broken_rules(changes, NEWER) == newer


def test_compv6_on_rdna3_takes_8_bit_types_only_since_2026() -> None:
    newer = archs.load("gfx1100", NEWER_API)
    small = {"block": (64, 64, 32), "mma": (16, 16, 16), "pipeline": "compv6"}
    assert broken_rules(small, newer) == ["P325"]
    assert broken_rules({**small, **expand_dtype("int8")}, newer) == []


def test_eight_waves_on_gfx950_need_the_default_epilogue_or_one_mma_tile_along_n_since_2026() -> None:
    assert broken_rules(EIGHT, archs.load("gfx950", DEFAULT_API)) == []
    assert broken_rules(EIGHT, NEWER_950) == ["T206"]
    assert broken_rules({**EIGHT, "epilogue": "default"}, NEWER_950) == []
    assert broken_rules({**EIGHT, "waves": (1, 8, 1)}, NEWER_950) == []


def test_parts_of_k_may_take_different_numbers_of_steps_since_2026() -> None:
    uneven = {"k": 32 * 4, "k_batch": 3}  # 8 mma tiles of 16: 3, 3 and 2, in steps of 2
    assert broken_fit_rules({**SPLIT, "mma": (32, 32, 16)}, uneven, EARLIER) == ["S506"]
    assert broken_fit_rules({**SPLIT, "mma": (32, 32, 16)}, uneven, NEWER) == []


def test_no_part_of_k_is_empty() -> None:
    config = {**SPLIT, "mma": (32, 32, 16)}
    assert broken_fit_rules(config, {"k": 40, "k_batch": 3}, NEWER) == []  # 16, 16 and 8
    assert broken_fit_rules(config, {"k": 32, "k_batch": 3}, NEWER)[0] == "S506"


@pytest.mark.parametrize(("k", "k_batch"), [(256, 1), (24, 1), (256, 3), (264, 4), (40, 3), (112, 5), (136, 3)])
def test_parts_add_up_to_k(k: int, k_batch: int) -> None:
    for ck in (DEFAULT_API, NEWER_API):
        sizes = [resources.part_size(number, k, k_batch, 16, ck) for number in range(k_batch)]
        assert sum(sizes) == k
        assert set(resources.list_part_sizes(k, k_batch, 16, ck)) == set(sizes)
    assert max(sizes) - min(sizes) < 2 * 16


def test_bf16_parts_are_added_within_the_edge_of_c_since_2026() -> None:
    config, problem = {**expand_dtype("bf16"), "split_k": True}, {"dtype": "bf16", "k_batch": 2, "m": 200}
    assert broken_fit_rules(config, problem, EARLIER) == ["S510"]
    assert broken_fit_rules(config, problem, NEWER) == []


@pytest.mark.parametrize("dtype_c", ["fp16", "fp32"])
@pytest.mark.parametrize("api", [DEFAULT_API, NEWER_API], ids=lambda api: api.generation)
def test_floats_are_added_beyond_the_edge_of_c_on_rdna_3(api: CkApi, dtype_c: str) -> None:
    changes = {"block": (64, 64, 32), "mma": (16, 16, 16), "split_k": True, "dtype_c": dtype_c}
    problem = {"k_batch": 2, "m": 200, "dtype_c": dtype_c}
    assert broken_fit_rules(changes, problem, archs.load("gfx1100", api)) == ["S510"]
    assert broken_fit_rules(changes, {**problem, "m": 192}, archs.load("gfx1100", api)) == []
    assert broken_fit_rules(changes, problem, archs.load("gfx1201", api)) == []
    text = render(GEMM.make_kernel(GEMM.make_example(changes), "gfx1100"), api).text
    assert "unbounded_add = true" in text


@pytest.mark.parametrize(
    ("changes", "gpu", "earlier", "newer"),
    [
        # The epilogue stages 128 × 64 elements of 4 bytes instead of 64 × 64.
        ({"block": (128, 64, 16), "mma": (32, 32, 16), "dtype_c": "fp32"}, "gfx942", 16384, 32768),
        # Two buffers of the pipeline, not of the epilogue.
        (
            {"pipeline": "compv4", "block": (128, 128, 16), "mma": (32, 32, 16), "dtype_c": "fp32"},
            "gfx942",
            32768,
            16384,
        ),
        # 63 words between 64 lines of 256 bytes.
        ({"block": (64, 64, 16), "mma": (32, 32, 16), "dtype_c": "fp32"}, "gfx950", 16384, 16384 + 63 * 4),
        # All 128 columns at a time.
        ({**EIGHT, "pipeline": "mem", "block": (64, 128, 32)}, "gfx942", 12288, 16384),
    ],
)
def test_lds_of_generations(changes: Any, gpu: str, earlier: int, newer: int) -> None:
    config = GEMM.make_example(changes)
    for api, size in ((DEFAULT_API, earlier), (NEWER_API, newer)):
        assert GEMM.kind(config).lds_bytes(config, archs.load(gpu, api)) == size


def test_a_permuted_c_is_not_staged_since_2026() -> None:
    config = GEMM.make_example({**preshuffle.EXAMPLE, "permute_n": True, "block": (16, 128, 64), "dtype_c": "fp32"})
    kind = GEMM.kind(config)
    assert kind.lds_bytes(config, NEWER) == 2 * resources.pipeline_lds_bytes(config)


def test_trials_split_k_unevenly_since_2026() -> None:
    assert GEMM.execution is not None
    config = GEMM.make_example({**SPLIT, "block": (64, 64, 32)})
    uneven = {(problem.k, problem.k_batch) for problem in GEMM.execution.trials(config, NEWER)}
    assert (32 * 7, 3) in uneven
    assert (32 * 7, 3) not in {(problem.k, problem.k_batch) for problem in GEMM.execution.trials(config, EARLIER)}
