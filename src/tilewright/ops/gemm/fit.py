"""The problems that a GEMM kernel supports: the same checks as the built kernel's `supports`.

Mirrors IsSupportedArgument of CK Tile's kernels and the checks of Tilewright's launcher. Codes S5xx. S509 is in
`kinds.preshuffle`. Rules are translated to C (`ops.in_c`).
"""

from __future__ import annotations

import sys

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.ck_probes import chooses_on_device
from tilewright.ops.block_gemm.resources import list_part_sizes
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.cost_model.arithmetic import minimum
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.kind import find_kind
from tilewright.ops.gemm.kinds import KINDS
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import batch_strides
from tilewright.ops.kind import combine_rules
from tilewright.ops.rule import Rejection, Rule, collect_rules, rule

MAX_INDEX = 2**31 - 1  # CK Tile's index_t is a 32-bit integer
MAX_BYTES = 2**32 - 1  # the size of a buffer descriptor has 32 bits (make_wave_buffer_resource)
# Added to the offset of a store beyond the edge of C, so that the descriptor's size suppresses it (amd_buffer_store in
# core/arch/amd_buffer_addressing_builtins.hpp).
EDGE_SHIFT = 2**31


@rule(
    "S501",
    "other-problem",
    reads=("variant", "dtype_a", "dtype_b", "dtype_c", "layout", "elementwise", "num_d"),
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype": "bf16"}},
)
def check_problem_kind(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Types, layouts and element-wise operation of problem and kernel must be the same.

    Why: they are compile-time values of the kernel.

    Fix: choose a kernel with the problem's types and layout.
    """
    for name in ("dtype_a", "dtype_b", "dtype_c", "layout", "elementwise", "num_d"):
        mine, wanted = getattr(config, name), getattr(problem, name)
        if mine != wanted:
            return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name)
    kind = find_kind(config)
    if problem.batch > 1 and not kind.batched:
        return Rejection(f"batch is {problem.batch}, a {kind.name} kernel computes one product", "variant")
    return None


@rule(
    "S502",
    "m-not-tiled",
    reads=("layout", "block", "pad_m"),
    enforced_by="supports",
    good={"layout": "crr", "problem": {"layout": "crr"}},
    bad={"layout": "crr", "problem": {"layout": "crr", "m": 200}},
)
def check_m_multiple(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
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
def check_n_multiple(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
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
def check_k_multiple(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
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


def _vector_widths(config: Config, arch: Arch) -> tuple[str, int, int, int, int]:
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
def check_alignment(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
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
    "S506",
    "split-k-not-built",
    reads=("split_k", "mma", "block", "pipeline"),
    enforced_by="supports",
    good={"split_k": True, "problem": {"k_batch": 2}},
    bad={"problem": {"k_batch": 2}},
)
def check_split_k(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """k_batch above 1 needs a kernel with split-K, and before 2026-06 parts of K that use the same loop.

    Why: only a split-K kernel contains the instances that add the parts atomically, and all parts run one compiled
    loop, which is chosen for the first part. Since 2026-06 each part chooses its loop; then it must not be empty.

    Fix: use a kernel with split_k, or a k_batch that divides K into equal parts of complete steps.
    """
    if problem.k_batch == 1:
        return None
    if not config.split_k:
        return Rejection(f"k_batch is {problem.k_batch}, the kernel was built without split-K", "split_k", True)
    whole, *_, last = sizes = _part_sizes(config, problem, arch)
    if minimum(*sizes) < 1:
        return Rejection(f"K = {problem.k} leaves nothing for the last of {problem.k_batch} parts", "split_k")
    if not chooses_on_device(arch.ck) and -(-whole // config.block.k) != -(-last // config.block.k):
        return Rejection(
            f"K = {problem.k} splits into parts of {whole} and a last one of {last}, which take different "
            f"numbers of steps of {config.block.k}",
            "split_k",
        )
    return None


@rule(
    "S507",
    "too-large",
    reads=("variant", "layout", "dtype_a", "dtype_b", "dtype_c", "block"),
    enforced_by="supports",
    good={},
    bad={"problem": {"m": 2**31}},
)
def check_size_limits(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Sizes and strides must fit into 32 bits, and matrices into CK Tile's address range.

    Why: CK Tile computes with 32-bit indices, and a buffer descriptor has 32 bits for the size in bytes. A store
    beyond the edge of C is suppressed by adding 2³¹ bytes to its offset, so that a C with an edge inside a tile must
    not be larger than that. The offset of a matrix in a batch is computed in 32 bits, too.

    Fix: split the problem; make M and N multiples of the block; pack the matrices.
    """
    for name in ("m", "n", "k", "k_batch", "batch", "stride_a", "stride_b", "stride_c"):
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
    return _check_batch_size(config, problem)


def _extent(letter: str, rows: int, columns: int, stride: int) -> int:
    """Elements that a matrix spans, from its first to its last."""
    lines, width = (rows, columns) if letter == "r" else (columns, rows)
    return (lines - 1) * stride + width


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _check_batch_size(config: Config, problem: Problem) -> Rejection | None:
    if not find_kind(config).batched:
        return None
    for name, stride in batch_strides(problem).items():
        if stride > MAX_INDEX or stride * (problem.batch - 1) > MAX_BYTES:
            return Rejection(
                f"the last {name} of the batch begins after {problem.batch - 1:,} × {stride:,} elements, which CK Tile "
                "computes in 32 bits",
                "batch",
            )
    return None


def _steps(config: Config, arch: Arch) -> tuple[int, int, int]:
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
def check_step_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """compv6 needs at least two steps along K.

    Why: with a single step its tail also sums blocks beyond K, and C is wrong.

    Fix: use a kernel with a smaller block k, or another pipeline.
    """
    needed = resources.least_steps(config.pipeline)
    fewest = minimum(*(-(-part // config.block.k) for part in _part_sizes(config, problem, arch)))
    if fewest >= needed:
        return None
    return Rejection(f"K = {problem.k} takes {fewest} step(s) of {config.block.k}, the kernel needs {needed}", "block")


@rule(
    "S510",
    "unbounded-add",
    reads=("split_k", "dtype_c", "block"),
    enforced_by="device",
    good={**expand_dtype("bf16"), "split_k": True, "problem": {"dtype": "bf16", "k_batch": 2}},
    bad={**expand_dtype("bf16"), "split_k": True, "problem": {"dtype": "bf16", "k_batch": 2, "m": 200}},
)
def check_unbounded_add(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A split K with a bf16 C, or any floating-point C on RDNA 3, needs an M that is a multiple of the block.

    Why: CK Tile adds bf16 by a compare-and-swap loop that does not stop at the last row of C, up to 2025. On RDNA 3 it
    adds other floating-point types by instructions that do not check bounds, in all generations.

    Fix: use k_batch 1, an fp32 C, or a padded M.
    """
    if problem.k_batch == 1 or not resources.has_unbounded_add(config, arch) or problem.m % config.block.m == 0:
        return None
    return Rejection(f"M = {problem.m} is not a multiple of block m = {config.block.m}", "block")


def _add_elements(config: Config, arch: Arch) -> int:
    """Elements of C per atomic add."""
    return resources.add_bytes(config) // find_dtype(config.dtype_c).storage_bytes


@rule(
    "S515",
    "misaligned-add",
    reads=("variant", "layout", "dtype_c", "epilogue", "vector", "waves", "mma"),
    enforced_by="device",
    good={"split_k": True, "problem": {"k_batch": 2, "stride_c": 258}},
    bad={"split_k": True, "problem": {"k_batch": 2, "stride_c": 257}},
    group_key=lambda config, arch: (find_kind(config).batched, config.layout, _add_elements(config, arch)),
)
def check_add_alignment(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """With a split K, the lines of C and the matrices of a batch must be aligned for atomic adds.

    Why: an atomic add has 2 elements of an fp16 C, and 4 of a bf16 C (2 if vectors have 2), and its address must be a
    multiple of their size; otherwise the GPU stops with a memory violation. The address of C itself must be such a
    multiple, too; the built kernel checks that at run time.

    Fix: use k_batch 1, an fp32 C, or strides that are multiples.
    """
    if problem.k_batch == 1:
        return None
    elements = _add_elements(config, arch)
    lines = problem.m if config.layout[2] == "r" else problem.n
    strides = {"stride_c": problem.stride_c if lines > 1 else 0}
    if find_kind(config).batched and problem.batch > 1:
        strides["batch_stride_c"] = batch_strides(problem)["c"]
    for name, stride in strides.items():
        if stride % elements:
            return Rejection(f"{name} = {stride:,} is not a multiple of the {elements} elements of an atomic add", name)
    return None


def _part_sizes(config: Config, problem: Problem, arch: Arch) -> list[int]:
    """The different sizes of the parts of a split K, from the first to the last."""
    return list_part_sizes(problem.k, problem.k_batch, config.mma.k, arch.ck)


FIT_RULES: tuple[Rule, ...] = combine_rules(
    collect_rules(sys.modules[__name__]), {kind.name: kind.fit_rules for kind in KINDS}, "variant"
)
