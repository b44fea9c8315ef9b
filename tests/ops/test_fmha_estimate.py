"""Estimates of attention kernels: finite for all of them, the same as columns, and ordered as one expects."""

from __future__ import annotations

import dataclasses
import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops import fmha
from tilewright.ops.cost_model.cost import Estimate, ResourceUse
from tilewright.ops.fmha.estimate import COST
from tilewright.ops.fmha.kinds import KINDS
from tilewright.ops.fmha.stages import plan_next_stage
from tilewright.ops.fmha.trials import list_trials

GFX942, GFX950 = archs.load("gfx942"), archs.load("gfx950")
LARGE = "128x128x32x128x32x128/4x1x1x4x1x1/32x32x16x32x32x16"
SMALL = "64x64x32x128x32x128/4x1x1x4x1x1/16x16x16x16x16x16"
FLAT = "16x128x32x128x32x128/1x4x1x1x4x1/16x16x16x16x16x16"


def facts(numbers: Any) -> SimpleNamespace:
    return SimpleNamespace(**numbers)


def estimated(config: Any, problem: fmha.Problem, arch: Arch = GFX942, use: ResourceUse | None = None) -> Estimate:
    return COST.estimate(facts(COST.problem_numbers(problem)), facts(COST.kernel_numbers(config, arch, use)), arch)


def kernel(tile: str = LARGE, **values: Any) -> Any:
    plain = {"family": "forward", "mode": "batch", "dtype": "fp16", "pipeline": "qr", "pad_q": True, "pad_k": True}
    return fmha.config(tile=tile, **{**plain, **values})


def attention(**values: Any) -> fmha.Problem:
    plain = {"family": "forward", "dtype": "fp16", "batch": 2, "heads": 16, "seqlen_q": 4096, "hdim_q": 128}
    return fmha.Problem(**{**plain, **values})


def drawn(arch: Arch, seed: int, number: int) -> list[Any]:
    rng, kinds = random.Random(seed), list_strata(fmha.OP, arch)
    found = [draw_legal(fmha.OP, arch, rng, fixed) for fixed in rng.sample(kinds, min(number, len(kinds)))]
    return [config for config in found if config is not None]


@pytest.mark.parametrize("gpu", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_every_kernel_has_a_finite_estimate_for_all_that_it_computes(gpu: str) -> None:
    arch = archs.load(gpu)
    use = ResourceUse(vgprs=96, agprs=0, sgprs=64, lds_bytes=16384, scratch_bytes=128)
    families, problems, kernels = set(), set(), set()
    for config in drawn(arch, 5, 50):
        families.add(config.family)
        for problem in list_trials(config, arch)[:6]:
            p, k = COST.problem_numbers(problem), COST.kernel_numbers(config, arch, None)
            problems.add(tuple(p))
            kernels.add(tuple(k))
            for known in (k, COST.kernel_numbers(config, arch, use)):
                estimate = COST.estimate(facts(p), facts(known), arch)
                assert math.isfinite(estimate.us) and estimate.us > 0, (config, problem)
                assert all(math.isfinite(us) and us >= 0 for us in estimate.terms.values()), (config, problem)
                made = COST.features(facts(p), facts(known), estimate, arch)
                assert all(math.isfinite(value) for value in made.values()), (config, problem)
    assert len(problems) == len(kernels) == 1, "all problems and all kernels have the same names"
    assert families >= {"combine", "appendkv", "dot_do_o", "convert_dq"}
    assert families == {kind.name for kind in KINDS} or arch.matrix == "wmma"


def test_a_problem_of_several_kernels_is_estimated_by_stages() -> None:
    with pytest.raises(InvalidValueError, match="estimate its stages"):
        COST.problem_numbers(attention(family="backward"))


# Steps


def visible(problem: fmha.Problem) -> list[tuple[int, int]]:
    """First and last key of each query, one by one; last is before first where there is none."""
    shift = problem.seqlen_k - problem.seqlen_q if problem.mask == "bottom_right" else 0
    left = problem.window_left if problem.window_left >= 0 else math.inf
    right = problem.window_right if problem.window_right >= 0 else math.inf
    if problem.mask == "none":
        return [(0, problem.seqlen_k - 1)] * problem.seqlen_q
    rows = range(shift, shift + problem.seqlen_q)
    return [(int(max(0, i - left)), int(min(problem.seqlen_k - 1, i + right))) for i in rows]


masks = st.fixed_dictionaries(
    {
        "mask": st.sampled_from(["top_left", "bottom_right"]),
        "window_left": st.sampled_from([-1, 0, 63, 127, 300]),
        "window_right": st.sampled_from([-1, 0, 5, 64]),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 900), st.integers(1, 900), st.just({}) | masks)
def test_what_a_mask_hides_is_counted_and_its_steps_nearly(queries: int, keys: int, values: dict[str, Any]) -> None:
    problem = attention(seqlen_q=queries, seqlen_k=keys, **values)
    rows = visible(problem)
    seen = [max(0, last - first + 1) for first, last in rows]
    numbers = COST.problem_numbers(problem)
    assert numbers["seen_keys"] == pytest.approx(sum(seen) / queries)
    assert numbers["seen_queries"] == pytest.approx(sum(seen) / keys)
    assert numbers["longest_keys"] >= max(seen)
    for tile, m0, n0 in ((LARGE, 128, 128), (SMALL, 64, 64)):
        steps = []
        for start in range(0, queries, m0):
            block = [row for row in rows[start : start + m0] if row[1] >= row[0]]
            ends = (min(row[0] for row in block) // n0, max(row[1] for row in block) // n0) if block else (0, -1)
            steps.append(ends[1] - ends[0] + 1)
        found = estimated(kernel(tile, mask_form="any"), problem).shape["steps"]
        # Ends that are not on the grid of tiles cost up to a tile each.
        assert found == pytest.approx(sum(steps) / len(steps), abs=2 if values else 1e-9)


def test_a_causal_mask_halves_long_attention_and_a_window_all_but_removes_it() -> None:
    causal = kernel(mask_form="any")
    whole = estimated(kernel(), attention(seqlen_q=16384)).us
    half = estimated(causal, attention(seqlen_q=16384, mask="top_left")).us
    window = estimated(causal, attention(seqlen_q=16384, mask="top_left", window_left=255)).us
    assert 0.48 < half / whole < 0.56
    assert window < whole / 20


def test_gradients_walk_the_other_way() -> None:
    """Blocks of dq_dk_dv are tiles of keys: with a causal mask each sees about half of the queries."""
    tile = "32x128x64x32x64x32x32x64x64/1x4x1x4x1x1x1x4x1/16x16x32x16x16x16x16x16x32"
    config = kernel(tile, family="dq_dk_dv", pipeline="kr_ktr_vr", pad_q=False, pad_k=False, mask_form="any")
    problem = attention(family="dq_dk_dv", seqlen_q=2048, seqlen_k=4096, hdim_q=64)
    whole = estimated(config, problem)
    half = estimated(config, dataclasses.replace(problem, mask="bottom_right"))
    assert whole.shape["tiles"] == 2 * 16 * 4096 / 128 and whole.shape["steps"] == 2048 / 32
    # The first half of the keys is before all queries, which see it whole.
    assert half.shape["steps"] / whole.shape["steps"] == pytest.approx(0.75, abs=0.03)


# Orders


@pytest.mark.parametrize("arch", [GFX942, GFX950], ids=lambda arch: arch.name)
def test_larger_heads_cost_more(arch: Arch) -> None:
    tiles = {
        64: "128x64x32x64x32x64/4x1x1x4x1x1/32x32x16x32x32x16",
        128: LARGE,
        256: "128x128x32x256x32x256/4x1x1x4x1x1/32x32x16x32x32x16",
    }
    times = [estimated(kernel(tile), attention(hdim_q=hdim), arch).us for hdim, tile in tiles.items()]
    # The softmax is the same, so that twice the head is less than twice the time.
    assert times[0] * 1.1 < times[1] < times[2] / 1.3 and times[2] < 4 * times[0]


def test_large_tiles_are_for_long_sequences_and_small_ones_for_short() -> None:
    long, short = attention(), attention(batch=1, seqlen_q=64)
    assert estimated(kernel(LARGE), long).us < estimated(kernel(SMALL), long).us
    assert estimated(kernel(SMALL), short).us < estimated(kernel(LARGE), short).us


def test_what_is_compiled_in_costs_time() -> None:
    problem = attention()
    plain = estimated(kernel(), problem).us
    for values in ({"bias": "alibi"}, {"bias": "elementwise"}, {"soft_cap": True}, {"dropout": True}):
        assert plain < estimated(kernel(**values), problem).us < 3 * plain
    assert estimated(kernel(bias="alibi"), problem).us < estimated(kernel(dropout=True), problem).us


def test_pipelines_that_work_ahead_are_faster() -> None:
    problem = attention(seqlen_q=16384)
    plain, ahead = (estimated(kernel(pipeline=name), problem, GFX950).us for name in ("qr", "qr_whole_k"))
    in_turn = kernel("256x32x128x128x32x128/8x1x1x8x1x1/32x32x16x32x32x16", pipeline="v3")
    assert estimated(in_turn, problem, GFX950).us < ahead < plain


def test_registers_of_the_compiled_kernel_count() -> None:
    def with_registers(vgprs: int, scratch: int = 0) -> float:
        use = ResourceUse(vgprs=vgprs, agprs=0, sgprs=64, lds_bytes=8192, scratch_bytes=scratch)
        return float(estimated(kernel(), attention(batch=8), use=use).us)

    assert with_registers(120) < with_registers(168) < with_registers(256) < with_registers(256, scratch=256)


def test_gradients_cost_more_than_twice_the_attention() -> None:
    problem = attention(family="backward", hdim_q=64, batch=4)
    tile = "32x128x64x32x64x32x32x64x64/1x4x1x4x1x1x1x4x1/16x16x32x16x16x16x16x16x32"
    chosen = (
        fmha.config(family="dot_do_o", mode="batch", dtype="fp16", pipeline="dot_do_o", block=(64, 64)),
        kernel(tile, family="dq_dk_dv", pipeline="kr_ktr_vr", pad_q=False, pad_k=False),
        fmha.config(family="convert_dq", mode="batch", dtype="fp16", pipeline="convert_dq", block=(256, 64, 128, 64)),
    )
    times = []
    for i, config in enumerate(chosen):
        stage = plan_next_stage(problem, chosen[:i])
        assert stage is not None and stage.family == config.family
        times.append(estimated(config, stage).us)
    tile = "128x64x32x64x32x64/4x1x1x4x1x1/32x32x16x32x32x16"
    forward = estimated(kernel(tile), dataclasses.replace(problem, family="forward")).us
    assert 2 * forward < sum(times) < 8 * forward
    assert times[0] + times[2] < times[1] / 4


# Parts


def in_parts(problem: fmha.Problem, parts: int) -> float:
    """The fastest plan of splitkv and combine, over some tiles, with heads together or apart."""
    whole = dataclasses.replace(problem, num_splits=parts)
    first = plan_next_stage(whole, ())
    assert first is not None
    pipelines = {FLAT: "qr_nwarp_sshuffle", SMALL: "qr", LARGE: "qr"}
    chosen = [
        kernel(tile, family="splitkv", pipeline=name, merge_heads=merged, uneven_splits=True)
        for tile, name in pipelines.items()
        for merged in (False, True)
    ]
    second = plan_next_stage(whole, (chosen[0],))
    assert second is not None
    block = {"block": (32, 128), "log_max_splits": 4, "pad_q": True}
    join = fmha.config(family="combine", mode="batch", dtype="fp16", pipeline="combine", **block)
    return float(min(estimated(config, first).us for config in chosen) + estimated(join, second).us)


def test_decoding_with_few_heads_takes_many_parts() -> None:
    problem = attention(batch=1, heads=8, kv_heads=2, seqlen_q=1, seqlen_k=16384)
    times = [in_parts(problem, parts) for parts in (1, 2, 4, 8, 16)]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0] / 6
    assert times[-1] < estimated(kernel(SMALL), problem).us / 6


def test_decoding_of_many_sequences_takes_few_parts() -> None:
    """Their blocks fill the GPU: parts only add results to write and to read again."""
    problem = attention(batch=512, heads=32, kv_heads=8, seqlen_q=1, seqlen_k=1024)
    times = {parts: in_parts(problem, parts) for parts in (1, 2, 4, 8, 16)}
    assert min(times, key=lambda parts: times[parts]) <= 2
    assert times[16] > 1.2 * times[1]


def test_long_prompts_take_no_parts() -> None:
    problem = attention(batch=1, heads=32, kv_heads=8)
    times = [in_parts(problem, parts) for parts in (1, 2, 4, 8, 16)]
    assert estimated(kernel(), problem).us < min(times)
    assert times[4] > times[3] > times[2] > 0.98 * min(times)


def test_heads_that_share_keys_are_computed_together_when_decoding() -> None:
    def merged(flag: bool, **sizes: Any) -> float:
        problem = attention(family="splitkv", num_splits=1, heads=32, kv_heads=4, seqlen_k=4096, **sizes)
        return float(estimated(kernel(SMALL, family="splitkv", merge_heads=flag), problem).us)

    assert merged(True, batch=128, seqlen_q=1) < merged(False, batch=128, seqlen_q=1) / 3
    assert merged(True, seqlen_q=4096) == pytest.approx(merged(False, seqlen_q=4096), rel=0.05)


def test_sequences_of_different_lengths_are_bound_by_the_longest() -> None:
    config = kernel(mode="group")
    even = attention(mode="group", batch=16, heads=2, seqlen_q=512, total_q=8192, total_k=8192)
    uneven = attention(mode="group", batch=16, heads=2, seqlen_q=8192 - 15, total_q=8192, total_k=8192)
    assert estimated(config, even).us < estimated(config, uneven).us
    assert estimated(config, uneven).terms["longest"] > 10 * estimated(config, even).terms["longest"]
