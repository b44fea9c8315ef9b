"""Tile arithmetic: T2xx."""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch, Shape
from tilewright.ops.gemm import resources
from tilewright.ops.gemm.distribution import coverage_fault
from tilewright.ops.gemm.rules.examples import COMPV5_WAVES, TILES
from tilewright.ops.rule import Fault, rule


@rule(
    "T201",
    "block-not-covered",
    reads=TILES,
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (96, 128, 32)},
)
def block_not_covered(config: Any, arch: Arch) -> Fault | None:
    """The block must be a whole number of waves × mma in m, n and k.

    Why: every wave computes the same number of matrix tiles; what is left over would not be computed.

    Fix: make the block a multiple of waves × mma, or choose waves and mma that divide it.
    """
    for name, block, waves, mma in zip("mnk", config.block, config.waves, config.mma, strict=True):
        step = waves * mma
        if block % step:
            below, above = block // step * step, -(-block // step) * step
            near = f"{above}" if below == 0 else f"{below} or {above}"
            fixed = Shape(**{**config.block._asdict(), name: below or above})
            return Fault(
                f"block {name} = {block} is not a multiple of {waves} waves × {mma} = {step}; nearest: {near}",
                "block",
                fixed,
            )
    return None


@rule(
    "T202",
    "a-tile-not-spread",
    reads=("dtype_a", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (128, 128, 96), "mma": (32, 32, 8)},
)
def a_tile_not_spread(config: Any, arch: Arch) -> Fault | None:
    """The threads of a work-group must share the A tile evenly.

    Why: each wave loads whole lines of the tile with one vector per lane; CK Tile asserts that lanes and waves
    cover the tile exactly.

    Fix: use a power of two for the contiguous extent, or a larger block, or fewer waves.
    """
    if config.pipeline == "preshufflev2":
        return _preshuffle_a_fault(config, arch)
    rows = config.layout[0] == "r"
    y, x = (config.block.m, config.block.k) if rows else (config.block.k, config.block.m)
    vector = config.vector.m if config.vector else resources.vector_a(config, arch)
    return _spread_fault("A", config, arch, y, x, vector)


@rule(
    "T203",
    "b-tile-not-spread",
    reads=("dtype_b", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (128, 96, 32), "waves": (4, 1, 1), "layout": "rrr"},
)
def b_tile_not_spread(config: Any, arch: Arch) -> Fault | None:
    """The threads of a work-group must share the B tile evenly.

    Why: as for A. A preshuffled B is loaded by each wave for itself and is exempt.

    Fix: use a power of two for the contiguous extent, or a larger block, or fewer waves.
    """
    if config.pipeline == "preshufflev2":
        return None
    columns = config.layout[1] == "c"
    y, x = (config.block.n, config.block.k) if columns else (config.block.k, config.block.n)
    vector = config.vector.n if config.vector else resources.vector_b(config, arch)
    return _spread_fault("B", config, arch, y, x, vector)


def _spread_fault(name: str, config: Any, arch: Arch, y: int, x: int, vector: int) -> Fault | None:
    fault = coverage_fault(
        threads=resources.block_threads(config, arch),
        wave=arch.wave_size,
        y=y,
        x=x,
        vector=vector,
        groups=config.wave_groups,
    )
    return None if fault is None else Fault(f"the {name} tile of {y}×{x}: {fault}", "block")


def _preshuffle_a_fault(config: Any, arch: Arch) -> Fault | None:
    """A row-major A of the preshuffle pipeline (MakeADramTileDistribution in
    gemm/pipeline/wp_pipeline_agmem_bgmem_creg_base_policy.hpp)."""
    vector = resources.MAX_ACCESS_BYTES // dtype(config.dtype_a).storage_bytes
    lanes_k = config.block.k // vector
    if config.block.k % vector or lanes_k == 0 or arch.wave_size % lanes_k:
        return Fault(
            f"block k = {config.block.k} is {lanes_k} vectors of {vector}, which do not divide a wave of "
            f"{arch.wave_size}",
            "block",
        )
    rows = arch.wave_size // lanes_k * resources.block_threads(config, arch) // arch.wave_size
    if config.block.m % rows:
        return Fault(f"block m = {config.block.m} is not a multiple of the {rows} rows loaded at once", "block")
    return None


@rule(
    "T204",
    "waves-along-k",
    reads=("waves", "pipeline"),
    enforced_by="device",
    good={"waves": (2, 2, 1)},
    bad={"waves": (1, 2, 2), "block": (128, 128, 64)},
)
def waves_along_k(config: Any, arch: Arch) -> Fault | None:
    """Only compv5 spreads waves along k, and it takes exactly two.

    Why: the other pipelines number their waves along m and n only, so that further waves compute and store in
    places that are not theirs. compv5 pairs one wave that loads with one that computes.

    Fix: use 1 wave along k, or compv5 with waves 1x1x2.
    """
    if config.pipeline == "compv5":
        if config.waves == COMPV5_WAVES:
            return None
        return Fault(f"compv5 works with waves {COMPV5_WAVES}, not {config.waves}", "waves", COMPV5_WAVES)
    if config.waves.k == 1:
        return None
    nearest = config.waves._replace(k=1)
    return Fault(f"{config.pipeline} takes 1 wave along k, not {config.waves.k}", "waves", nearest)
