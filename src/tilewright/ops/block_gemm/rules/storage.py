"""Rules about storing C and about LDS size: P310, P311, P313, P317, P321, R401."""

from __future__ import annotations

from tilewright.arch.dtypes import ACCUMULATORS, find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.block_gemm.resources import check_coverage
from tilewright.ops.block_gemm.rules.examples import TILES
from tilewright.ops.block_gemm.types import OUTPUTS
from tilewright.ops.rule import Rejection, rule


@rule(
    "P310",
    "output-type",
    reads=("dtype_a", "dtype_b", "dtype_acc", "dtype_c"),
    enforced_by="tilewright",
    good={"dtype_c": "fp32"},
    bad={"dtype_c": "int8"},
)
def check_output_type(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """C has the type of A, the type of the accumulator, or the usual output type of the inputs.

    Why: these are the conversions that CK Tile's epilogues are used with. Others round or overflow in ways that
    nothing checks.

    Fix: use one of the listed types.
    """
    known = ACCUMULATORS.get((config.dtype_a, config.dtype_b))
    if known is None or config.dtype_acc != known:
        pair = f"{config.dtype_a}×{config.dtype_b}"
        return Rejection(f"{pair} accumulates in {known or 'nothing'}, not {config.dtype_acc}", "dtype_acc", known)
    usual = OUTPUTS.get(config.dtype_a, config.dtype_a)
    allowed = dict.fromkeys([usual, known])
    if usual == "fp16" and config.dtype_a != "fp16":
        allowed["bf16"] = None
    if config.dtype_c in allowed:
        return None
    listing = ", ".join(allowed)
    return Rejection(f"C of {config.dtype_a} inputs is one of {listing}, not {config.dtype_c}", "dtype_c", usual)


@rule(
    "P311",
    "vector-width",
    reads=("vector", "dtype_a", "dtype_b", "dtype_c"),
    enforced_by="tilewright",
    good={"vector": (8, 8, 8)},
    bad={"vector": (3, 8, 8)},
)
def check_vector_width(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """Fixed vector widths are powers of two of at most 16 bytes.

    Why: a lane's load or store moves 1 to 16 bytes in powers of two. A wider vector is several accesses, and CK Tile
    compiles it for some tiles and types only. The compiler rejects one that is not a power of two.

    Fix: use powers of two, or leave the widths native.
    """
    if config.vector is None:
        return None
    for name, width in zip("abc", config.vector, strict=True):
        size = find_dtype(getattr(config, f"dtype_{name}")).storage_bytes
        if width & (width - 1) or width * size > resources.MAX_ACCESS_BYTES:
            return Rejection(
                f"vector {name} = {width} elements of {size} bytes, must be a power of two of at most "
                f"{resources.MAX_ACCESS_BYTES} bytes",
                "vector",
            )
    return None


@rule(
    "P313",
    "shuffle-not-whole",
    reads=("pipeline", "dtype_c", "vector", *TILES),
    when={"epilogue": "cshuffle"},
    enforced_by="device",
    good={"block": (128, 128, 32)},
    bad={"block": (192, 128, 32), "waves": (4, 1, 1), "mma": (16, 16, 32)},
)
def check_shuffle_repeats(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """A wave's mma tiles along m must be a multiple of those that the cshuffle epilogue stages at a time.

    Why: it packs several small mma tiles into one wide store, or since 2026-06 stages several large ones. If the tiles
    of a wave along m are not a multiple of that number, CK Tile sizes its LDS tile for one but still writes several:
    about half of C is wrong.

    Fix: make block m / (waves m × mma m) even, use an mma of another size, or the default epilogue.
    """
    repeat = config.block.m // (config.waves.m * config.mma.m)
    taken = min(resources.staged_tiles(config, arch), repeat)
    if taken and repeat % taken:
        return Rejection(f"a wave has {repeat} mma tiles along m but the epilogue stages {taken} at a time", "block")
    return None


@rule(
    "P317",
    "shuffle-not-spread",
    reads=("pipeline", "dtype_c", "vector", "wave_groups", *TILES),
    when={"epilogue": "cshuffle"},
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (64, 48, 32), "waves": (1, 3, 1), "mma": (16, 16, 32)},
)
def check_shuffle_distribution(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """The threads of a work-group must share the staged tile of C evenly.

    Why: as for the tiles of A and B, each wave stores complete lines of it with one vector per lane.

    Fix: use waves and mma whose product along n is a power of two, or the default epilogue.
    """
    rows, columns = resources.shuffle_tile(config, arch)
    fault = check_coverage(
        threads=config.waves.m * config.waves.n * arch.wave_size,
        wave=arch.wave_size,
        y=rows,
        x=columns,
        vector=resources.vector_c(config),
        groups=config.wave_groups,
    )
    return None if fault is None else Rejection(f"the staged C tile of {rows}×{columns}: {fault}", "block")


@rule(
    "P321",
    "no-bf16-add",
    reads=("dtype_c",),
    when={"split_k": True},
    enforced_by="compiler",
    good={"split_k": True},
    bad={"dtype_a": "bf16", "dtype_b": "bf16", "dtype_c": "bf16", "split_k": True},
    arch="gfx950",
)
def check_bf16_add(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """Split-K with a bf16 C needs a GPU for which CK Tile's atomic add of bf16 compiles.

    Why: if CK Tile uses the buffer instruction, it passes integer vectors to it, and the compiler has no instruction
    for those.

    Fix: use an fp32 C, or no split-K.
    """
    if config.dtype_c != "bf16" or arch.numbers.bf16_add:
        return None
    return Rejection(f"CK Tile's atomic add of bf16 does not compile for {arch.name}", "dtype_c", "fp32")


@rule(
    "R401",
    "lds-overflow",
    reads=("pipeline", "epilogue", "dtype_a", "dtype_b", "dtype_acc", "dtype_c", "vector", *TILES),
    enforced_by="compiler",
    good={"block": (64, 64, 256)},
    bad={"block": (64, 64, 512)},
)
def check_lds_size(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """The tiles of A and B, or the staged tile of C, must fit into LDS.

    Why: a work-group cannot have more LDS than the GPU has. Pipelines with two buffers need twice as much.

    Fix: reduce block k first, then m and n; or use a pipeline with one buffer.
    """
    needed = resources.lds_bytes(config, arch)
    if needed <= arch.lds.bytes:
        return None
    buffers = 2 if config.pipeline in resources.DOUBLE_LDS else 1
    tiles = resources.pipeline_lds_bytes(config)
    staged = resources.epilogue_lds_bytes(config, arch)
    return Rejection(
        f"needs {needed:,} bytes of LDS ({buffers} × the larger of {tiles:,} for A and B and {staged:,} for C), "
        f"{arch.name} has {arch.lds.bytes:,}",
        "block",
    )
