"""What pipelines and variants go together with: P30x and P314, P315."""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch, Triple
from tilewright.ops.gemm import resources
from tilewright.ops.gemm.arch_table import preshuffle_tiles
from tilewright.ops.gemm.rules.examples import COMPV5, PRESHUFFLE, TILES, TYPES
from tilewright.ops.rule import Fault, rule


@rule(
    "P301",
    "scheduler-not-offered",
    reads=("pipeline", "scheduler"),
    enforced_by="compiler",
    good={"scheduler": "intrawave"},
    bad={"scheduler": "interwave"},
)
def scheduler_not_offered(config: Any, arch: Arch) -> Fault | None:
    """The pipeline must have been written for the scheduler.

    Why: mem has an intrawave and an interwave body, preshufflev2 has one of its own (default), all others are
    intrawave only; CK Tile has no code for the rest.

    Fix: take a scheduler that the pipeline has.
    """
    offered = SCHEDULERS_OF.get(config.pipeline, ("intrawave",))
    if config.scheduler in offered:
        return None
    listing = " or ".join(offered)
    return Fault(f"{config.pipeline} has {listing}, not {config.scheduler}", "scheduler", offered[0])


SCHEDULERS_OF = {"mem": ("intrawave", "interwave"), "preshufflev2": ("default",)}


@rule(
    "P302",
    "preshuffle-pipeline",
    reads=("variant", "pipeline"),
    enforced_by="device",
    good={"variant": "standard"},
    bad={**PRESHUFFLE, "variant": "standard"},
)
def preshuffle_pipeline(config: Any, arch: Arch) -> Fault | None:
    """preshuffle and preshufflev2 go together.

    Why: preshufflev2 reads B in the reordered form that only the preshuffle variant hands it; the other pipelines
    know nothing of that order, and CK Tile does not compile them with it.

    Fix: use preshufflev2 with preshuffle, any other pipeline otherwise.
    """
    if (config.pipeline == "preshufflev2") == (config.variant == "preshuffle"):
        return None
    nearest = "preshufflev2" if config.variant == "preshuffle" else "compv3"
    return Fault(f"variant {config.variant} does not go with {config.pipeline}", "pipeline", nearest)


@rule(
    "P322",
    "batched-buffers",
    reads=("variant", "pipeline"),
    enforced_by="compiler",
    good={"variant": "batched"},
    bad={"variant": "batched", "pipeline": "compv4"},
)
def batched_buffers(config: Any, arch: Arch) -> Fault | None:
    """A batched kernel has one LDS buffer.

    Why: CK Tile's batched kernel passes a single buffer, which the pipelines with two do not accept.

    Fix: use mem, compv3, compv5 or compv6.
    """
    if config.variant != "batched" or config.pipeline not in resources.DOUBLE_LDS:
        return None
    return Fault(f"{config.pipeline} needs two LDS buffers, a batched kernel has one", "pipeline", "compv3")


@rule(
    "P303",
    "preshuffle-layout",
    reads=("variant", "layout"),
    enforced_by="device",
    good={"layout": "rrr"},
    bad={"variant": "preshuffle", "pipeline": "preshufflev2", "scheduler": "default", "layout": "rrr"},
)
def preshuffle_layout(config: Any, arch: Arch) -> Fault | None:
    """A preshuffled GEMM has layout rcr.

    Why: the reordering of B is defined for a column-major B, and its kernel loads A row by row.

    Fix: use rcr, or another variant.
    """
    if config.variant != "preshuffle" or config.layout == "rcr":
        return None
    return Fault(f"preshuffle takes rcr, not {config.layout}", "layout", "rcr")


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
def preshuffle_tile(config: Any, arch: Arch) -> Fault | None:
    """A preshuffled GEMM needs an mma that its pipeline has, and LDS reads of A in whole 16-byte vectors.

    Why: the flat load of B is written for mma tiles of 16 and 32 columns, and the kernel asserts that a wave's
    share of A per step of k is a multiple of 16 bytes per lane.

    Fix: take an mma that the GPU's file lists for preshuffle, and more rows per wave.
    """
    if config.variant != "preshuffle":
        return None
    types = Triple(config.dtype_a, config.dtype_b, config.dtype_acc)
    offered = preshuffle_tiles(arch).get(types, frozenset())
    if config.mma not in offered:
        listing = ", ".join(sorted(str(tile) for tile in offered)) or "none"
        return Fault(f"{arch.name} has no preshuffle tile {config.mma} for {types}; it has {listing}", "mma")
    repeat = config.block.m // (config.waves.m * config.mma.m)
    size = dtype(config.dtype_a).storage_bytes
    share = config.mma.m * config.mma.k * size * repeat // arch.wave_size
    if repeat == 0 or share % resources.MAX_ACCESS_BYTES:
        return Fault(
            f"a lane reads {share} bytes of A per step of k, not a multiple of {resources.MAX_ACCESS_BYTES}",
            "block",
        )
    return None


@rule(
    "P305",
    "wave-groups",
    reads=("pipeline", "wave_groups", "epilogue", "persistent"),
    enforced_by="device",
    good={"wave_groups": 1},
    bad={"wave_groups": 2},
)
def wave_groups(config: Any, arch: Arch) -> Fault | None:
    """compv5 runs two wave groups with the default epilogue, every other pipeline one.

    Why: compv5 is built of a group that loads and a group that computes, and only the first stores C; the
    cshuffle epilogue spreads C over waves along m and n and does not cover a second group. The others have
    no notion of groups.

    Fix: set wave_groups to 2 and the default epilogue for compv5, wave_groups to 1 otherwise.
    """
    needed = 2 if config.pipeline == "compv5" else 1
    if config.wave_groups != needed:
        return Fault(
            f"{config.pipeline} works with {needed} wave group(s), not {config.wave_groups}",
            "wave_groups",
            needed,
        )
    if needed == 2 and config.epilogue != "default":
        return Fault(f"compv5 stores with the default epilogue, not {config.epilogue}", "epilogue", "default")
    if needed == 2 and config.persistent:
        return Fault("compv5 has no persistent form", "persistent", False)
    return None


@rule(
    "P306",
    "async-copy",
    reads=("pipeline",),
    enforced_by="compiler",
    good={"pipeline": "compv3"},
    bad={"pipeline": "comp_async", "block": (128, 128, 64)},
)
def async_copy(config: Any, arch: Arch) -> Fault | None:
    """comp_async needs a GPU that copies 16 bytes per lane from memory to LDS.

    Why: CK Tile issues the copy in one instruction per vector; gfx950 is the first to have the 12- and 16-byte
    forms, others copy 4 bytes.

    Fix: use compv4, which loads through registers.
    """
    if config.pipeline != "comp_async" or arch.lds.async_copy_bytes >= resources.MAX_ACCESS_BYTES:
        return None
    return Fault(
        f"{arch.name} copies {arch.lds.async_copy_bytes} bytes per lane from memory to LDS, comp_async needs "
        f"{resources.MAX_ACCESS_BYTES}",
        "pipeline",
        "compv4",
    )


@rule(
    "P309",
    "persistent-not-offered",
    reads=("persistent", "variant", "pipeline"),
    enforced_by="device",
    good={"persistent": True},
    bad={"persistent": True, "variant": "batched"},
)
def persistent_not_offered(config: Any, arch: Arch) -> Fault | None:
    """Persistent kernels exist for standard, preshuffle and multi_d, in the pipelines that carry the flag.

    Why: CK Tile's batched kernel has no loop over tiles; compv5, compv6 and comp_async do not tell the kernel that
    they are persistent, so it would compute one tile per work-group and leave the others.

    Fix: turn persistent off, or use mem, compv3, compv4 or preshufflev2.
    """
    if not config.persistent:
        return None
    if config.variant == "batched":
        return Fault("a batched kernel cannot be persistent", "persistent", False)
    if config.pipeline in ("compv5", "compv6", "comp_async"):
        return Fault(f"{config.pipeline} has no persistent form", "persistent", False)
    return None


@rule(
    "P314",
    "mixed-types",
    reads=("dtype_a", "dtype_b", "pipeline"),
    enforced_by="device",
    good={},
    bad={"dtype_a": "fp8", "dtype_b": "bf8", "mma": (32, 32, 16), "block": (128, 128, 64)},
)
def mixed_types(config: Any, arch: Arch) -> Fault | None:
    """Different types of A and B need a pipeline that keeps them apart.

    Why: mem and compv3 take one compute type for both operands: they compile, but read the bits of B as if it
    had A's type (an fp8×bf8 kernel contains …_fp8_fp8 instructions) and every result is wrong.

    Fix: use compv4, compv6, comp_async or preshufflev2.
    """
    if config.dtype_a == config.dtype_b or config.pipeline not in ("mem", "compv3"):
        return None
    return Fault(f"{config.pipeline} would read {config.dtype_b} as {config.dtype_a}", "pipeline", "compv4")


@rule(
    "P315",
    "compv5-layout",
    reads=("pipeline", "layout"),
    enforced_by="compiler",
    good={"layout": "rrr"},
    bad={**COMPV5, "layout": "rrr"},
)
def compv5_layout(config: Any, arch: Arch) -> Fault | None:
    """compv5 takes layout rcr.

    Why: for a column-major A or a row-major B it would transpose in registers, and CK Tile's transposition does
    not know the distribution over wave groups.

    Fix: use rcr, or another pipeline.
    """
    if config.pipeline != "compv5" or config.layout == "rcr":
        return None
    return Fault(f"compv5 takes rcr, not {config.layout}", "layout", "rcr")


@rule(
    "P323",
    "compv5-batched",
    reads=("pipeline", "variant"),
    enforced_by="device",
    good={**COMPV5, "block": (64, 64, 32)},
    bad={**COMPV5, "block": (64, 64, 32), "variant": "batched"},
)
def compv5_batched(config: Any, arch: Arch) -> Fault | None:
    """compv5 has no batched form.

    Why: of its two waves only the first may store C. CK Tile's batched kernel starts the product without telling it
    so (batched_gemm_kernel.hpp calls RunGemm with its default), both waves store, and the second one's zeros win.

    Fix: use another pipeline, or the standard variant for each product.
    """
    if config.pipeline != "compv5" or config.variant != "batched":
        return None
    return Fault("both waves of a batched compv5 kernel store C", "pipeline", "compv3")


@rule(
    "P316",
    "async-vector",
    reads=("pipeline", "dtype_a", "dtype_b", "layout", "block", "waves"),
    enforced_by="compiler",
    good={"pipeline": "comp_async", "epilogue": "default", "block": (128, 128, 64)},
    bad={"pipeline": "comp_async", "epilogue": "default", "block": (32, 128, 32), "mma": (16, 16, 32)},
    arch="gfx950",
)
def async_vector(config: Any, arch: Arch) -> Fault | None:
    """comp_async needs tiles of A and B that a lane copies in vectors of 16 or 4 bytes.

    Why: the copies from memory to LDS exist for 4, 12 and 16 bytes, and CK Tile takes the widest vector of 16 or
    8 bytes that divides a thread's share of the tile.

    Fix: use a larger block or fewer waves, so that a thread's share is a multiple of 16 bytes.
    """
    if config.pipeline != "comp_async":
        return None
    for name, vector, kind in (
        ("A", resources.vector_a(config, arch), config.dtype_a),
        ("B", resources.vector_b(config, arch), config.dtype_b),
    ):
        size = vector * dtype(kind).storage_bytes
        if size not in ASYNC_VECTOR_BYTES:
            return Fault(f"a lane would copy {name} in vectors of {size} bytes, the GPU has 4 and 16", "block")
    return None


ASYNC_VECTOR_BYTES = (4, 16)


@rule(
    "P318",
    "async-shuffle",
    reads=("pipeline", "epilogue"),
    enforced_by="device",
    good={"pipeline": "comp_async", "epilogue": "default", "block": (128, 128, 64)},
    bad={"pipeline": "comp_async", "block": (128, 128, 64)},
    arch="gfx950",
)
def async_shuffle(config: Any, arch: Arch) -> Fault | None:
    """comp_async stores with the default epilogue.

    Why: after its last barrier it leaves copies from memory to LDS under way, and cshuffle stages C in the same LDS.
    A wave waits for its own copies, not for those of the others: they can overwrite the part of C that it staged.

    Fix: use the default epilogue, or compv4.
    """
    if config.pipeline != "comp_async" or config.epilogue == "default":
        return None
    return Fault(f"comp_async stores with the default epilogue, not {config.epilogue}", "epilogue", "default")
