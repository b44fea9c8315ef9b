"""Rules about variants and persistent kernels: P305, P309, P322, P323."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.rules import pipeline as shared
from tilewright.ops.block_gemm.rules.examples import COMPV5
from tilewright.ops.rule import Rejection, rule


@rule(
    "P322",
    "batched-buffers",
    reads=("variant", "pipeline"),
    enforced_by="compiler",
    good={"variant": "batched"},
    bad={"variant": "batched", "pipeline": "compv4"},
)
def check_batched_buffers(config: Any, arch: Arch) -> Rejection | None:
    """A batched kernel has one LDS buffer.

    Why: CK Tile's batched kernel passes a single buffer, which the pipelines with two do not accept.

    Fix: use mem, compv3, compv5 or compv6.
    """
    if config.variant != "batched" or config.pipeline not in resources.DOUBLE_LDS:
        return None
    return Rejection(f"{config.pipeline} needs two LDS buffers, a batched kernel has one", "pipeline", "compv3")


def _check_wave_groups(config: Any, arch: Arch) -> Rejection | None:
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
def check_persistent(config: Any, arch: Arch) -> Rejection | None:
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
def check_compv5_batched(config: Any, arch: Arch) -> Rejection | None:
    """compv5 has no batched form.

    Why: only the first of its two waves may store C. CK Tile's batched kernel does not pass this to the product
    (batched_gemm_kernel.hpp calls RunGemm with its default), so both waves store, and the second overwrites C with
    zeros.

    Fix: use another pipeline, or the standard variant for each product.
    """
    if config.pipeline != "compv5" or config.variant != "batched":
        return None
    return Rejection("both waves of a batched compv5 kernel store C", "pipeline", "compv3")
