"""The sizes that every kernel on a work-group's GEMM supports: CK Tile's checks, and its address range.

Rules about problems with `m`, `n`, `k`, `k_batch` and the strides of A, B and C. Their examples are changes to GEMM's;
`Rule.on` replaces them for another op. Codes S502 to S505, S507 and S508. Rules are translated to C (`ops.in_c`).
"""

from __future__ import annotations

import sys
from typing import Protocol

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.block_gemm.resources import list_part_sizes
from tilewright.ops.cost_model.arithmetic import minimum
from tilewright.ops.rule import Rejection, Rule, collect_rules, rule

MAX_INDEX = 2**31 - 1  # CK Tile's index_t is a 32-bit integer
MAX_BYTES = 2**32 - 1  # the size of a buffer descriptor has 32 bits (make_wave_buffer_resource)
# Added to the offset of a store beyond the edge of C, so that the descriptor's size suppresses it (amd_buffer_store in
# core/arch/amd_buffer_addressing_builtins.hpp).
EDGE_SHIFT = 2**31


class PaddedConfig(BlockGemmConfig, Protocol):
    """A config with padding and D tensors."""

    @property
    def pad_m(self) -> bool: ...

    @property
    def pad_n(self) -> bool: ...

    @property
    def pad_k(self) -> bool: ...

    @property
    def num_d(self) -> int: ...


class GemmProblem(Protocol):
    """The sizes of one product."""

    @property
    def m(self) -> int: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def k_batch(self) -> int: ...

    @property
    def stride_a(self) -> int: ...

    @property
    def stride_b(self) -> int: ...

    @property
    def stride_c(self) -> int: ...


@rule(
    "S502",
    "m-not-tiled",
    reads=("layout", "block", "pad_m"),
    enforced_by="supports",
    good={"layout": "crr", "problem": {"layout": "crr"}},
    bad={"layout": "crr", "problem": {"layout": "crr", "m": 200}},
)
def check_m_multiple(config: PaddedConfig, problem: GemmProblem, arch: Arch) -> Rejection | None:
    """With a column-major A and no padding, M must be a multiple of the block.

    Why: M is then the contiguous dimension, whose edge is not checked without padding.

    Fix: use a kernel with pad_m, a smaller block, or a padded problem.
    """
    if config.layout[0] == "r" or config.pad_m or problem.m % config.block.m == 0:
        return None
    return Rejection(f"M = {problem.m} is not a multiple of block m = {config.block.m}", "pad_m", True)


@rule(
    "S503",
    "n-not-tiled",
    reads=("block", "pad_n"),
    enforced_by="supports",
    good={"pad_n": True, "problem": {"n": 200}},
    bad={"problem": {"n": 200}},
)
def check_n_multiple(config: PaddedConfig, problem: GemmProblem, arch: Arch) -> Rejection | None:
    """Without padding, N must be a multiple of the block.

    Why: N is the contiguous dimension of the row-major C, whose edge is not checked without padding.

    Fix: use a kernel with pad_n, a smaller block, or a padded problem.
    """
    if config.pad_n or problem.n % config.block.n == 0:
        return None
    return Rejection(f"N = {problem.n} is not a multiple of block n = {config.block.n}", "pad_n", True)


@rule(
    "S504",
    "k-not-tiled",
    reads=("layout", "block", "pad_k"),
    enforced_by="supports",
    good={"pad_k": True, "problem": {"k": 200}},
    bad={"problem": {"k": 200}},
)
def check_k_multiple(config: PaddedConfig, problem: GemmProblem, arch: Arch) -> Rejection | None:
    """Without padding, K must be a multiple of block k × k_batch if K is a contiguous dimension.

    Why: the last step along K would read beyond the matrix. (With crr K is contiguous in neither operand.)

    Fix: use a kernel with pad_k, a smaller block k, a smaller k_batch, or a padded problem.
    """
    step = config.block.k * problem.k_batch
    contiguous = config.layout[0] == "r" or config.layout[1] == "c"
    if not contiguous or config.pad_k or problem.k % step == 0:
        return None
    return Rejection(
        f"K = {problem.k} is not a multiple of block k {config.block.k} × k_batch {problem.k_batch} = {step}",
        "pad_k",
        True,
    )


def _vector_widths(config: PaddedConfig, arch: Arch) -> tuple[str, int, int, int, int]:
    """Layout, and elements per access of A, B, C and D; 1 for D without D tensors."""
    vector_d = resources.vector_d(config) if config.num_d else 1
    widths = resources.vector_a(config, arch), resources.vector_b(config, arch), resources.vector_c(config)
    return (config.layout, *widths, vector_d)


@rule(
    "S505",
    "not-aligned",
    reads=("layout", "block", "waves", "mma", "epilogue", "vector", "dtype_a", "dtype_b", "dtype_c", "num_d"),
    enforced_by="supports",
    good={"pad_k": True, "problem": {"k": 200}},
    bad={"pad_k": True, "problem": {"k": 201}},
    group_key=_vector_widths,
)
def check_alignment(config: PaddedConfig, problem: GemmProblem, arch: Arch) -> Rejection | None:
    """The contiguous extent of each matrix must be a multiple of its vector width.

    Why: a lane loads or stores complete vectors, and padding only masks complete vectors.

    Fix: use a kernel with narrower vectors, or a padded problem.
    """
    layout, *vectors = _vector_widths(config, arch)
    along = {
        "A": ("K", problem.k) if layout[0] == "r" else ("M", problem.m),
        "B": ("N", problem.n) if layout[1] == "r" else ("K", problem.k),
        "C": ("N", problem.n),
        "D": ("N", problem.n),
    }
    extents = {matrix: (along[matrix], vector) for matrix, vector in zip(along, vectors, strict=True)}
    for matrix, ((name, extent), vector) in extents.items():
        if extent % vector:
            return Rejection(f"{name} = {extent} is not a multiple of {matrix}'s vector width {vector}", "vector")
    return None


@rule(
    "S507",
    "too-large",
    reads=("layout", "dtype_a", "dtype_b", "dtype_c", "block"),
    enforced_by="supports",
    good={},
    bad={"problem": {"m": 2**31}},
)
def check_size_limits(config: PaddedConfig, problem: GemmProblem, arch: Arch) -> Rejection | None:
    """Sizes and strides must fit into 32 bits, and matrices into CK Tile's address range.

    Why: CK Tile computes with 32-bit indices, and a buffer descriptor has 32 bits for the size in bytes. A store
    beyond the edge of C is suppressed by adding 2³¹ bytes to its offset, so that a C with an edge inside a tile must
    not be larger than that.

    Fix: split the problem; make M and N multiples of the block; pack the matrices.
    """
    for name in ("m", "n", "k", "stride_a", "stride_b", "stride_c"):
        value = getattr(problem, name)
        if value > MAX_INDEX:
            return Rejection(f"{name} is {value:,}, CK Tile supports up to {MAX_INDEX:,}", name)
    tiles_m, tiles_n = _round_up(problem.m, config.block.m), _round_up(problem.n, config.block.n)
    whole = (tiles_m, tiles_n) == (problem.m, problem.n)
    spans = {
        "a": (_extent(config.layout[0], problem.m, problem.k, problem.stride_a), MAX_BYTES),
        "b": (_extent(config.layout[1], problem.k, problem.n, problem.stride_b), MAX_BYTES),
        "c": (_extent(config.layout[2], tiles_m, tiles_n, problem.stride_c), MAX_BYTES if whole else EDGE_SHIFT),
    }
    for name, (span, most_bytes) in spans.items():
        kind = find_dtype(getattr(config, f"dtype_{name}"))
        most = min(MAX_INDEX, most_bytes // kind.storage_bytes * kind.packed)
        if span > most:
            tiles = "" if name != "c" or whole else " with the tiles over its edge"
            return Rejection(
                f"{name}{tiles} spans {span:,} elements, CK Tile addresses up to {most:,}", f"stride_{name}"
            )
    return None


def _extent(letter: str, rows: int, columns: int, stride: int) -> int:
    """Elements that a matrix spans, from its first to its last."""
    lines, width = (rows, columns) if letter == "r" else (columns, rows)
    return (lines - 1) * stride + width


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _steps(config: PaddedConfig, arch: Arch) -> tuple[int, int, int]:
    return resources.least_steps(config.pipeline), config.block.k, config.mma.k


@rule(
    "S508",
    "too-few-steps",
    reads=("pipeline", "block", "mma"),
    enforced_by="device",
    good={"pipeline": "compv6", "problem": {"k": 64}},
    bad={"pipeline": "compv6", "problem": {"k": 32}},
    group_key=_steps,
)
def check_step_count(config: PaddedConfig, problem: GemmProblem, arch: Arch) -> Rejection | None:
    """compv6 needs at least two steps along K.

    Why: with a single step its tail also sums blocks beyond K, and C is wrong.

    Fix: use a kernel with a smaller block k, or another pipeline.
    """
    needed = resources.least_steps(config.pipeline)
    fewest = minimum(
        *(-(-part // config.block.k) for part in list_part_sizes(problem.k, problem.k_batch, config.mma.k, arch.ck))
    )
    if fewest >= needed:
        return None
    return Rejection(f"K = {problem.k} takes {fewest} step(s) of {config.block.k}, the kernel needs {needed}", "block")


RULES: tuple[Rule, ...] = collect_rules(sys.modules[__name__])
