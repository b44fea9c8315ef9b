"""Rules about the features of pipelines: P301, P305, P306, P314 to P316, P318, P324 to P326."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.block_gemm.rules.examples import COMPV5
from tilewright.ops.rule import Rejection, rule
from tilewright.ops.rule_forms import equal, since

# Other pipelines are intrawave only.
SCHEDULERS_OF = {"mem": ("intrawave", "interwave"), "preshufflev2": ("default",)}
ASYNC_VECTOR_BYTES = (4, 16)


@rule(
    "P301",
    "scheduler-not-offered",
    reads=("pipeline", "scheduler"),
    enforced_by="compiler",
    good={"scheduler": "intrawave"},
    bad={"scheduler": "interwave"},
)
def check_scheduler(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """The pipeline must implement the scheduler.

    Why: mem has an intrawave and an interwave implementation, all others are intrawave only. CK Tile has no code for
    other combinations.

    Fix: use a scheduler that the pipeline has.
    """
    offered = SCHEDULERS_OF.get(config.pipeline, ("intrawave",))
    if config.scheduler in offered:
        return None
    listing = " or ".join(offered)
    return Rejection(f"{config.pipeline} has {listing}, not {config.scheduler}", "scheduler", offered[0])


@rule(
    "P305",
    "wave-groups",
    reads=("pipeline", "wave_groups", "epilogue"),
    enforced_by="device",
    good={"wave_groups": 1},
    bad={"wave_groups": 2},
)
def check_wave_groups(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """compv5 runs two wave groups with the default epilogue, every other pipeline one.

    Why: compv5 consists of a group that loads and a group that computes, and only the first stores C. The cshuffle
    epilogue distributes C over waves along m and n and does not cover a second group. The other pipelines have no
    groups.

    Fix: set wave_groups to 2 and the default epilogue for compv5, wave_groups to 1 otherwise.
    """
    needed = 2 if config.pipeline == "compv5" else 1
    if config.wave_groups != needed:
        return Rejection(
            f"{config.pipeline} works with {needed} wave group(s), not {config.wave_groups}",
            "wave_groups",
            needed,
        )
    if needed == 2 and config.epilogue != "default":
        return Rejection(f"compv5 stores with the default epilogue, not {config.epilogue}", "epilogue", "default")
    return None


@rule(
    "P306",
    "async-copy",
    reads=(),
    when={"pipeline": "comp_async"},
    enforced_by="compiler",
    good={"pipeline": "compv3"},
    bad={"pipeline": "comp_async", "block": (128, 128, 64)},
)
def check_async_copy(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """comp_async needs a GPU that copies 16 bytes per lane from memory to LDS.

    Why: CK Tile issues one copy instruction per vector. gfx950 is the first GPU with 12- and 16-byte copies, others
    copy 4 bytes.

    Fix: use compv4, which loads through registers.
    """
    if arch.lds.async_copy_bytes >= resources.MAX_ACCESS_BYTES:
        return None
    return Rejection(
        f"{arch.name} copies {arch.lds.async_copy_bytes} bytes per lane from memory to LDS, comp_async needs "
        f"{resources.MAX_ACCESS_BYTES}",
        "pipeline",
        "compv4",
    )


@rule(
    "P314",
    "mixed-types",
    reads=("dtype_a", "dtype_b", "pipeline"),
    enforced_by="device",
    good={},
    bad={"dtype_a": "fp8", "dtype_b": "bf8", "mma": (32, 32, 16), "block": (128, 128, 64)},
)
def check_mixed_types(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """Different types of A and B need a pipeline with a type for each.

    Why: mem and compv3 have one compute type for both operands. They compile, but read the bits of B as if it had
    A's type (an fp8×bf8 kernel contains …_fp8_fp8 instructions), and every result is wrong.

    Fix: use compv4, compv6 or comp_async.
    """
    if config.dtype_a == config.dtype_b or config.pipeline not in ("mem", "compv3"):
        return None
    return Rejection(f"{config.pipeline} would read {config.dtype_b} as {config.dtype_a}", "pipeline", "compv4")


check_compv5_layout = equal(
    "P315",
    "compv5-layout",
    "compv5 requires layout rcr.",
    {"layout": "rcr"},
    "compv5 requires layout rcr, not {value}",
    when={"pipeline": "compv5"},
    enforced_by="compiler",
    good={"layout": "rrr"},
    bad={**COMPV5, "layout": "rrr"},
    why="for a column-major A or a row-major B it would transpose in registers, and CK Tile's transposition does not "
    "support the distribution over wave groups.",
    fix="use rcr, or another pipeline.",
)


@since("2026-06")
@rule(
    "P324",
    "compv5-removed",
    reads=(),
    when={"pipeline": "compv5"},
    enforced_by="compiler",
    good={},
    bad=COMPV5,
)
def check_compv5_offered(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """CK Tile's compv5 does not compile since 2026-06.

    Why: the pipeline asks its block GEMM for a constant that no longer exists. Besides, GEMM kernels no longer
    distinguish the wave group that may store C.

    Fix: use another pipeline, or CK Tile's headers of 2025.
    """
    return Rejection("compv5 does not compile with CK Tile since 2026-06", "pipeline", "compv3")


@since("2026-06")
@rule(
    "P325",
    "compv6-on-rdna3",
    reads=("dtype_a",),
    when={"pipeline": "compv6"},
    enforced_by="device",
    good={"block": (64, 64, 32), "mma": (16, 16, 16)},
    bad={"block": (64, 64, 32), "mma": (16, 16, 16), "pipeline": "compv6"},
    arch="gfx1100",
)
def check_compv6_operands(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """Since 2026-06, compv6 works on RDNA 3 with int8 only.

    Why: matrix instructions of RDNA 3 take each operand twice, once in each half of a wave. For 16-bit types, CK Tile's
    compv6 counts both, so that every sum is twice as large as it should be.

    Fix: use compv3 or mem, or CK Tile's headers of 2025.
    """
    if arch.family == "rdna3" and find_dtype(config.dtype_a).bits > 8:
        return Rejection(f"compv6 sums every product twice on {arch.name}", "pipeline", "compv3")
    return None


@since("2026-06")
@rule(
    "P326",
    "vector-exceeds-share",
    reads=("block", "waves", "vector", "wave_groups"),
    when={"pipeline": ("compv3", "compv6")},
    enforced_by="compiler",
    good={"block": (32, 128, 32), "waves": (1, 2, 1), "mma": (16, 16, 32), "vector": (8, 8, 8)},
    bad={"block": (16, 128, 32), "waves": (1, 2, 1), "mma": (16, 16, 32), "vector": (8, 8, 8)},
)
def check_share_of_loads(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """Since 2026-06, a given vector must not be wider than the elements of A or B that a thread loads.

    Why: compv3 and compv6 divide by the number of loads of a thread, which CK Tile computes with the given vectors. A
    wider vector gives no load. Without given vectors it computes with narrower ones, as it did before with all.

    Fix: use a narrower vector, a larger block, or fewer waves.
    """
    if not config.vector:
        return None
    threads = resources.block_threads(config, arch)
    sides = (("A", config.block.m, config.vector.m), ("B", config.block.n, config.vector.n))
    for name, extent, vector in sides:
        share = extent * config.block.k // threads
        if share < vector:
            return Rejection(f"a thread loads {share} elements of {name}, the vector has {vector}", "vector")
    return None


@rule(
    "P316",
    "async-vector",
    reads=("dtype_a", "dtype_b", "layout", "block", "waves", "vector"),
    when={"pipeline": "comp_async"},
    enforced_by="compiler",
    good={"pipeline": "comp_async", "epilogue": "default", "block": (128, 128, 64)},
    bad={"pipeline": "comp_async", "epilogue": "default", "block": (32, 128, 32), "mma": (16, 16, 32)},
    arch="gfx950",
)
def check_async_vector(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """comp_async needs tiles of A and B that a lane copies in vectors of 16 or 4 bytes.

    Why: the copies from memory to LDS exist for 4, 12 and 16 bytes. A vector is never wider than a thread's share of
    the tile. If no vector is fixed, CK Tile uses the widest of 16 or 8 bytes that divides the share.

    Fix: use a larger block or fewer waves, so that a thread's share is a multiple of 16 bytes; or fix other vectors.
    """
    if config.vector is None:
        a, b = resources.vector_a(config, arch), resources.vector_b(config, arch)
    else:
        a, b = resources.fixed_vectors(config, config.vector, arch)
    for name, vector, kind in (("A", a, config.dtype_a), ("B", b, config.dtype_b)):
        size = vector * find_dtype(kind).storage_bytes
        if size not in ASYNC_VECTOR_BYTES:
            field = "block" if config.vector is None else "vector"
            return Rejection(f"a lane would copy {name} in vectors of {size} bytes, the GPU has 4 and 16", field)
    return None


check_async_epilogue = equal(
    "P318",
    "async-shuffle",
    "comp_async stores with the default epilogue.",
    {"epilogue": "default"},
    "comp_async stores with the default epilogue, not {value}",
    when={"pipeline": "comp_async"},
    enforced_by="device",
    good={"pipeline": "comp_async", "epilogue": "default", "block": (128, 128, 64)},
    bad={"pipeline": "comp_async", "block": (128, 128, 64)},
    arch="gfx950",
    why="after its last barrier, copies from memory to LDS are still in flight, and cshuffle stages C in the same LDS. "
    "A wave waits for its own copies, not for those of other waves, which can overwrite the part of C that it staged.",
    fix="use the default epilogue, or compv4.",
)
