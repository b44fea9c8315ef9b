"""Estimates of GEMM kernels: sound for every legal kernel, and right in what they tell apart."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import all_kernels

from tilewright.arch import Arch, load
from tilewright.ops import gemm
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.cost_model.cost import Estimate, Facts, ResourceUse

COST = gemm.OP.cost
assert COST is not None
ARCH = load("gfx942")
SIZES = st.sampled_from([1, 2, 15, 16, 17, 100, 128, 1000, 1024, 4096, 20000])


def problem(config: Any, **changes: Any) -> gemm.Problem:
    values = {
        "m": 512, "n": 512, "k": 512, "layout": config.layout, "num_d": config.num_d, "elementwise": config.elementwise,
        "dtype_a": config.dtype_a, "dtype_b": config.dtype_b, "dtype_c": config.dtype_c,
    }  # fmt: skip
    return gemm.Problem(**(values | changes))


def estimated(config: Any, arch: Arch = ARCH, use: ResourceUse | None = None, **changes: Any) -> Estimate:
    facts = Facts(**COST.problem_numbers(problem(config, **changes)))
    return COST.estimate(facts, Facts(**COST.kernel_numbers(config, arch, use)), arch)


def config(**changes: Any) -> Any:
    return gemm.OP.make_example(changes)


@given(index=st.integers(0, 10**6), m=SIZES, n=SIZES, k=SIZES, split=st.sampled_from([1, 2, 7]))
@settings(max_examples=150, deadline=None)
def test_every_legal_kernel_has_an_estimate(index: int, m: int, n: int, k: int, split: int) -> None:
    kernels = all_kernels("gemm", 25)
    drawn, arch = kernels[index % len(kernels)]
    batch = 3 if drawn.variant == "batched" else 1
    facts = Facts(**COST.problem_numbers(problem(drawn, m=m, n=n, k=k, k_batch=split, batch=batch)))
    numbers = Facts(**COST.kernel_numbers(drawn, arch, None))
    found = COST.estimate(facts, numbers, arch)
    assert math.isfinite(found.us)
    assert found.us > arch.compute.launch_us
    assert all(math.isfinite(value) and value >= 0 for value in found.terms.values())
    assert all(math.isfinite(value) and value > 0 for value in found.shape.values())
    assert all(math.isfinite(value) for value in COST.features(facts, numbers, found, arch).values())
    for name in ("m", "n", "k", "batch"):
        twice = Facts(**{**vars(facts), name: 2 * getattr(facts, name)})
        assert COST.estimate(twice, numbers, arch).us >= found.us * (1 - 1e-12), name


def test_what_a_compiled_kernel_uses_decides_how_many_fit() -> None:
    use = ResourceUse(vgprs=64, agprs=0, sgprs=40, lds_bytes=16384, scratch_bytes=0)
    large = {"m": 8192, "n": 8192}
    fits = {
        changes: estimated(config(), use=dataclasses.replace(use, **dict(changes)), **large).shape["resident"]
        for changes in ((), (("vgprs", 256),), (("vgprs", 128), ("agprs", 128)), (("lds_bytes", 65536),))
    }
    # 64 KiB of LDS hold four blocks of 16 KiB; 512 registers two waves of 256.
    assert list(fits.values()) == [4, 2, 2, 1]
    clean, spilled = (estimated(config(), use=dataclasses.replace(use, scratch_bytes=n), **large) for n in (0, 128))
    assert spilled.us > clean.us


def test_splitting_k_helps_few_tiles_only() -> None:
    split = config(split_k=True)
    assert estimated(split, m=128, n=128, k=65536, k_batch=16).us < estimated(split, m=128, n=128, k=65536).us / 4
    assert estimated(split, m=8192, n=8192, k=1024, k_batch=4).us > estimated(split, m=8192, n=8192, k=1024).us


def test_a_small_tile_for_small_problems_and_a_large_one_for_large() -> None:
    tiles = {block: config(block=block, waves=(2, 2, 1)) for block in ((64, 64, 64), (256, 256, 32))}
    small = {block: estimated(each, m=256, n=256, k=4096).us for block, each in tiles.items()}
    large = {block: estimated(each, m=8192, n=8192, k=4096).us for block, each in tiles.items()}
    assert min(small, key=small.__getitem__) == (64, 64, 64)
    assert min(large, key=large.__getitem__) == (256, 256, 32)


def test_layouts_differ_in_lines_and_instructions() -> None:
    along_k, across = estimated(config(layout="rcr")), estimated(config(layout="crr"))
    # Rows of 32 fp16 elements are half a line each; rows of 128 are two whole ones.
    assert along_k.terms["fetch"] == 2 * across.terms["fetch"]
    # What is not contiguous along k is put in order before it is written to LDS.
    assert across.terms["vector"] > along_k.terms["vector"]


def test_an_eight_bit_type_has_twice_the_rate_and_half_the_bytes() -> None:
    wide, narrow = (estimated(config(**expand_dtype(dtype), block=(128, 128, 64))) for dtype in ("fp16", "fp8"))
    assert wide.terms["matrix"] == pytest.approx(2 * narrow.terms["matrix"], rel=1e-3)
    assert wide.terms["lds"] == 2 * narrow.terms["lds"]


def test_d_tensors_are_read() -> None:
    none, two = (estimated(config(variant="multi_d", elementwise="MultiDAdd", num_d=n), m=4096, n=4096) for n in (0, 2))
    assert two.terms["memory"] > none.terms["memory"]
    assert two.terms["ends"] > none.terms["ends"]
