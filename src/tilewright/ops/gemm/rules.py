"""The rules of GEMM configs. Codes: A1xx hardware, T2xx tile arithmetic, P3xx pipeline and epilogue, R4xx resources.

File names are below ck_tile/ops/. Each rule says who enforces it; `make truth` compares rules with the compiler.
"""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtypes import ACCUMULATORS, dtype
from tilewright.arch.spec import Arch, Shape, Triple
from tilewright.ops.gemm import resources
from tilewright.ops.gemm.arch_table import preshuffle_tiles
from tilewright.ops.gemm.config import OUTPUTS
from tilewright.ops.gemm.distribution import coverage_fault
from tilewright.ops.rule import Fault, Rule, rule

TYPES = ("dtype_a", "dtype_b", "dtype_acc")
TILES = ("block", "waves", "mma")
COMPV5_WAVES = Shape(1, 1, 2)


@rule(
    "A101",
    "no-matrix-instruction",
    reads=(*TYPES, "mma"),
    enforced_by="compiler",
    good={"mma": (32, 32, 8)},
    bad={"mma": (32, 32, 4)},
)
def no_matrix_instruction(config: Any, arch: Arch) -> Fault | None:
    """The GPU must have the matrix tile for these types.

    Why: CK Tile selects a wave-level matrix operation by types and tile; where it has none for the GPU the
    source does not compile, or compiles to another instruction than the one named.

    Fix: take one of the tiles that `tilewright arch show` lists for these types.
    """
    shapes = arch.mma_shapes(config.dtype_a, config.dtype_b, config.dtype_acc)
    types = f"{config.dtype_a}×{config.dtype_b}→{config.dtype_acc}"
    if not shapes:
        known = ", ".join(str(t) for t in arch.mma)
        return Fault(f"{arch.name} multiplies no {types}; it has {known}", "dtype_a")
    if config.mma in shapes:
        return None
    nearest = min(shapes, key=lambda s: sum(abs(x - y) for x, y in zip(s, config.mma, strict=True)))
    listing = ", ".join(str(s) for s in shapes)
    return Fault(f"{arch.name} has no {config.mma} for {types}; it has {listing}", "mma", nearest)


@rule(
    "A102",
    "block-too-large",
    reads=("waves",),
    enforced_by="compiler",
    good={"waves": (2, 2, 1)},
    bad={"waves": (8, 4, 1), "block": (256, 128, 32)},
)
def block_too_large(config: Any, arch: Arch) -> Fault | None:
    """A work-group has at most as many threads as the GPU allows.

    Why: the hardware cannot start a larger one.

    Fix: use fewer waves.
    """
    threads = resources.block_threads(config, arch)
    limit = arch.compute.max_block_threads
    if threads <= limit:
        return None
    return Fault(
        f"{config.waves} waves of {arch.wave_size} are {threads} threads, {arch.name} allows {limit}", "waves"
    )


@rule(
    "T201",
    "block-not-covered",
    reads=TILES,
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (96, 128, 32)},
)
def block_not_covered(config: Any, arch: Arch) -> Fault | None:
    """The block must be a whole number of waves × mma in m, n and k.

    Why: every wave computes the same number of matrix tiles; what is left over would not be computed.

    Fix: make the block a multiple of waves × mma, or choose waves and mma that divide it.
    """
    for name, block, waves, mma in zip("mnk", config.block, config.waves, config.mma, strict=True):
        step = waves * mma
        if block % step:
            below, above = block // step * step, -(-block // step) * step
            near = f"{above}" if below == 0 else f"{below} or {above}"
            fixed = Shape(**{**config.block._asdict(), name: below or above})
            return Fault(
                f"block {name} = {block} is not a multiple of {waves} waves × {mma} = {step}; "
                f"nearest: {near}",
                "block",
                fixed,
            )
    return None


@rule(
    "T202",
    "a-tile-not-spread",
    reads=("dtype_a", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (128, 128, 96), "mma": (32, 32, 8)},
)
def a_tile_not_spread(config: Any, arch: Arch) -> Fault | None:
    """The threads of a work-group must share the A tile evenly.

    Why: each wave loads whole lines of the tile with one vector per lane; CK Tile asserts that lanes and waves
    cover the tile exactly.

    Fix: use a power of two for the contiguous extent, or a larger block, or fewer waves.
    """
    if config.pipeline == "preshufflev2":
        return _preshuffle_a_fault(config, arch)
    rows = config.layout[0] == "r"
    y, x = (config.block.m, config.block.k) if rows else (config.block.k, config.block.m)
    vector = config.vector.m if config.vector else resources.vector_a(config, arch)
    return _spread_fault("A", config, arch, y, x, vector)


@rule(
    "T203",
    "b-tile-not-spread",
    reads=("dtype_b", "layout", "pipeline", "block", "waves", "vector", "wave_groups"),
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (128, 96, 32), "waves": (4, 1, 1), "layout": "rrr"},
)
def b_tile_not_spread(config: Any, arch: Arch) -> Fault | None:
    """The threads of a work-group must share the B tile evenly.

    Why: as for A. A preshuffled B is loaded by each wave for itself and is exempt.

    Fix: use a power of two for the contiguous extent, or a larger block, or fewer waves.
    """
    if config.pipeline == "preshufflev2":
        return None
    columns = config.layout[1] == "c"
    y, x = (config.block.n, config.block.k) if columns else (config.block.k, config.block.n)
    vector = config.vector.n if config.vector else resources.vector_b(config, arch)
    return _spread_fault("B", config, arch, y, x, vector)


def _spread_fault(name: str, config: Any, arch: Arch, y: int, x: int, vector: int) -> Fault | None:
    fault = coverage_fault(
        threads=resources.block_threads(config, arch),
        wave=arch.wave_size,
        y=y,
        x=x,
        vector=vector,
        groups=config.wave_groups,
    )
    return None if fault is None else Fault(f"the {name} tile of {y}×{x}: {fault}", "block")


def _preshuffle_a_fault(config: Any, arch: Arch) -> Fault | None:
    """A row-major A of the preshuffle pipeline (MakeADramTileDistribution in
    gemm/pipeline/wp_pipeline_agmem_bgmem_creg_base_policy.hpp)."""
    vector = resources.MAX_ACCESS_BYTES // dtype(config.dtype_a).storage_bytes
    lanes_k = config.block.k // vector
    if config.block.k % vector or lanes_k == 0 or arch.wave_size % lanes_k:
        return Fault(
            f"block k = {config.block.k} is {lanes_k} vectors of {vector}, which do not divide a wave of "
            f"{arch.wave_size}",
            "block",
        )
    rows = arch.wave_size // lanes_k * resources.block_threads(config, arch) // arch.wave_size
    if config.block.m % rows:
        return Fault(f"block m = {config.block.m} is not a multiple of the {rows} rows loaded at once", "block")
    return None


@rule(
    "T204",
    "waves-along-k",
    reads=("waves", "pipeline"),
    enforced_by="device",
    good={"waves": (2, 2, 1)},
    bad={"waves": (1, 2, 2), "block": (128, 128, 64)},
)
def waves_along_k(config: Any, arch: Arch) -> Fault | None:
    """Only compv5 spreads waves along k, and it takes exactly two.

    Why: the other pipelines number their waves along m and n only, so that further waves repeat the work and
    store over each other. compv5 pairs one wave that loads with one that computes.

    Fix: use 1 wave along k, or compv5 with waves 1x1x2.
    """
    if config.pipeline == "compv5":
        if config.waves == COMPV5_WAVES:
            return None
        return Fault(f"compv5 works with waves {COMPV5_WAVES}, not {config.waves}", "waves", COMPV5_WAVES)
    if config.waves.k == 1:
        return None
    nearest = config.waves._replace(k=1)
    return Fault(f"{config.pipeline} takes 1 wave along k, not {config.waves.k}", "waves", nearest)


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
    "variant-needs-pipeline",
    reads=("variant", "pipeline"),
    enforced_by="compiler",
    good={"variant": "standard"},
    bad={"variant": "preshuffle"},
)
def variant_needs_pipeline(config: Any, arch: Arch) -> Fault | None:
    """preshuffle and preshufflev2 go together; batched kernels have one LDS buffer.

    Why: preshufflev2 reads B in the reordered form that only the preshuffle variant hands it. CK Tile's batched
    kernel passes a single LDS buffer, which the double-buffered pipelines do not accept.

    Fix: use preshufflev2 with preshuffle, a single-buffered pipeline with batched, any other otherwise.
    """
    preshuffled = config.pipeline == "preshufflev2"
    if preshuffled != (config.variant == "preshuffle"):
        nearest = "preshufflev2" if config.variant == "preshuffle" else "compv3"
        return Fault(f"variant {config.variant} does not go with {config.pipeline}", "pipeline", nearest)
    if config.variant == "batched" and config.pipeline in resources.DOUBLE_LDS:
        return Fault(f"{config.pipeline} needs two LDS buffers, a batched kernel has one", "pipeline", "compv3")
    return None


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
        "variant": "preshuffle", "pipeline": "preshufflev2", "scheduler": "default",
        "mma": (64, 4, 16), "waves": (1, 4, 1), "block": (128, 64, 64),
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
            f"{config.pipeline} works with {needed} wave group(s), not {config.wave_groups}", "wave_groups", needed
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
    if config.pipeline != "comp_async" or arch.family in ASYNC_COPY_FAMILIES:
        return None
    return Fault(f"{arch.name} copies 4 bytes per lane from memory to LDS, comp_async needs 16", "pipeline", "compv4")


ASYNC_COPY_FAMILIES = ("cdna4",)


@rule(
    "P307",
    "elementwise-without-d",
    reads=("variant", "elementwise", "num_d"),
    enforced_by="tilewright",
    good={"variant": "multi_d", "elementwise": "MultiDAdd", "num_d": 1},
    bad={"elementwise": "Relu"},
)
def elementwise_without_d(config: Any, arch: Arch) -> Fault | None:
    """multi_d has at least one D tensor; the other variants have none and no element-wise operation.

    Why: CK Tile's multi-D kernel refuses an empty list of D tensors, and the other kernels have no argument to
    pass them in.

    Fix: use multi_d with num_d of 1 or more, or PassThrough without D tensors.
    """
    if config.variant == "multi_d":
        return None if config.num_d else Fault("multi_d with num_d = 0, needs at least 1", "num_d", 1)
    if config.num_d:
        return Fault(f"{config.variant} takes no D tensors, num_d is {config.num_d}", "num_d", 0)
    if config.elementwise != "PassThrough":
        return Fault(f"{config.variant} cannot apply {config.elementwise}", "elementwise", "PassThrough")
    return None


@rule(
    "P308",
    "split-k-not-possible",
    reads=("split_k", "variant", "epilogue", "dtype_c", "pipeline"),
    enforced_by="supports",
    good={"split_k": True},
    bad={"split_k": True, "epilogue": "default"},
)
def split_k_not_possible(config: Any, arch: Arch) -> Fault | None:
    """Split-K needs an atomic store of C that CK Tile has.

    Why: 16-bit values are added in pairs, but the default epilogue stores single elements: CK Tile then compiles
    an empty kernel and refuses every k_batch above 1. Its multi-D kernel refuses split-K always, since the
    element-wise operation would be applied to each part.

    Fix: use the cshuffle epilogue, a 32-bit C, or no split-K.
    """
    if not config.split_k:
        return None
    if config.variant == "multi_d":
        return Fault("multi_d cannot split K", "split_k", False)
    if config.epilogue == "default" and dtype(config.dtype_c).bits == 16:
        return Fault(f"the default epilogue cannot add {config.dtype_c} atomically", "epilogue", "cshuffle")
    if config.pipeline == "compv5":
        return Fault("compv5 counts its own loops and cannot split K", "split_k", False)
    return None


@rule(
    "P309",
    "persistent-not-offered",
    reads=("persistent", "variant", "pipeline"),
    enforced_by="compiler",
    good={"persistent": True},
    bad={"persistent": True, "variant": "batched"},
)
def persistent_not_offered(config: Any, arch: Arch) -> Fault | None:
    """Persistent kernels exist for standard, preshuffle and multi_d, in the pipelines that carry the flag.

    Why: CK Tile's batched kernel has no loop over tiles; compv5, compv6 and comp_async do not tell the kernel that they are
    persistent, so it would compute one tile per work-group and leave the others.

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
    "P310",
    "output-type",
    reads=("dtype_a", "dtype_b", "dtype_acc", "dtype_c"),
    enforced_by="tilewright",
    good={"dtype_c": "fp32"},
    bad={"dtype_c": "int8"},
)
def output_type(config: Any, arch: Arch) -> Fault | None:
    """C has the type of A, or that of the accumulator, or the usual output of the inputs.

    Why: these conversions are the ones CK Tile's epilogues are used with; others round or overflow in ways that
    nothing checks.

    Fix: take one of the listed types.
    """
    known = ACCUMULATORS.get((config.dtype_a, config.dtype_b))
    if known is None or config.dtype_acc != known:
        pair = f"{config.dtype_a}×{config.dtype_b}"
        return Fault(f"{pair} accumulates in {known or 'nothing'}, not {config.dtype_acc}", "dtype_acc", known)
    usual = OUTPUTS.get(config.dtype_a, config.dtype_a)
    allowed = dict.fromkeys([usual, known])
    if usual == "fp16" and config.dtype_a != "fp16":
        allowed["bf16"] = None
    if config.dtype_c in allowed:
        return None
    listing = ", ".join(allowed)
    return Fault(f"C of {config.dtype_a} inputs is one of {listing}, not {config.dtype_c}", "dtype_c", usual)


@rule(
    "P311",
    "vector-width",
    reads=("vector", "variant", "pipeline", "epilogue", "dtype_a", "dtype_b", "dtype_c", *TILES),
    enforced_by="compiler",
    good={"vector": (8, 8, 8)},
    bad={"vector": (3, 8, 8)},
)
def vector_width(config: Any, arch: Arch) -> Fault | None:
    """Fixed vector widths are powers of two of at most 16 bytes.

    Why: a lane's load or store moves 1 to 16 bytes in powers of two. The widths reach the pipelines that share
    CK Tile's common load policy, and C's width the cshuffle epilogue.

    Fix: use powers of two, or leave the widths native.
    """
    if config.vector is None:
        return None
    if config.pipeline not in ("mem", "compv3", "compv4", "compv6") or config.epilogue != "cshuffle":
        return Fault(
            f"{config.pipeline} with the {config.epilogue} epilogue takes no fixed vector widths", "vector"
        )
    for name, width in zip("abc", config.vector, strict=True):
        size = dtype(getattr(config, f"dtype_{name}")).storage_bytes
        if width & (width - 1) or width * size > resources.MAX_ACCESS_BYTES:
            return Fault(
                f"vector {name} = {width} elements of {size} bytes, must be a power of two of at most "
                f"{resources.MAX_ACCESS_BYTES} bytes",
                "vector",
            )
    return None


@rule(
    "P312",
    "permute-n",
    reads=("permute_n", "variant", "epilogue", "block", "waves", "mma"),
    enforced_by="device",
    good={"permute_n": False},
    bad={"permute_n": True},
)
def permute_n(config: Any, arch: Arch) -> Fault | None:
    """permute_n belongs to preshuffle with cshuffle and an even number of mma tiles per wave along n.

    Why: it changes the order in which B must be reordered and how C is stored from registers; the other variants
    do not know it, and the order is defined for pairs of tiles.

    Fix: turn it off, or use preshuffle with an even block n / (waves n × mma n).
    """
    if not config.permute_n:
        return None
    if config.variant != "preshuffle" or config.epilogue != "cshuffle":
        return Fault(
            f"permute_n with {config.variant} and the {config.epilogue} epilogue", "permute_n", False
        )
    repeat = config.block.n // (config.waves.n * config.mma.n)
    if repeat % 2:
        return Fault(f"permute_n with {repeat} mma tiles per wave along n, needs an even number", "permute_n", False)
    return None


@rule(
    "P313",
    "shuffle-not-whole",
    reads=("epilogue", "dtype_c", "vector", "variant", "permute_n", "wave_groups", *TILES),
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (192, 128, 32), "waves": (4, 1, 1), "mma": (16, 16, 32)},
)
def shuffle_not_whole(config: Any, arch: Arch) -> Fault | None:
    """The cshuffle epilogue must stage whole rows of mma tiles, spread evenly over the threads.

    Why: it packs several small mma tiles into one wide store. When the tiles of a wave along m are not a
    multiple of that number, CK Tile sizes its LDS tile for one but still writes several, and the store cannot be
    spread over the threads when the staged tile is too narrow.

    Fix: make block m / (waves m × mma m) even, use a 32-wide mma, or the default epilogue.
    """
    if config.epilogue != "cshuffle" or config.permute_n:
        return None
    repeat = config.block.m // (config.waves.m * config.mma.m)
    taken = min(resources.staged_tiles(config, arch), repeat)
    if taken and repeat % taken:
        return Fault(
            f"a wave has {repeat} mma tiles along m but the epilogue stages {taken} at a time", "block"
        )
    rows, columns = resources.shuffle_tile(config, arch)
    fault = coverage_fault(
        threads=config.waves.m * config.waves.n * arch.wave_size,
        wave=arch.wave_size,
        y=rows,
        x=columns,
        vector=resources.vector_c(config),
        groups=config.wave_groups,
    )
    return None if fault is None else Fault(f"the staged C tile of {rows}×{columns}: {fault}", "block")


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
    return Fault(
        f"{config.pipeline} would read {config.dtype_b} as {config.dtype_a}", "pipeline", "compv4"
    )


@rule(
    "R401",
    "lds-overflow",
    reads=("pipeline", "epilogue", "dtype_a", "dtype_b", "dtype_acc", "dtype_c", "vector", *TILES),
    enforced_by="compiler",
    good={"block": (256, 256, 64)},
    bad={"block": (256, 256, 128)},
)
def lds_overflow(config: Any, arch: Arch) -> Fault | None:
    """The tiles of A and B, or the staged tile of C, must fit the LDS.

    Why: a work-group cannot have more LDS than the GPU has. Pipelines with two buffers need twice the room.

    Fix: make block k smaller first, then m and n; or take a pipeline with one buffer.
    """
    needed = resources.lds_bytes(config, arch)
    if needed <= arch.lds.bytes:
        return None
    buffers = 2 if config.pipeline in resources.DOUBLE_LDS else 1
    tiles = resources.pipeline_lds_bytes(config)
    staged = resources.epilogue_lds_bytes(config, arch)
    return Fault(
        f"needs {needed:,} bytes of LDS ({buffers} × the larger of {tiles:,} for A and B and {staged:,} for C), "
        f"{arch.name} has {arch.lds.bytes:,}",
        "block",
    )


RULES: tuple[Rule, ...] = tuple(
    sorted((value for value in list(globals().values()) if isinstance(value, Rule)), key=lambda r: r.code)
)
