"""Rules about preshuffle and its pipeline: P302 to P304, P319, and changed rules of the block GEMM.

The matrix tiles of the pipeline are in `[op.gemm]`, GEMM's part of a GPU file.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.schema import TRIPLES, parse_shape
from tilewright.arch.spec import Arch, Shape, Triple
from tilewright.base.errors import FileFormatError, FileProblem, UnknownValueError
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.rule_reuse import rule_except
from tilewright.ops.block_gemm.rules import hardware, pipeline, tiles
from tilewright.ops.block_gemm.rules.examples import TILES, TYPES
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.rules.examples import PRESHUFFLE
from tilewright.ops.rule import Rejection, rule

KEYS = ("preshuffle",)


@functools.cache
def load_preshuffle_tiles(arch: Arch) -> Mapping[Triple, frozenset[Shape]]:
    """Matrix tiles of the preshuffle pipeline on a GPU, by types. Empty if the file has no table."""
    table = arch.op_tables.get("gemm", {})
    problems = [
        FileProblem(f"op.gemm.{key}", str(UnknownValueError("key", key, KEYS))) for key in table if key not in KEYS
    ]
    tiles: dict[Triple, frozenset[Shape]] = {}
    for key, shapes in table.get("preshuffle", {}).items():
        where = f"op.gemm.preshuffle.{key}"
        if key not in TRIPLES:
            problems.append(FileProblem(where, str(UnknownValueError("triple of types", key, TRIPLES))))
            continue
        listed = frozenset(parse_shape(shape) for shape in shapes)
        unknown = sorted(str(shape) for shape in listed - set(arch.mma.get(TRIPLES[key], {})))
        if unknown:
            problems.append(FileProblem(where, f"not among the tiles of mma.{key}: {', '.join(unknown)}"))
        tiles[TRIPLES[key]] = listed
    if problems:
        raise FileFormatError(arch.source, problems)
    return tiles


@rule(
    "P302",
    "preshuffle-pipeline",
    reads=("variant", "pipeline"),
    enforced_by="device",
    good={"variant": "standard"},
    bad={**PRESHUFFLE, "variant": "standard"},
)
def check_preshuffle_pipeline(config: Config, arch: Arch) -> Rejection | None:
    """The variant preshuffle requires the pipeline preshufflev2, and the reverse.

    Why: preshufflev2 reads B in the order that only the preshuffle variant passes. The other pipelines do not support
    that order, and CK Tile does not compile them with it.

    Fix: use preshufflev2 with preshuffle, any other pipeline otherwise.
    """
    if (config.pipeline == "preshufflev2") == (config.variant == "preshuffle"):
        return None
    nearest = "preshufflev2" if config.variant == "preshuffle" else "compv3"
    return Rejection(f"variant {config.variant} does not work with {config.pipeline}", "pipeline", nearest)


@rule(
    "P303",
    "preshuffle-layout",
    reads=("variant", "layout"),
    enforced_by="device",
    good={"layout": "rrr"},
    bad={"variant": "preshuffle", "pipeline": "preshufflev2", "scheduler": "default", "layout": "rrr"},
)
def check_preshuffle_layout(config: Config, arch: Arch) -> Rejection | None:
    """preshuffle requires layout rcr.

    Why: the reordering of B is defined for a column-major B, and its kernel loads A row by row.

    Fix: use rcr, or another variant.
    """
    if config.variant != "preshuffle" or config.layout == "rcr":
        return None
    return Rejection(f"preshuffle requires layout rcr, not {config.layout}", "layout", "rcr")


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
def check_preshuffle_tile(config: Config, arch: Arch) -> Rejection | None:
    """preshuffle needs an mma that its pipeline has, and LDS reads of A in complete 16-byte vectors.

    Why: the flat load of B is implemented for mma tiles of 16 and 32 columns, and the kernel asserts that a wave's
    share of A per step of k is a multiple of 16 bytes per lane.

    Fix: use an mma that the GPU's file lists for preshuffle, and more rows per wave.
    """
    if config.variant != "preshuffle":
        return None
    types = Triple(config.dtype_a, config.dtype_b, config.dtype_acc)
    offered = load_preshuffle_tiles(arch).get(types, frozenset())
    if config.mma not in offered:
        listing = ", ".join(sorted(str(tile) for tile in offered)) or "none"
        return Rejection(f"{arch.name} has no preshuffle tile {config.mma} for {types}; it has {listing}", "mma")
    repeat = config.block.m // (config.waves.m * config.mma.m)
    size = find_dtype(config.dtype_a).storage_bytes
    share = config.mma.m * config.mma.k * size * repeat // arch.wave_size
    if repeat == 0 or share % resources.MAX_ACCESS_BYTES:
        return Rejection(
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
def check_preshuffle_split_k(config: Config, arch: Arch) -> Rejection | None:
    """preshuffle cannot split K.

    Why: CK Tile computes the offsets of A's parts correctly, but those of the reordered B wrongly: every k_batch above
    1 gives wrong results.

    Fix: turn split_k off, or use another variant.
    """
    if not (config.split_k and config.variant == "preshuffle"):
        return None
    return Rejection("preshuffle cannot split K", "split_k", False)


def _is_preshuffled(config: Config) -> bool:
    return config.pipeline == "preshufflev2"


transposed_read = rule_except(
    hardware.check_transposed_read, _is_preshuffled, reads=(*TYPES, "layout", "mma", "pipeline")
)


def _check_a_tile(config: Config, arch: Arch) -> Rejection | None:
    if _is_preshuffled(config):
        return _check_preshuffled_a(config, arch)
    return tiles.check_a_tile_distribution.check(config, arch)


def _check_preshuffled_a(config: Config, arch: Arch) -> Rejection | None:
    """The distribution of a row-major A in the preshuffle pipeline (MakeADramTileDistribution in
    gemm/pipeline/wp_pipeline_agmem_bgmem_creg_base_policy.hpp)."""
    vector = resources.MAX_ACCESS_BYTES // find_dtype(config.dtype_a).storage_bytes
    lanes_k = config.block.k // vector
    if config.block.k % vector or lanes_k == 0 or arch.wave_size % lanes_k:
        return Rejection(
            f"block k = {config.block.k} is {lanes_k} vectors of {vector}, which do not divide a wave of "
            f"{arch.wave_size}",
            "block",
        )
    rows = arch.wave_size // lanes_k * resources.block_threads(config, arch) // arch.wave_size
    if config.block.m % rows:
        return Rejection(f"block m = {config.block.m} is not a multiple of the {rows} rows loaded at once", "block")
    return None


a_tile_not_spread = dataclasses.replace(
    tiles.check_a_tile_distribution,
    reads=("dtype_a", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    check=_check_a_tile,
)
b_tile_not_spread = dataclasses.replace(
    rule_except(
        tiles.check_b_tile_distribution,
        _is_preshuffled,
        reads=("dtype_b", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    ),
    why="as for A. A preshuffled B is loaded by each wave separately and is exempt.",
)


def _check_scheduler(config: Config, arch: Arch) -> Rejection | None:
    if _is_preshuffled(config):
        return pipeline.check_offered_scheduler(config, ("default",))
    return pipeline.check_scheduler.check(config, arch)


scheduler_not_offered = dataclasses.replace(
    pipeline.check_scheduler,
    check=_check_scheduler,
    why="mem has an intrawave and an interwave implementation, preshufflev2 has its own (default), all others are "
    "intrawave only. CK Tile has no code for other combinations.",
)
mixed_types = dataclasses.replace(pipeline.check_mixed_types, fix="use compv4, compv6, comp_async or preshufflev2.")
