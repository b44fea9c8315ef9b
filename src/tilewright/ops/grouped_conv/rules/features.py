"""Rules about the features of a kernel in each direction: P33x and P34x."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm import resources
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, Config
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm, channel_units
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.kinds import KINDS
from tilewright.ops.rule import Rejection, rule
from tilewright.ops.rule_forms import equal, one_of

_DATA = {"direction": BACKWARD_DATA, "vector": (8, 8, 8)}
_WEIGHT = {"direction": BACKWARD_WEIGHT, "vector": (8, 8, 8)}
_GEMM = {"specialization": "filter1x1_stride1_pad0", "explicit_gemm": True, "vector": (8, 8, 8)}


@rule(
    "P332",
    "merged-groups",
    reads=("direction", "merge_groups"),
    enforced_by="device",
    good={**_WEIGHT, "merge_groups": 2},
    bad={"merge_groups": 2},
)
def check_merge_groups(config: Config, arch: Arch) -> Rejection | None:
    """Groups can be merged for the gradient of the weights only, and by a power of two.

    Why: before 2026-06, CK Tile's forward kernel computes the grid and tensor offsets as if no groups were merged, and
    reads beyond the weights; since then it merges groups of one input channel only, and loads them in another order.
    Its kernel for the gradient of the input does not support merging. The order of merged groups is computed by
    exclusive or, which is correct for powers of two.

    Fix: use merge_groups 1, or a power of two for backward_weight.
    """
    count = config.merge_groups
    if count == 1:
        return None
    kind = find_kind(config)
    if not kind.has_field("merge_groups"):
        return Rejection(f"{kind.name} cannot merge {count} groups", "merge_groups", 1)
    if count & (count - 1):
        return Rejection(f"{count} groups cannot be merged, the number must be a power of two", "merge_groups", 2)
    return None


check_split_k_direction = equal(
    "P333",
    "split-k-direction",
    "The sum can be split for the gradient of the weights only.",
    {"split_k": False},
    "{direction} cannot split its sum",
    when={"direction": tuple(kind.name for kind in KINDS if not kind.has_field("split_k"))},
    enforced_by="supports",
    good={**_WEIGHT, "split_k": True},
    bad={"split_k": True},
    why="CK Tile's forward kernels reject every k_batch above 1, and so do those for input gradients before 2026-06. "
    "They have short sums over a filter, while a weight gradient sums over all pixels.",
    fix="turn split_k off.",
)


@rule(
    "P334",
    "two-stages",
    reads=("direction", "dtype_c", "dtype_acc"),
    when={"two_stage": True},
    enforced_by="tilewright",
    good={**_WEIGHT, "two_stage": True},
    bad={"two_stage": True},
)
def check_two_stage(config: Config, arch: Arch) -> Rejection | None:
    """Two stages are for gradients of the weights that are not stored in the type of the sum.

    Why: the workspace has the size of the weights, and a second kernel converts it. If the result has the type of the
    sum, there is nothing to convert.

    Fix: turn two_stage off, or use a 16-bit result with backward_weight.
    """
    kind = find_kind(config)
    if not kind.has_field("two_stage"):
        return Rejection(f"{kind.name} has one stage", "two_stage", False)
    if config.dtype_c == config.dtype_acc:
        return Rejection(f"the result is {config.dtype_c} already", "two_stage", False)
    return None


@rule(
    "P335",
    "split-image-direction",
    reads=("direction", "explicit_gemm"),
    when={"split_image": True},
    enforced_by="tilewright",
    good={"split_image": True},
    bad={**_DATA, "split_image": True},
)
def check_split_image_direction(config: Config, arch: Arch) -> Rejection | None:
    """The image can be split in forward kernels only.

    Why: CK Tile's other kernels ignore it, and a plain GEMM has no image.

    Fix: turn split_image off.
    """
    kind = find_kind(config)
    if kind.has_field("split_image") and not config.explicit_gemm:
        return None
    what = "a plain GEMM" if config.explicit_gemm else kind.name
    return Rejection(f"{what} does not split the image", "split_image", False)


@rule(
    "P336",
    "explicit-gemm-form",
    reads=("specialization", "merge_groups"),
    when={"explicit_gemm": True},
    enforced_by="tilewright",
    good=_GEMM,
    bad={"explicit_gemm": True},
)
def check_explicit_gemm(config: Config, arch: Arch) -> Rejection | None:
    """An explicit GEMM is for 1x1 filters with stride 1 and no padding, and merges no groups.

    Why: only then is the convolution a plain product of two tensors with their memory layout. Other values would give
    one kernel two names.

    Fix: set specialization to filter1x1_stride1_pad0 and merge_groups to 1.
    """
    needed = "filter1x1_stride1_pad0"
    if config.specialization != needed:
        return Rejection(
            f"explicit_gemm does not support specialization {config.specialization}", "specialization", needed
        )
    if config.merge_groups != 1:
        return Rejection(f"explicit_gemm does not support {config.merge_groups} merged groups", "merge_groups", 1)
    return None


check_explicit_gemm_buffers = one_of(
    "P337",
    "explicit-gemm-buffers",
    "An explicit GEMM has one LDS buffer.",
    {"pipeline": resources.SINGLE_LDS},
    "{value} needs two LDS buffers, a batched GEMM has one",
    nearest="compv3",
    when={"explicit_gemm": True},
    enforced_by="compiler",
    good=_GEMM,
    bad={**_GEMM, "pipeline": "compv4"},
    why="CK Tile's batched kernel passes a single buffer, which the pipelines with two do not accept.",
    fix="use mem, compv3, compv5 or compv6.",
).limit_generations(until="2026-06")


@rule(
    "P343",
    "explicit-gemm-vectors",
    reads=("direction", "vector", "dtype_a", "dtype_b", "block", "waves"),
    when={"explicit_gemm": True},
    enforced_by="supports",
    good=_GEMM,
    bad={**_GEMM, "vector": (4, 4, 8)},
)
def check_explicit_gemm_vectors(config: Config, arch: Arch) -> Rejection | None:
    """The vectors of an explicit GEMM are at least as wide as its tiles require.

    Why: CK Tile's batched kernel rejects channels that are not a multiple of the widest vector that divides a thread's
    share of the tile, independently of the fixed vector. With narrower vectors, Tilewright would accept channels that
    the kernel does not support.

    Fix: use that vector, or a smaller block.
    """
    gemm = ImplicitGemm(config)
    native = resources.vector_a(gemm, arch), resources.vector_b(gemm, arch)
    promised = dict(zip("ck", channel_units(config), strict=True))
    for name, letter, widest in zip("ab", find_kind(config).vector_channels, native, strict=False):
        if promised[letter] % widest:
            return Rejection(
                f"channels {letter} in multiples of {promised[letter]}, but the kernel requires multiples of {widest} "
                f"because of {name}",
                "vector",
                Shape(*native, config.vector[2]),
            )
    return None


@rule(
    "P338",
    "odd-vector-add",
    reads=("vector", "dtype_c", "two_stage"),
    when={"split_k": True},
    enforced_by="supports",
    good={**_WEIGHT, "split_k": True},
    bad={**_WEIGHT, "split_k": True, "vector": (8, 8, 1)},
)
def check_add_vector(config: Config, arch: Arch) -> Rejection | None:
    """Parts of a 16-bit result are added in vectors of two or more.

    Why: the GPU adds 16-bit values in pairs. With a vector of one, CK Tile compiles an empty kernel and rejects every
    k_batch above 1.

    Fix: use a vector c of at least 2, an fp32 result, or two stages.
    """
    stored = ImplicitGemm(config).dtype_c
    if find_dtype(stored).bits != 16 or config.vector[2] % 2 == 0:
        return None
    return Rejection(f"vector c = {config.vector[2]} cannot add {stored} atomically", "vector")


check_specialization_direction = equal(
    "P339",
    "specialization-direction",
    "Only forward kernels can be specialized.",
    {"specialization": "default"},
    "{direction} has no {value} form",
    when={"direction": tuple(kind.name for kind in KINDS if not kind.specialized), "explicit_gemm": False},
    enforced_by="tilewright",
    good={"specialization": "filter1x1_pad0"},
    bad={**_DATA, "specialization": "filter1x1_pad0"},
    why="CK Tile's other kernels compute the same with every specialization and only reject problems that do not match "
    "it: one kernel would have two names. Since 2026-06 they have a shorter form for 1x1 filters with stride 1, which "
    "explicit_gemm computes without any address arithmetic.",
    fix="use specialization default, or explicit_gemm for 1x1 filters.",
)


@rule(
    "P340",
    "filter3x3-vectors",
    reads=("vector",),
    when={"specialization": "filter3x3"},
    enforced_by="supports",
    good={"specialization": "filter3x3", "vector": (1, 1, 8)},
    bad={"specialization": "filter3x3"},
)
def check_filter3x3_vectors(config: Config, arch: Arch) -> Rejection | None:
    """A filter3x3 kernel loads single elements.

    Why: it computes groups of one input channel, and a vector contains channels of one group: with a wider vector it
    would support no problem.

    Fix: use vectors a = b = 1.
    """
    a, b, c = config.vector
    if (a, b) == (1, 1):
        return None
    return Rejection(f"vectors of {a} and {b} elements do not fit a single channel", "vector", Shape(1, 1, c))


@rule(
    "P320",
    "vector-unused",
    reads=("vector",),
    when={"epilogue": "default"},
    enforced_by="tilewright",
    good={"vector": (4, 8, 1), "epilogue": "default"},
    bad={"epilogue": "default"},
)
def check_vector_effect(config: Config, arch: Arch) -> Rejection | None:
    """The default epilogue has a vector c of 1.

    Why: it always stores single elements. Another width would give one kernel two names, and reject channels that the
    kernel can store.

    Fix: use vector c = 1, or the cshuffle epilogue.
    """
    if config.vector[2] == 1:
        return None
    return Rejection(f"the default epilogue stores 1 element, vector c is {config.vector[2]}", "vector")
