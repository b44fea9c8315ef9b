"""The problems that a GEMM kernel supports: the same checks as the built kernel's `supports`.

Mirrors IsSupportedArgument of CK Tile's kernels and the checks of Tilewright's launcher. Codes S5xx. S509 is in
`kinds.preshuffle`; sizes of all block GEMMs are in `block_gemm.fit`. Rules are translated to C (`ops.in_c`).
"""

from __future__ import annotations

import dataclasses
import sys

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import fit, resources
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
from tilewright.ops.rule import Rejection, Rule, collect_rules, merge_rules, rule


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


def _check_batch_size(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    for name in ("k_batch", "batch"):
        value = getattr(problem, name)
        if value > fit.MAX_INDEX:
            return Rejection(f"{name} is {value:,}, CK Tile supports up to {fit.MAX_INDEX:,}", name)
    if not find_kind(config).batched:
        return None
    for name, stride in batch_strides(problem).items():
        if stride > fit.MAX_INDEX or stride * (problem.batch - 1) > fit.MAX_BYTES:
            return Rejection(
                f"the last {name} of the batch begins after {problem.batch - 1:,} × {stride:,} elements, which CK Tile "
                "computes in 32 bits",
                "batch",
            )
    return None


check_size_limits = dataclasses.replace(
    fit.check_size_limits.also(_check_batch_size, reads=("variant", *fit.check_size_limits.reads)),
    why=f"{fit.check_size_limits.why} The offset of a matrix in a batch is computed in 32 bits, too.",
)


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
    merge_rules(fit.RULES, collect_rules(sys.modules[__name__])),
    {kind.name: kind.fit_rules for kind in KINDS},
    "variant",
)
