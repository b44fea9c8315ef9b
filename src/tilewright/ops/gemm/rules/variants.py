"""Rules about variants, persistent kernels and storing C: P302, P307 to P309, P312, P320."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.kind import find_kind
from tilewright.ops.gemm.kinds import preshuffle
from tilewright.ops.rule import Rejection, rule


@rule(
    "P302",
    "preshuffle-pipeline",
    reads=("variant", "pipeline"),
    enforced_by="device",
    good={"variant": "standard"},
    bad={**preshuffle.EXAMPLE, "variant": "standard"},
)
def check_preshuffle_pipeline(config: Config, arch: Arch) -> Rejection | None:
    """The variant preshuffle requires the pipeline preshufflev2, and the reverse.

    Why: preshufflev2 reads B in the order that only the preshuffle variant passes. The other pipelines do not support
    that order, and CK Tile does not compile them with it.

    Fix: use preshufflev2 with preshuffle, any other pipeline otherwise.
    """
    kind = find_kind(config)
    if (config.pipeline == preshuffle.PIPELINE) == kind.reordered_b:
        return None
    nearest = preshuffle.PIPELINE if kind.reordered_b else "compv3"
    return Rejection(f"variant {kind.name} does not work with {config.pipeline}", "pipeline", nearest)


@rule(
    "P309",
    "persistent-not-offered",
    reads=("variant", "pipeline"),
    when={"persistent": True},
    enforced_by="device",
    good={"persistent": True},
    bad={"persistent": True, "variant": "batched"},
)
def check_persistent(config: Config, arch: Arch) -> Rejection | None:
    """Persistent kernels exist for standard, preshuffle and multi_d, in the pipelines that have the flag.

    Why: CK Tile's batched kernel has no loop over tiles. compv5, compv6 and comp_async do not pass the flag to the
    kernel, so that it would compute one tile per work-group and skip the others.

    Fix: turn persistent off, or use mem, compv3, compv4 or preshufflev2.
    """
    kind = find_kind(config)
    if not kind.has_field("persistent"):
        return Rejection(f"a {kind.name} kernel cannot be persistent", "persistent", False)
    if config.pipeline in ("compv5", "compv6", "comp_async"):
        return Rejection(f"{config.pipeline} has no persistent form", "persistent", False)
    return None


@rule(
    "P307",
    "elementwise-without-d",
    reads=("variant", "elementwise", "num_d"),
    enforced_by="tilewright",
    good={"variant": "multi_d", "elementwise": "MultiDAdd", "num_d": 1},
    bad={"elementwise": "Relu"},
)
def check_elementwise(config: Config, arch: Arch) -> Rejection | None:
    """multi_d has at least one D tensor. The other variants have no D tensors and no element-wise operation.

    Why: CK Tile's multi-D kernel rejects an empty list of D tensors, and the other kernels have no argument for them.

    Fix: use multi_d with num_d of 1 or more, or PassThrough without D tensors.
    """
    kind = find_kind(config)
    if kind.has_field("num_d"):
        return None if config.num_d else Rejection(f"{kind.name} needs at least 1 D tensor, num_d is 0", "num_d", 1)
    if config.num_d:
        return Rejection(f"{kind.name} does not support D tensors, num_d is {config.num_d}", "num_d", 0)
    if config.elementwise != "PassThrough":
        return Rejection(f"{kind.name} cannot apply {config.elementwise}", "elementwise", "PassThrough")
    return None


@rule(
    "P308",
    "split-k-not-possible",
    reads=("variant", "epilogue", "dtype_c", "vector"),
    when={"split_k": True},
    enforced_by="supports",
    good={"split_k": True},
    bad={"split_k": True, "epilogue": "default"},
)
def check_split_k(config: Config, arch: Arch) -> Rejection | None:
    """Split-K needs an atomic add to C that CK Tile implements.

    Why: 16-bit values are added in pairs, but the default epilogue, and a fixed vector width of 1 for C, store single
    elements: CK Tile then compiles an empty kernel and rejects every k_batch above 1. Its multi-D kernel always rejects
    split-K, since the element-wise operation would be applied to each part.

    Fix: use the cshuffle epilogue with wider vectors, a 32-bit C, or no split-K.
    """
    kind = find_kind(config)
    if kind.has_field("elementwise"):
        return Rejection(f"{kind.name} cannot split K", "split_k", False)
    if config.epilogue == "default" and find_dtype(config.dtype_c).bits == 16:
        return Rejection(f"the default epilogue cannot add {config.dtype_c} atomically", "epilogue", "cshuffle")
    if config.vector is not None and config.vector[2] % 2 and find_dtype(config.dtype_c).bits == 16:
        return Rejection(f"vectors of {config.vector[2]} cannot add {config.dtype_c} atomically", "vector")
    return None


@rule(
    "P320",
    "vector-unused",
    reads=("vector", "pipeline", "epilogue"),
    enforced_by="tilewright",
    good={"vector": (8, 8, 1), "epilogue": "default"},
    bad={"vector": (8, 8, 8), "epilogue": "default"},
)
def check_vector_effect(config: Config, arch: Arch) -> Rejection | None:
    """A fixed vector width must have an effect.

    Why: the default epilogue stores single elements, and preshufflev2 ignores the widths. Other values would only give
    one kernel two names.

    Fix: set C's width to 1 with the default epilogue; leave the widths native with preshufflev2.
    """
    if config.vector is None:
        return None
    if config.pipeline == preshuffle.PIPELINE:
        return Rejection("preshufflev2 does not support fixed vector widths", "vector")
    if config.epilogue == "default" and config.vector[2] != 1:
        return Rejection(f"the default epilogue stores 1 element, vector c is {config.vector[2]}", "vector")
    return None


@rule(
    "P312",
    "permute-n",
    reads=("variant", "epilogue", "block", "waves", "mma"),
    when={"permute_n": True},
    enforced_by="device",
    good={"permute_n": False},
    bad={"permute_n": True},
)
def check_permute_n(config: Config, arch: Arch) -> Rejection | None:
    """permute_n requires preshuffle with cshuffle and an even number of mma tiles per wave along n.

    Why: it changes the order of the reordered B and how C is stored from registers. The other variants do not
    implement it, and the order is defined for pairs of tiles.

    Fix: turn it off, or use preshuffle with an even block n / (waves n × mma n).
    """
    kind = find_kind(config)
    if not kind.has_field("permute_n") or config.epilogue != "cshuffle":
        return Rejection(f"{kind.name} with the {config.epilogue} epilogue has no permute_n", "permute_n", False)
    repeat = config.block.n // (config.waves.n * config.mma.n)
    if repeat % 2:
        return Rejection(
            f"permute_n needs an even number of mma tiles per wave along n, not {repeat}", "permute_n", False
        )
    return None
