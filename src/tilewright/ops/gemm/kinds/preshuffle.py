"""Preshuffle: B is reordered, so that the kernel loads it directly into registers. Rules P303, P304, P319 and S509.

The kernel loads B from memory directly into the registers of the matrix instruction, so B must be in memory in the
order of the lanes. B (k × n) is divided into mma tiles of k × n. The tiles of one column of tiles are consecutive along
k. A tile contains the values of one lane after another: lane = group · mma.n + column, and a lane has mma.k / groups
neighbours along k, where groups = wave size / mma.n. (MakeBFlatDramTileDistribution in
ck_tile/ops/gemm/pipeline/wp_pipeline_agmem_bgmem_creg_base_policy.hpp; ck_tile/host/tensor_shuffle_utils.hpp creates
the same order for CK's own examples.)

With `permute_n`, the columns of a block are permuted first: a wave's r-th tile takes every repeat-th column of the
wave's share, starting with the r-th. Then a lane has neighbouring columns of C.

The matrix tiles of the pipeline are in `[op.gemm]`, GEMM's part of a GPU file.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.arch.dtypes import TRIPLES, find_dtype
from tilewright.arch.spec import Arch, Shape, Triple, parse_shape
from tilewright.base.errors import FileFormatError, FileProblem, UnknownValueError
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.ck_probes import chooses_on_device
from tilewright.ops.block_gemm.rules.examples import TILES, TYPES
from tilewright.ops.execution import Preparation
from tilewright.ops.gemm.kind import GemmKind
from tilewright.ops.gemm.source import make_context
from tilewright.ops.rule import Rejection, rule
from tilewright.ops.rule_forms import equal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.ops.gemm.config import Config
    from tilewright.ops.gemm.problem import Problem

PIPELINE = "preshufflev2"
# Changes to GEMM's example config.
EXAMPLE: dict[str, Any] = {
    "variant": "preshuffle",
    "pipeline": PIPELINE,
    "scheduler": "default",
    "waves": Shape(1, 4, 1),
    "mma": Shape(16, 16, 32),
    "block": Shape(128, 128, 64),
}
KEYS = ("preshuffle",)
# No GPU with waves of 32 has preshuffle tiles in its file (rule P304).
WAVE_SIZE = 64


def list_preparations(config: Config) -> tuple[Preparation, ...]:
    """The reordering of B. The problem must be supported (S509)."""
    columns = f", with the columns of each {config.block.n} distributed to the waves" if config.permute_n else ""
    what = f"b is reordered into tiles of {config.mma.k}×{config.mma.n}, each as the lanes load it{columns}"
    return (Preparation("b", what, lambda b: shuffle_b(config, b)),)


def shuffle_b(config: Config, b: NDArray[Any]) -> NDArray[Any]:
    """B (k × n) in the order of the kernel: an array of the same shape whose column-major memory has that order."""
    k, n = b.shape
    mma = config.mma
    columns = _order_columns(config, b.T) if config.permute_n else b.T  # n × k
    groups = WAVE_SIZE // mma.n
    tiles = columns.reshape(n // mma.n, mma.n, k // mma.k, groups, mma.k // groups)
    in_order = tiles.transpose(0, 2, 3, 1, 4).reshape(n, k)
    return in_order.T


def _order_columns(config: Config, columns: NDArray[Any]) -> NDArray[Any]:
    n, k = columns.shape
    waves, width = config.waves.n, config.mma.n
    repeat = config.block.n // (waves * width)
    shares = columns.reshape(n // config.block.n, waves, width, repeat, k)
    return shares.transpose(0, 3, 1, 2, 4).reshape(n, k)


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


check_layout = equal(
    "P303",
    "preshuffle-layout",
    "preshuffle requires layout rcr.",
    {"layout": "rcr"},
    "preshuffle requires layout rcr, not {value}",
    enforced_by="device",
    good={"layout": "rrr"},
    bad={"variant": "preshuffle", "pipeline": PIPELINE, "scheduler": "default", "layout": "rrr"},
    why="the reordering of B is defined for a column-major B, and its kernel loads A row by row.",
    fix="use rcr, or another variant.",
)


@rule(
    "P304",
    "preshuffle-tile",
    reads=(*TYPES, *TILES),
    enforced_by="compiler",
    good={},
    bad={
        "variant": "preshuffle",
        "pipeline": PIPELINE,
        "scheduler": "default",
        "mma": (64, 4, 16),
        "waves": (1, 4, 1),
        "block": (128, 64, 64),
    },
)
def check_tile(config: Config, arch: Arch) -> Rejection | None:
    """preshuffle needs an mma that its pipeline has, and LDS reads of A in complete 16-byte vectors.

    Why: the flat load of B is implemented for mma tiles of 16 and 32 columns, and the kernel asserts that a wave's
    share of A per step of k is a multiple of 16 bytes per lane.

    Fix: use an mma that the GPU's file lists for preshuffle, and more rows per wave.
    """
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


check_split_k = equal(
    "P319",
    "split-k-preshuffled",
    "preshuffle cannot split K.",
    {"split_k": False},
    "preshuffle cannot split K",
    enforced_by="device",
    good={"split_k": True},
    bad={**EXAMPLE, "split_k": True},
    why="CK Tile computes the offsets of A's parts correctly, but those of the reordered B wrongly: every k_batch "
    "above 1 gives wrong results.",
    fix="turn split_k off, or use another variant.",
)


def check_a_distribution(config: Config, arch: Arch) -> Rejection | None:
    """The distribution of a row-major A in the preshuffle pipeline (MakeADramTileDistribution in
    gemm/pipeline/wp_pipeline_agmem_bgmem_creg_base_policy.hpp), for rule T202. None for other pipelines."""
    if config.pipeline != PIPELINE:
        return None
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


@rule(
    "S509",
    "preshuffle-not-whole",
    reads=("mma", "block", "permute_n"),
    enforced_by="device",
    good={**EXAMPLE, "pad_k": True, "problem": {"k": 288}},
    bad={**EXAMPLE, "pad_k": True, "problem": {"k": 264}},
)
def check_tiles(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """With preshuffle, B has complete mma tiles and no gaps; with permute_n, N is a multiple of the block.

    Why: B is reordered by complete mma tiles, and permute_n permutes the columns of complete blocks. A partial one
    has no order, and a reordered B has no lines that could have gaps between them.

    Fix: pad B itself, pack it, or use another variant.
    """
    for name, size, step in (("N", problem.n, config.mma.n), ("K", problem.k, config.mma.k)):
        if size % step:
            return Rejection(f"{name} = {size} is not a multiple of mma {name.lower()} = {step}", "mma")
    if config.permute_n and problem.n % config.block.n:
        return Rejection(f"N = {problem.n} is not a multiple of block n = {config.block.n}", "permute_n", False)
    if problem.stride_b != problem.k:
        return Rejection(f"stride_b is {problem.stride_b}, but a reordered B has no gaps: k = {problem.k}", "variant")
    return None


def compute_lds_bytes(config: Config, arch: Arch) -> int:
    """Bytes of LDS of one work-group. With permute_n, CK Tile of 2026 stages no C."""
    if config.permute_n and chooses_on_device(arch.ck):
        return 2 * resources.pipeline_lds_bytes(config)
    return resources.lds_bytes(config, arch)


PRESHUFFLE = GemmKind(
    name="preshuffle",
    doc="B is reordered for direct register loads",
    fields=("pad_m", "pad_n", "pad_k", "persistent", "permute_n", "blocks_per_cu"),
    rules=(check_layout, check_tile, check_split_k),
    fit_rules=(check_tiles,),
    context=make_context,
    kernel_template="GemmKernel",
    reordered_b=True,
    preparations=list_preparations,
    lds_bytes=compute_lds_bytes,
)
