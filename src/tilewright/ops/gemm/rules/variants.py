"""Rules about variants, persistent kernels and storing C: P305, P307 to P309, P312, P320, P322, P323."""

from __future__ import annotations

import dataclasses

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.rule_reuse import rule_except
from tilewright.ops.block_gemm.rules import pipeline as shared
from tilewright.ops.block_gemm.rules import storage
from tilewright.ops.block_gemm.rules.examples import COMPV5, TILES
from tilewright.ops.gemm.config import Config
from tilewright.ops.rule import Rejection, rule


@rule(
    "P322",
    "batched-buffers",
    reads=("variant", "pipeline"),
    enforced_by="compiler",
    good={"variant": "batched"},
    bad={"variant": "batched", "pipeline": "compv4"},
)
def check_batched_buffers(config: Config, arch: Arch) -> Rejection | None:
    """A batched kernel has one LDS buffer.

    Why: CK Tile's batched kernel passes a single buffer, which the pipelines with two do not accept.

    Fix: use mem, compv3, compv5 or compv6.
    """
    if config.variant != "batched" or config.pipeline not in resources.DOUBLE_LDS:
        return None
    return Rejection(f"{config.pipeline} needs two LDS buffers, a batched kernel has one", "pipeline", "compv3")


def _check_wave_groups(config: Config, arch: Arch) -> Rejection | None:
    fault = shared.check_wave_groups.check(config, arch)
    if fault is None and config.pipeline == "compv5" and config.persistent:
        return Rejection("compv5 has no persistent form", "persistent", False)
    return fault


wave_groups = dataclasses.replace(
    shared.check_wave_groups, reads=("pipeline", "wave_groups", "epilogue", "persistent"), check=_check_wave_groups
)


@rule(
    "P309",
    "persistent-not-offered",
    reads=("persistent", "variant", "pipeline"),
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
    if not config.persistent:
        return None
    if config.variant == "batched":
        return Rejection("a batched kernel cannot be persistent", "persistent", False)
    if config.pipeline in ("compv5", "compv6", "comp_async"):
        return Rejection(f"{config.pipeline} has no persistent form", "persistent", False)
    return None


@rule(
    "P323",
    "compv5-batched",
    reads=("pipeline", "variant"),
    enforced_by="device",
    good={**COMPV5, "block": (64, 64, 32)},
    bad={**COMPV5, "block": (64, 64, 32), "variant": "batched"},
)
def check_compv5_batched(config: Config, arch: Arch) -> Rejection | None:
    """compv5 has no batched form.

    Why: only the first of its two waves may store C. CK Tile's batched kernel does not pass this to the product
    (batched_gemm_kernel.hpp calls RunGemm with its default), so both waves store, and the second overwrites C with
    zeros.

    Fix: use another pipeline, or the standard variant for each product.
    """
    if config.pipeline != "compv5" or config.variant != "batched":
        return None
    return Rejection("both waves of a batched compv5 kernel store C", "pipeline", "compv3")


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
    if config.variant == "multi_d":
        return None if config.num_d else Rejection("multi_d needs at least 1 D tensor, num_d is 0", "num_d", 1)
    if config.num_d:
        return Rejection(f"{config.variant} does not support D tensors, num_d is {config.num_d}", "num_d", 0)
    if config.elementwise != "PassThrough":
        return Rejection(f"{config.variant} cannot apply {config.elementwise}", "elementwise", "PassThrough")
    return None


@rule(
    "P308",
    "split-k-not-possible",
    reads=("split_k", "variant", "epilogue", "dtype_c", "vector"),
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
    if not config.split_k:
        return None
    if config.variant == "multi_d":
        return Rejection("multi_d cannot split K", "split_k", False)
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
    if config.pipeline == "preshufflev2":
        return Rejection("preshufflev2 does not support fixed vector widths", "vector")
    if config.epilogue == "default" and config.vector[2] != 1:
        return Rejection(f"the default epilogue stores 1 element, vector c is {config.vector[2]}", "vector")
    return None


@rule(
    "P312",
    "permute-n",
    reads=("permute_n", "variant", "epilogue", "block", "waves", "mma"),
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
    if not config.permute_n:
        return None
    if config.variant != "preshuffle" or config.epilogue != "cshuffle":
        return Rejection(f"{config.variant} with the {config.epilogue} epilogue has no permute_n", "permute_n", False)
    repeat = config.block.n // (config.waves.n * config.mma.n)
    if repeat % 2:
        return Rejection(
            f"permute_n needs an even number of mma tiles per wave along n, not {repeat}", "permute_n", False
        )
    return None


def _is_stored_from_registers(config: Config) -> bool:
    return config.permute_n


shuffle_not_whole = rule_except(
    storage.check_shuffle_repeats,
    _is_stored_from_registers,
    reads=("epilogue", "dtype_c", "vector", "permute_n", *TILES),
)
shuffle_not_spread = rule_except(
    storage.check_shuffle_distribution,
    _is_stored_from_registers,
    reads=("epilogue", "dtype_c", "vector", "permute_n", "wave_groups", *TILES),
)
