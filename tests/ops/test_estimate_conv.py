"""Estimates of convolution kernels: sound for every legal kernel, and right in what they tell apart."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import all_kernels

from tilewright.arch import Arch, load
from tilewright.ops import grouped_conv
from tilewright.ops.cost_model.cost import Estimate, Facts, ResourceUse

COST = grouped_conv.OP.cost
assert COST is not None
ARCH = load("gfx950")


def problem(config: Any, **changes: Any) -> grouped_conv.Problem:
    values = {
        "direction": config.direction, "n": 8, "c": 64, "k": 64, "input_size": (28,) * config.ndim,
        "filter_size": (3,) * config.ndim, "pad": 1,
        "dtype_a": config.dtype_a, "dtype_b": config.dtype_b, "dtype_c": config.dtype_c,
    }  # fmt: skip
    return grouped_conv.Problem(**(values | changes))


def config(**changes: Any) -> Any:
    return grouped_conv.OP.make_example(changes)


def estimated(config: Any, arch: Arch = ARCH, use: ResourceUse | None = None, **changes: Any) -> Estimate:
    facts = Facts(**COST.problem_numbers(problem(config, **changes)))
    return COST.estimate(facts, Facts(**COST.kernel_numbers(config, arch, use)), arch)


@given(
    index=st.integers(0, 10**6), n=st.sampled_from([1, 3, 64]), c=st.sampled_from([1, 3, 8, 100, 512]),
    k=st.sampled_from([1, 16, 200, 2048]), g=st.sampled_from([1, 2, 16]), size=st.sampled_from([7, 14, 33, 112]),
    taps=st.sampled_from([1, 2, 3, 7]), stride=st.sampled_from([1, 2, 3]), split=st.sampled_from([1, 4]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_every_legal_kernel_has_an_estimate(
    *, index: int, n: int, c: int, k: int, g: int, size: int, taps: int, stride: int, split: int
) -> None:
    kernels = all_kernels("grouped_conv", 25)
    drawn, arch = kernels[index % len(kernels)]
    extents = {
        "input_size": (size,) * drawn.ndim,
        "filter_size": (taps,) * drawn.ndim,
        "stride": (stride,) * drawn.ndim,
    }
    groups = g * drawn.merge_groups
    sizes = {"n": n, "c": c * groups, "k": k * groups, "g": groups, "k_batch": split, "pad": 0, **extents}
    facts = Facts(**COST.problem_numbers(problem(drawn, **sizes)))
    numbers = Facts(**COST.kernel_numbers(drawn, arch, None))
    found = COST.estimate(facts, numbers, arch)
    assert math.isfinite(found.us)
    assert found.us > arch.compute.launch_us
    assert all(math.isfinite(value) and value >= 0 for value in found.terms.values())
    assert all(math.isfinite(value) and value > 0 for value in found.shape.values())
    assert all(math.isfinite(value) for value in COST.features(facts, numbers, found, arch).values())
    images = Facts(**COST.problem_numbers(problem(drawn, **{**sizes, "n": 2 * n})))
    assert COST.estimate(images, numbers, arch).us >= found.us * (1 - 1e-12)
    for name in ("c", "k"):
        channels = Facts(**COST.problem_numbers(problem(drawn, **{**sizes, name: 2 * sizes[name]})))
        assert COST.estimate(channels, numbers, arch).us >= found.us * (1 - 1e-12), name


def test_the_gemm_inside() -> None:
    forward = COST.problem_numbers(problem(config(), g=2))
    assert [forward[name] for name in ("m", "n", "k", "batch")] == [8 * 28 * 28, 32, 9 * 32, 2]
    assert (forward["taps"], forward["channels"], forward["stride"]) == (9, 32, 1)


def test_the_gradient_of_the_input_is_a_product_for_every_remainder() -> None:
    backward = config(direction="backward_data")
    whole = COST.problem_numbers(problem(backward))
    strided = COST.problem_numbers(problem(backward, stride=(2, 2)))
    assert [whole[name] for name in ("m", "n", "k", "batch")] == [8 * 28 * 28, 64, 9 * 64, 1]
    # Four remainders with a quarter of the positions and at most two taps in each dimension.
    assert [strided[name] for name in ("m", "n", "k", "batch")] == [8 * 14 * 14, 64, 4 * 64, 4]
    # A 1x1 filter has taps for one remainder only.
    point = COST.problem_numbers(problem(backward, stride=(2, 2), filter_size=(1, 1), pad=0))
    assert [point[name] for name in ("m", "k", "batch")] == [8 * 14 * 14, 64, 1]


def test_a_plain_gemm_spares_the_arithmetic_of_addresses() -> None:
    one = {"filter_size": (1, 1), "pad": 0}
    implicit = estimated(config(specialization="filter1x1_stride1_pad0"), **one)
    explicit = estimated(config(specialization="filter1x1_stride1_pad0", explicit_gemm=True), **one)
    assert explicit.terms["vector"] < implicit.terms["vector"] / 2
    assert explicit.us < implicit.us


def test_wider_vectors_are_fewer_loads() -> None:
    narrow, wide = (estimated(config(vector=(vector, 8, 8))) for vector in (1, 8))
    assert wide.terms["vector"] < narrow.terms["vector"]
    assert wide.terms["matrix"] == narrow.terms["matrix"]


def test_two_stages_cost_a_launch_and_memory() -> None:
    kernels = {two: config(direction="backward_weight", vector=(8, 8, 8), two_stage=two) for two in (False, True)}
    one, two = (estimated(kernel, c=1024, k=1024) for kernel in kernels.values())
    assert two.terms["launch"] == one.terms["launch"] + ARCH.compute.launch_us
    # fp32 sums are written and read once more.
    more = (two.terms["memory"] - one.terms["memory"]) * ARCH.memory.bandwidth_gbs * 1e3
    assert more == pytest.approx(2 * 4 * 1024 * 1024 * 9)


def test_the_registers_of_a_compiled_kernel_count() -> None:
    free = ResourceUse(vgprs=64, agprs=0, sgprs=40, lds_bytes=16384, scratch_bytes=0)
    full = ResourceUse(vgprs=256, agprs=0, sgprs=40, lds_bytes=16384, scratch_bytes=0)
    large = {"n": 256, "k": 256}
    assert estimated(config(), use=free, **large).shape["resident"] == 8
    assert estimated(config(), use=full, **large).shape["resident"] == 2
    assert estimated(config(), use=free, **large).us < estimated(config(), use=full, **large).us


# Block, waves, mma; registers of the compiled kernel (bf16, compv3, vectors 4x8x8, gfx950; clang 22).
COMPILED = [
    ((16, 64, 64), (1, 4, 1), (16, 16, 16), 71), ((32, 64, 64), (2, 2, 1), (16, 16, 16), 100),
    ((64, 64, 64), (4, 1, 1), (16, 16, 16), 153), ((32, 128, 64), (1, 4, 1), (32, 32, 16), 129),
    ((64, 128, 64), (2, 2, 1), (32, 32, 16), 190), ((128, 128, 64), (4, 4, 1), (32, 32, 16), 103),
    ((16, 64, 128), (1, 4, 1), (16, 16, 32), 115), ((32, 64, 128), (2, 2, 1), (16, 16, 32), 156),
    ((64, 64, 128), (4, 1, 1), (16, 16, 32), 231), ((128, 64, 128), (8, 2, 1), (16, 16, 32), 128),
]  # fmt: skip


@pytest.mark.parametrize(("block", "waves", "mma", "registers"), COMPILED)
def test_registers_before_compiling(block: Any, waves: Any, mma: Any, registers: int) -> None:
    kernel = config(block=block, waves=waves, mma=mma, vector=(4, 8, 8))
    numbers = COST.kernel_numbers(kernel, ARCH, None)
    assert numbers["registers"] == pytest.approx(registers, rel=0.15)
    use = ResourceUse(vgprs=registers, agprs=0, sgprs=90, lds_bytes=int(numbers["lds_bytes"]), scratch_bytes=0)
    assert abs(numbers["resident"] - COST.kernel_numbers(kernel, ARCH, use)["resident"]) <= 1


def test_merged_groups_are_one_product() -> None:
    groups = {"g": 64, "c": 64, "k": 64}
    single, merged = (estimated(config(merge_groups=n, vector=(1, 1, 1)), **groups) for n in (1, 8))
    assert single.shape["tiles"] == 64 * 49
    assert merged.shape["tiles"] == 8 * 49 * 8
