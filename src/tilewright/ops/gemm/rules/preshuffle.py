"""Rules about preshuffle and its pipeline: P302 to P304, P319, and changed rules of the block GEMM."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch, Triple
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.lift import unless
from tilewright.ops.block_gemm.rules import hardware, pipeline, tiles
from tilewright.ops.block_gemm.rules.examples import TILES, TYPES
from tilewright.ops.gemm.arch_table import preshuffle_tiles
from tilewright.ops.gemm.rules.examples import PRESHUFFLE
from tilewright.ops.rule import Fault, rule


@rule(
    "P302",
    "preshuffle-pipeline",
    reads=("variant", "pipeline"),
    enforced_by="device",
    good={"variant": "standard"},
    bad={**PRESHUFFLE, "variant": "standard"},
)
def preshuffle_pipeline(config: Any, arch: Arch) -> Fault | None:
    """The variant preshuffle requires the pipeline preshufflev2, and the reverse.

    Why: preshufflev2 reads B in the order that only the preshuffle variant passes. The other pipelines do not support
    that order, and CK Tile does not compile them with it.

    Fix: use preshufflev2 with preshuffle, any other pipeline otherwise.
    """
    if (config.pipeline == "preshufflev2") == (config.variant == "preshuffle"):
        return None
    nearest = "preshufflev2" if config.variant == "preshuffle" else "compv3"
    return Fault(f"variant {config.variant} does not work with {config.pipeline}", "pipeline", nearest)


@rule(
    "P303",
    "preshuffle-layout",
    reads=("variant", "layout"),
    enforced_by="device",
    good={"layout": "rrr"},
    bad={"variant": "preshuffle", "pipeline": "preshufflev2", "scheduler": "default", "layout": "rrr"},
)
def preshuffle_layout(config: Any, arch: Arch) -> Fault | None:
    """preshuffle requires layout rcr.

    Why: the reordering of B is defined for a column-major B, and its kernel loads A row by row.

    Fix: use rcr, or another variant.
    """
    if config.variant != "preshuffle" or config.layout == "rcr":
        return None
    return Fault(f"preshuffle requires layout rcr, not {config.layout}", "layout", "rcr")


@rule(
    "P304",
    "preshuffle-tile",
    reads=("variant", *TYPES, *TILES),
    enforced_by="compiler",
    good={},
    bad={
        "variant": "preshuffle",
        "pipeline": "preshufflev2",
        "scheduler": "default",
        "mma": (64, 4, 16),
        "waves": (1, 4, 1),
        "block": (128, 64, 64),
    },
)
def preshuffle_tile(config: Any, arch: Arch) -> Fault | None:
    """preshuffle needs an mma that its pipeline has, and LDS reads of A in complete 16-byte vectors.

    Why: the flat load of B is implemented for mma tiles of 16 and 32 columns, and the kernel asserts that a wave's
    share of A per step of k is a multiple of 16 bytes per lane.

    Fix: use an mma that the GPU's file lists for preshuffle, and more rows per wave.
    """
    if config.variant != "preshuffle":
        return None
    types = Triple(config.dtype_a, config.dtype_b, config.dtype_acc)
    offered = preshuffle_tiles(arch).get(types, frozenset())
    if config.mma not in offered:
        listing = ", ".join(sorted(str(tile) for tile in offered)) or "none"
        return Fault(f"{arch.name} has no preshuffle tile {config.mma} for {types}; it has {listing}", "mma")
    repeat = config.block.m // (config.waves.m * config.mma.m)
    size = dtype(config.dtype_a).storage_bytes
    share = config.mma.m * config.mma.k * size * repeat // arch.wave_size
    if repeat == 0 or share % resources.MAX_ACCESS_BYTES:
        return Fault(
            f"a lane reads {share} bytes of A per step of k, not a multiple of {resources.MAX_ACCESS_BYTES}",
            "block",
        )
    return None


@rule(
    "P319",
    "split-k-preshuffled",
    reads=("split_k", "variant"),
    enforced_by="device",
    good={"split_k": True},
    bad={**PRESHUFFLE, "split_k": True},
)
def split_k_preshuffled(config: Any, arch: Arch) -> Fault | None:
    """preshuffle cannot split K.

    Why: CK Tile computes the offsets of A's parts correctly, but those of the reordered B wrongly: every k_batch above
    1 gives wrong results.

    Fix: turn split_k off, or use another variant.
    """
    if not (config.split_k and config.variant == "preshuffle"):
        return None
    return Fault("preshuffle cannot split K", "split_k", False)


def _is_preshuffled(config: Any) -> bool:
    return bool(config.pipeline == "preshufflev2")


transposed_read = unless(hardware.transposed_read, _is_preshuffled, reads=(*TYPES, "layout", "mma", "pipeline"))


def _a_tile_fault(config: Any, arch: Arch) -> Fault | None:
    if _is_preshuffled(config):
        return _preshuffle_a_fault(config, arch)
    return tiles.a_tile_not_spread.check(config, arch)


def _preshuffle_a_fault(config: Any, arch: Arch) -> Fault | None:
    """The distribution of a row-major A in the preshuffle pipeline (MakeADramTileDistribution in
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


a_tile_not_spread = dataclasses.replace(
    tiles.a_tile_not_spread,
    reads=("dtype_a", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    check=_a_tile_fault,
)
b_tile_not_spread = dataclasses.replace(
    unless(
        tiles.b_tile_not_spread,
        _is_preshuffled,
        reads=("dtype_b", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    ),
    why="as for A. A preshuffled B is loaded by each wave separately and is exempt.",
)


def _scheduler_fault(config: Any, arch: Arch) -> Fault | None:
    if _is_preshuffled(config):
        return pipeline.scheduler_fault(config, ("default",))
    return pipeline.scheduler_not_offered.check(config, arch)


scheduler_not_offered = dataclasses.replace(
    pipeline.scheduler_not_offered,
    check=_scheduler_fault,
    why="mem has an intrawave and an interwave implementation, preshufflev2 has its own (default), all others are "
    "intrawave only. CK Tile has no code for other combinations.",
)
mixed_types = dataclasses.replace(pipeline.mixed_types, fix="use compv4, compv6, comp_async or preshufflev2.")
