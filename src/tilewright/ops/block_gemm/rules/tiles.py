"""Rules about tile sizes: T2xx."""

from __future__ import annotations

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.block_gemm.resources import check_coverage
from tilewright.ops.block_gemm.rules.examples import COMPV5_WAVES, TILES
from tilewright.ops.rule import Rejection, rule
from tilewright.ops.rule_forms import since


@rule(
    "T201",
    "block-not-covered",
    reads=TILES,
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (96, 128, 32)},
)
def check_block_multiple(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """The block must be a multiple of waves × mma in m, n and k.

    Why: every wave computes the same number of matrix tiles. A remainder would not be computed.

    Fix: make the block a multiple of waves × mma, or choose waves and mma that divide it.
    """
    for name, block, waves, mma in zip("mnk", config.block, config.waves, config.mma, strict=True):
        step = waves * mma
        if block % step:
            below, above = block // step * step, -(-block // step) * step
            near = f"{above}" if below == 0 else f"{below} or {above}"
            fixed = Shape(**{**config.block._asdict(), name: below or above})
            return Rejection(
                f"block {name} = {block} is not a multiple of {waves} waves × {mma} = {step}; nearest: {near}",
                "block",
                fixed,
            )
    return None


@rule(
    "T202",
    "a-tile-not-spread",
    reads=("dtype_a", "layout", "block", "waves", "vector", "wave_groups"),
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (128, 128, 96), "mma": (32, 32, 8)},
)
def check_a_tile_distribution(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """The threads of a work-group must share the A tile evenly.

    Why: each wave loads complete lines of the tile with one vector per lane. CK Tile asserts that lanes and waves
    cover the tile exactly.

    Fix: use a power of two for the contiguous extent, or a larger block, or fewer waves.
    """
    rows = config.layout[0] == "r"
    y, x = (config.block.m, config.block.k) if rows else (config.block.k, config.block.m)
    vector = config.vector.m if config.vector else resources.vector_a(config, arch)
    return _check_distribution("A", config, arch, y, x, vector)


@rule(
    "T203",
    "b-tile-not-spread",
    reads=("dtype_b", "layout", "block", "waves", "vector", "wave_groups"),
    enforced_by="compiler",
    good={"block": (128, 128, 32)},
    bad={"block": (128, 96, 32), "waves": (4, 1, 1), "layout": "rrr"},
)
def check_b_tile_distribution(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """The threads of a work-group must share the B tile evenly.

    Why: as for A, each wave loads complete lines of it with one vector per lane.

    Fix: use a power of two for the contiguous extent, or a larger block, or fewer waves.
    """
    columns = config.layout[1] == "c"
    y, x = (config.block.n, config.block.k) if columns else (config.block.k, config.block.n)
    vector = config.vector.n if config.vector else resources.vector_b(config, arch)
    return _check_distribution("B", config, arch, y, x, vector)


def _check_distribution(
    name: str, config: BlockGemmConfig, arch: Arch, y: int, x: int, vector: int
) -> Rejection | None:
    fault = check_coverage(
        threads=resources.block_threads(config, arch),
        wave=arch.wave_size,
        y=y,
        x=x,
        vector=vector,
        groups=config.wave_groups,
    )
    return None if fault is None else Rejection(f"the {name} tile of {y}×{x}: {fault}", "block")


@rule(
    "T204",
    "waves-along-k",
    reads=("waves", "pipeline"),
    enforced_by="device",
    good={"waves": (2, 2, 1)},
    bad={"waves": (1, 2, 2), "block": (128, 128, 64)},
)
def check_waves_along_k(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """Only compv5 has waves along k, and exactly two.

    Why: the other pipelines number their waves along m and n only, so that further waves compute and store tiles of
    other waves. compv5 pairs one wave that loads with one that computes.

    Fix: use 1 wave along k, or compv5 with waves 1x1x2.
    """
    if config.pipeline == "compv5":
        if config.waves == COMPV5_WAVES:
            return None
        return Rejection(f"compv5 requires waves {COMPV5_WAVES}, not {config.waves}", "waves", COMPV5_WAVES)
    if config.waves.k == 1:
        return None
    nearest = config.waves._replace(k=1)
    return Rejection(f"{config.pipeline} requires 1 wave along k, not {config.waves.k}", "waves", nearest)


@rule(
    "T205",
    "transposed-vector",
    reads=("dtype_a", "dtype_b", "layout", "block", "waves", "vector"),
    enforced_by="compiler",
    good={"layout": "rrr", "vector": (4, 8, 8)},
    bad={"layout": "rrr", "vector": (4, 4, 8)},
)
def check_transposed_vector(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """A column-major A or a row-major B is loaded in the widest vectors that its tile allows.

    Why: such a tile is transposed in registers before it is written to LDS. CK Tile arranges the transposed tile for
    the widest vector that divides a thread's share, and the fixed vector of the load must match it. GPUs with
    transposing LDS reads do not need this.

    Fix: use that vector for the operand, or a block that makes it narrower.
    """
    if config.vector is None or arch.lds.transpose_read_bytes:
        return None
    a, b = resources.fixed_vectors(config, config.vector, arch)
    operands = (
        ("a", config.layout[0] == "c", a, resources.vector_a(config, arch)),
        ("b", config.layout[1] == "r", b, resources.vector_b(config, arch)),
    )
    for name, turned, fixed, native in operands:
        if turned and fixed != native:
            near = Shape(*(native if letter == name else n for letter, n in zip("abc", config.vector, strict=True)))
            return Rejection(
                f"vector {name} = {fixed}, but its tile is transposed in vectors of {native}", "vector", near
            )
    return None


@since("2026-06")
@rule(
    "T206",
    "eight-waves",
    reads=TILES,
    when={"epilogue": "cshuffle"},
    enforced_by="device",
    good={"block": (128, 128, 32), "waves": (2, 2, 1), "mma": (16, 16, 32)},
    bad={"block": (128, 128, 32), "waves": (4, 2, 1), "mma": (16, 16, 32)},
    arch="gfx950",
)
def check_eight_waves(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """Since 2026-06, eight waves do not work with the cshuffle epilogue on gfx950.

    Why: CK Tile has changed the epilogue for a pipeline of eight waves. It expects the mma tiles of a wave next to each
    other along n, but the other pipelines deal them out to the waves in turn.

    Fix: use four waves, or the default epilogue.
    """
    if config.waves.m * config.waves.n * config.waves.k != resources.EIGHT_WAVES:
        return None
    repeat = config.block.n // (config.waves.n * config.mma.n)
    if arch.lds.banks == resources.PADDED_BANKS and repeat > 1:
        return Rejection(
            f"cshuffle mixes up the {repeat} mma tiles along n of each of the {config.waves} waves on {arch.name}",
            "epilogue",
            "default",
        )
    return None
