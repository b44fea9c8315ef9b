"""The problems that a convolution kernel supports: the same checks as the built kernel's `supports`.

Mirrors IsSupportedArgument of CK Tile's kernels and the checks of Tilewright's launcher. Codes S5xx. S514 is in
`kinds.backward_data`. Rules are translated to C (`ops.in_c`).
"""

from __future__ import annotations

import math
import sys

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.ck_probes import chooses_on_device
from tilewright.ops.block_gemm.resources import part_sizes
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.cost_model.arithmetic import minimum
from tilewright.ops.grouped_conv.config import Config
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm, compute_gemm_sizes
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.kinds import KINDS
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.kind import combine_rules
from tilewright.ops.problem_values import Extents
from tilewright.ops.rule import Rejection, Rule, collect_rules, rule
from tilewright.ops.rule_forms import same_fields, since

# CK Tile suppresses an access outside of a tensor by adding 2³¹ bytes to its offset (amd_buffer_store in
# core/arch/amd_buffer_addressing_builtins.hpp), so that no tensor may be larger than that.
MAX_BYTES = 2**31
# IsSupportedArgument in grouped_convolution/kernel/grouped_convolution_backward_weight_kernel.hpp of 2026.
MAX_NARROW_PARTS = 128
MIN_COMPV6_STEPS = 4
_SPLIT = {"direction": "backward_weight", "vector": (8, 8, 8), "split_k": True}
_COMPV6 = {**_SPLIT, "pipeline": "compv6"}
_BF16 = {**_SPLIT, **expand_dtype("bf16"), "specialization": "filter1x1_stride1_pad0", "explicit_gemm": True}
_POINT = {"direction": "backward_weight", "filter_size": 1, "left_pad": 0, "right_pad": 0, "k_batch": 2}


SAME_PROBLEM = same_fields(
    "S501",
    "other-problem",
    "Direction, number of dimensions and types of problem and kernel must be the same.",
    ("direction", "ndim", "dtype_a", "dtype_b", "dtype_c"),
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype": "bf16"}},
    why="they are compile-time values of the kernel.",
    fix="choose a kernel with the problem's direction, dimensions and types.",
)


@rule(
    "S505",
    "not-aligned",
    reads=("direction", "vector"),
    enforced_by="supports",
    good={"problem": {"k": 72}},
    bad={"problem": {"k": 68}},
)
def check_alignment(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The channels of a group must be multiples of the vectors along them.

    Why: a lane loads or stores complete vectors, and only a vector's first element is compared with the channels. The
    end of a pixel's last vector belongs to the next pixel: 20 output channels stored in vectors of 8 overwrite the
    first 4 channels of the next pixel with zeros, and vectors of the input mix two pixels. K need not be a multiple of
    16: the outputs that are missing in public measurements of such problems are due to weights that were padded along
    the filter instead of along K (docs/findings.md).

    Fix: use a kernel with narrower vectors, or a plan that pads the channels of every group with zeros.
    """
    c, k = problem.group_channels
    channels = {"c": ("input", c), "k": ("output", k)}
    for matrix, letter, vector in zip("abc", find_kind(config).vector_channels, config.vector, strict=True):
        name, count = channels[letter]
        if count % vector:
            return Rejection(
                f"the {count} {name} channels of a group are not a multiple of vector {matrix} = {vector}", "vector"
            )
    return None


@rule(
    "S506",
    "split-k-not-built",
    reads=("split_k", "explicit_gemm", "mma", "block"),
    enforced_by="supports",
    good={"direction": "backward_weight", "split_k": True, "problem": {"direction": "backward_weight", "k_batch": 2}},
    bad={"problem": {"k_batch": 2}},
)
def check_split_k(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """k_batch above 1 needs a kernel with split-K; before 2026-06 a plain GEMM also needs parts that use the same loop.

    Why: only a split-K kernel contains the instances that add the parts atomically, and all parts of a plain GEMM run
    one compiled loop, which is chosen for the first part.

    Fix: use a kernel with split_k, or a k_batch that divides the sum into equal parts of complete steps.
    """
    if problem.k_batch == 1:
        return None
    if not config.split_k:
        return Rejection(f"k_batch is {problem.k_batch}, the kernel was built without split-K", "split_k", True)
    # Since 2026, every part chooses its loop itself.
    if not config.explicit_gemm or chooses_on_device(arch.ck):
        return None
    whole, last = part_sizes(compute_gemm_sizes(problem).k, problem.k_batch, config.mma.k)
    if last < 1 or -(-whole // config.block.k) != -(-last // config.block.k):
        return Rejection(f"the sum splits into parts of {whole} and a last one of {last}", "split_k")
    return None


@rule(
    "S507",
    "too-large",
    reads=("direction", "dtype_a", "dtype_b", "dtype_c", "explicit_gemm"),
    enforced_by="supports",
    good={"problem": {"n": 2**20}},
    bad={"problem": {"input_size": "8192x8192"}},
)
def check_size_limits(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """No image and no weights may have more than 2³¹ bytes; for a weight gradient or a plain GEMM no tensor.

    Why: CK Tile computes with 32-bit offsets, and suppresses an access outside of a tensor by adding 2³¹ bytes to its
    offset. If there are too many images, it distributes them to parts of the grid, but not in a sum over all images.

    Fix: split the problem along n.
    """
    kind = find_kind(config)
    together = kind.sums_positions or config.explicit_gemm
    for name, count in zip("abc", problem.count_elements(problem.n if together else 1), strict=True):
        # Sums may be kept in fp32.
        wide = name == "c" and kind.has_field("two_stage")
        size = 4 if wide else find_dtype(getattr(config, f"dtype_{name}")).storage_bytes
        if count * size > MAX_BYTES:
            what = name if together else f"{name} of one image, or of the weights,"
            return Rejection(f"{what} has {count * size:,} bytes, CK Tile addresses up to {MAX_BYTES:,}", "n")
    return None


@rule(
    "S508",
    "too-few-steps",
    reads=("pipeline", "block", "explicit_gemm"),
    enforced_by="device",
    good={**_COMPV6, "problem": {"direction": "backward_weight", "k_batch": 2, "n": 1, "input_size": "16x8"}},
    bad={**_COMPV6, "problem": {"direction": "backward_weight", "k_batch": 2, "n": 1, "input_size": "8x8"}},
)
def check_step_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """compv6 needs at least two steps along K in every part of a split sum.

    Why: with a single step its tail also sums blocks beyond the end. Beyond the end of a sum a convolution reads
    zeros, but beyond the end of a part it reads the next part. Plain GEMMs read zeros there, too.

    Fix: use a smaller k_batch, a kernel with a smaller block k, or another pipeline.
    """
    needed = resources.least_steps(config.pipeline)
    if config.explicit_gemm or problem.k_batch == 1:
        return None
    steps = _count_steps(config, problem)
    if steps >= needed:
        return None
    return Rejection(f"a part of the sum takes {steps} step of {config.block.k}, the kernel needs {needed}", "block")


def _count_steps(config: Config, problem: Problem) -> int:
    """The steps along K of each part of a weight gradient's sum, the same for all; some may be beyond the end."""
    step = problem.k_batch * config.block.k
    return -(-problem.n * math.prod(problem.output_size) // step)


@rule(
    "S510",
    "unbounded-add",
    reads=("split_k", "two_stage", "dtype_c", "block", "explicit_gemm"),
    enforced_by="device",
    good={**_BF16, "problem": {**_POINT, "dtype": "bf16", "k": 128}},
    bad={**_BF16, "problem": {**_POINT, "dtype": "bf16", "k": 136}},
)
def check_unbounded_add(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """In an explicit GEMM, a split sum of bf16, or any on RDNA 3, needs output channels in multiples of the block.

    Why: up to 2025, CK Tile adds bf16 by a compare-and-swap loop that does not stop at the last row of a matrix, and so
    adds to memory after a group's weights. On RDNA 3, other types are added by instructions that do not check bounds,
    in all generations. The rows of a convolution are padded, which both take into account.

    Fix: use k_batch 1, two stages, or padded channels.
    """
    if problem.k_batch == 1 or not config.explicit_gemm:
        return None
    if not resources.has_unbounded_add(ImplicitGemm(config), arch):
        return None
    rows = problem.k // problem.g
    if rows % config.block.m == 0:
        return None
    return Rejection(f"{rows} output channels are not a multiple of block m = {config.block.m}", "block")


@since("2026-06")
@rule(
    "S516",
    "too-many-parts",
    reads=("mma", "dtype_c", "two_stage", "explicit_gemm"),
    when={"split_k": True},
    enforced_by="supports",
    good={**_SPLIT, "problem": {"direction": "backward_weight", "k_batch": 8, "n": 1, "input_size": "8x16"}},
    bad={**_SPLIT, "problem": {"direction": "backward_weight", "k_batch": 9, "n": 1, "input_size": "8x16"}},
)
def check_part_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A sum has at most as many parts as mma steps, and a convolution at most 128 parts of a result other than fp32.

    Why: CK Tile rejects a k_batch that leaves some work-groups without a part, and one for which additions in a narrow
    type become inaccurate.

    Fix: use a smaller k_batch, or two stages, which add in fp32.
    """
    steps = -(-compute_gemm_sizes(problem).k // config.mma.k)
    if problem.k_batch > steps:
        return Rejection(f"k_batch is {problem.k_batch}, the sum has {steps} steps of {config.mma.k}", "mma")
    stored = ImplicitGemm(config).dtype_c
    if not config.explicit_gemm and stored != "fp32" and problem.k_batch > MAX_NARROW_PARTS:
        return Rejection(
            f"k_batch is {problem.k_batch}, results in {stored} have up to {MAX_NARROW_PARTS} parts", "two_stage", True
        )
    return None


@since("2026-06")
@rule(
    "S517",
    "short-sum",
    reads=("block",),
    when={"direction": "backward_weight", "pipeline": "compv6", "explicit_gemm": False},
    enforced_by="supports",
    good={**_COMPV6, "problem": {"direction": "backward_weight", "n": 1, "input_size": "8x16"}},
    bad={**_COMPV6, "problem": {"direction": "backward_weight", "n": 1, "input_size": "8x12"}},
)
def check_sum_length(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """compv6 needs at least four steps along K for a gradient of the weights.

    Why: CK Tile rejects fewer, because a single step is computed incorrectly, and two or three are slow.

    Fix: use a smaller k_batch, a kernel with a smaller block k, or another pipeline.
    """
    steps = _count_steps(config, problem)
    if steps >= MIN_COMPV6_STEPS:
        return None
    return Rejection(
        f"a part of the sum takes {steps} steps of {config.block.k}, CK Tile needs {MIN_COMPV6_STEPS}", "block"
    )


@rule(
    "S511",
    "not-specialized-for",
    reads=("specialization",),
    enforced_by="supports",
    good={"specialization": "filter1x1_pad0", "problem": {"filter_size": 1, "left_pad": 0, "right_pad": 0}},
    bad={"specialization": "filter1x1_pad0"},
)
def check_specialization(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A specialized kernel supports only problems that match its assumptions.

    Why: filter1x1 kernels omit the arithmetic of filter and padding, and with stride1 that of the stride. The filter3x3
    kernel is compiled for the filter's nine taps and one channel per group. With another problem they would read wrong
    elements.

    Fix: use a kernel with specialization default.
    """
    kind = config.specialization
    if kind.startswith("filter1x1"):
        if _differ(problem.filter_size, 1) or _differ(problem.left_pad, 0) or _differ(problem.right_pad, 0):
            return Rejection(
                f"a {kind} kernel computes 1x1 filters without padding, not {_format_filter(problem)}", "specialization"
            )
        if kind == "filter1x1_stride1_pad0" and _differ(problem.stride, 1):
            return Rejection(f"a {kind} kernel has stride 1, the problem {problem.stride}", "specialization")
    if kind == "filter3x3":
        if _differ(problem.filter_size, 3):
            return Rejection(f"a {kind} kernel computes 3x3 filters, not {_format_filter(problem)}", "specialization")
        if problem.c != problem.g:
            return Rejection(
                f"a {kind} kernel computes one input channel per group, not {problem.c // problem.g}", "specialization"
            )
    return None


def _differ(extents: Extents, value: int) -> bool:
    return any(extent != value for extent in extents)


def _format_filter(problem: Problem) -> str:
    shape = "x".join(str(size) for size in problem.filter_size)
    pads = "".join(f" {left}+{right}" for left, right in zip(problem.left_pad, problem.right_pad, strict=True))
    return f"{shape} with pads{pads}"


@rule(
    "S512",
    "groups-not-merged",
    reads=("merge_groups",),
    enforced_by="supports",
    good={"direction": "backward_weight", "merge_groups": 2, "problem": {"direction": "backward_weight", "g": 4}},
    bad={"direction": "backward_weight", "merge_groups": 2, "problem": {"direction": "backward_weight", "g": 1}},
)
def check_merged_groups(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The number of groups must be a multiple of the kernel's merge_groups.

    Why: every work-group computes that many groups, and never fewer.

    Fix: use a kernel that merges fewer groups.
    """
    if problem.g % config.merge_groups == 0:
        return None
    return Rejection(f"g = {problem.g} is not a multiple of merge_groups = {config.merge_groups}", "merge_groups", 1)


@rule(
    "S513",
    "pieces-not-tiled",
    reads=("split_image", "block"),
    enforced_by="device",
    good={"split_image": True, "problem": {"n": 1}},
    bad={"split_image": True, "problem": {"n": 2, "input_size": "15x15"}},
)
def check_image_pieces(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """With split_image and several images, pieces must consist of complete blocks.

    Why: the last tile of a piece continues into the next piece of its image, but CK Tile assumes that it continues
    with the next image: those outputs would not be written.

    Fix: use n = 1, a smaller block m, or a kernel without split_image.
    """
    if not config.split_image or problem.n == 1:
        return None
    first = problem.output_size[0]
    line = math.prod(problem.output_size[1:])
    pieces = minimum(2, first)
    piece = first // pieces * line
    last = first * line - piece * (pieces - 1)
    if piece % config.block.m == 0 and last % config.block.m == 0:
        return None
    return Rejection(
        f"the pieces of an image have {piece} and {last} outputs, which are not multiples of block m = "
        f"{config.block.m}",
        "split_image",
        False,
    )


FIT_RULES: tuple[Rule, ...] = combine_rules(
    collect_rules(sys.modules[__name__]), {kind.name: kind.fit_rules for kind in KINDS}, "direction"
)
