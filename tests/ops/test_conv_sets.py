"""The shipped sets of grouped_conv: their sizes, and that the small ones leave no convolution out."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.ops import find_op, fits
from tilewright.ops.builtin_sets import find_space
from tilewright.ops.grouped_conv.config import DIRECTIONS, NDIMS, Config
from tilewright.ops.grouped_conv.padding import pad_problem
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.kernel_set import KernelSet

CONV = find_op("grouped_conv")
SETS: dict[str, KernelSet] = dict(CONV.sets())
# Kernels for each type and number of dimensions.
SIZES = {"small": (4, 10), "default": (20, 60), "full": (80, 200)}
NAMES = {
    *(f"{direction}_{size}" for direction in DIRECTIONS for size in SIZES),
    *(f"fp32_{direction}_{size}" for direction in DIRECTIONS for size in ("small", "default")),
    *(f"rdna_{direction}" for direction in DIRECTIONS),
    "gfx950_forward",
}
# Sets that compute everything of their direction.
WHOLE = sorted(name for name in NAMES if name.startswith("rdna") or name.endswith("small"))
# Sizes and channels as networks have them, those that no vector divides among them.
CHANNELS: list[dict[str, Any]] = [
    {"c": 64, "k": 256},
    {"c": 3, "k": 64},
    {"c": 52, "k": 156},
    {"c": 7, "k": 5},
    {"c": 1, "k": 1},
    {"c": 256, "k": 21},
    {"c": 32, "k": 32, "g": 32},
    {"c": 32, "k": 64, "g": 4},
    {"c": 33, "k": 66, "g": 33},
]
FILTERS: list[dict[str, Any]] = [
    {"filter_size": 1},
    {"filter_size": 1, "stride": 2},
    {"filter_size": 3, "pad": 1},
    {"filter_size": 3, "pad": 2, "dilation": 2},
    {"filter_size": 7, "stride": 2, "left_pad": 3, "right_pad": 2},
]


def members(name: str, arch: str) -> list[Config]:
    configs = [kernel.config for kernel in SETS[name].kernels(arch)]
    assert all(isinstance(config, Config) for config in configs)
    return configs  # type: ignore[return-value]


def direction_of(name: str) -> str:
    return next(direction for direction in DIRECTIONS if direction in name)


def dtypes_of(name: str) -> tuple[str, ...]:
    return ("fp32",) if name.startswith("fp32") else ("fp16", "bf16")


def problems(direction: str, ndim: int, dtype: str) -> list[Problem]:
    image = {"direction": direction, "n": 2, "input_size": (14,) * ndim, "dtype": dtype}
    return [Problem(**image, **channels, **filters) for channels in CHANNELS for filters in FILTERS]


def test_the_sets_are_these() -> None:
    assert set(SETS) == NAMES
    assert set(CONV.spaces()) == {"default_grid"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_set_has_its_direction_and_types_in_all_dimensions(name: str) -> None:
    least, most = SIZES.get(name.rpartition("_")[2], (6, 12))
    for arch in SETS[name].archs:
        configs = members(name, arch)
        assert {config.direction for config in configs} == {direction_of(name)}
        counts = Counter((config.ndim, config.dtype_a) for config in configs)
        assert set(counts) == {(ndim, dtype) for ndim in NDIMS for dtype in dtypes_of(name)}
        assert all(least <= count <= most for count in counts.values()), counts


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", ["", "fp32_"])
def test_a_larger_set_has_all_of_a_smaller_one(direction: str, kind: str) -> None:
    names = [f"{kind}{direction}_{size}" for size in SIZES if f"{kind}{direction}_{size}" in SETS]
    for smaller, larger in itertools.pairwise(names):
        assert set(members(smaller, "gfx942")) < set(members(larger, "gfx942"))


@pytest.mark.parametrize("name", WHOLE)
def test_a_small_set_computes_every_problem(name: str) -> None:
    """Without padding, but for the one set in which no kernel loads single elements of both operands."""
    direction = direction_of(name)
    for arch in SETS[name].archs:
        spec = archs.load(arch)
        configs = members(name, arch)
        for ndim in NDIMS:
            for dtype in dtypes_of(name):
                own = [c for c in configs if (c.ndim, c.dtype_a) == (ndim, dtype)]
                for problem in problems(direction, ndim, dtype):
                    assert any(pad_problem(config, problem, spec) for config in own), f"{name} on {arch}: {problem}"
                    if name != "rdna_backward_weight":
                        assert any(not fits(config, problem, arch) for config in own), f"{name} on {arch}: {problem}"


@pytest.mark.parametrize("name", [name for name in WHOLE if "backward_weight" in name])
def test_a_small_set_splits_the_sums_of_weights(name: str) -> None:
    for arch in SETS[name].archs:
        for dtype in dtypes_of(name):
            own = [c for c in members(name, arch) if (c.ndim, c.dtype_a) == (2, dtype)]
            image = {"n": 8, "c": 64, "k": 64, "input_size": (28, 28), "filter_size": 3, "pad": 1, "dtype": dtype}
            problem = Problem(direction="backward_weight", k_batch=4, **image)
            assert any(not fits(config, problem, arch) for config in own), f"{name} on {arch} in {dtype}"


def test_the_blocks_of_the_public_sweep_are_in_the_default_set() -> None:
    """10 blocks × compv3 and compv4; gfx950_forward has the one that needs more than 64 KiB."""
    blocks = {"16x64x64", "16x64x128", "32x64x64", "32x64x128", "32x128x64"}
    blocks |= {"64x64x64", "64x64x128", "64x128x64", "128x64x128", "128x128x64"}
    configs = [*members("forward_default", "gfx950"), *members("gfx950_forward", "gfx950")]
    for pipeline in ("compv3", "compv4"):
        found = {str(config.block) for config in configs if config.pipeline == pipeline}
        assert blocks <= found, f"{pipeline} lacks {blocks - found}"


def test_the_named_space_has_kernels_in_every_direction() -> None:
    for direction in DIRECTIONS:
        space = find_space(CONV, "default_grid", direction=direction, pipeline="compv3", waves="2x2x1")
        report = space.report("gfx942")
        assert report.raw == 20_000
        assert 200 < report.legal < report.raw, report
