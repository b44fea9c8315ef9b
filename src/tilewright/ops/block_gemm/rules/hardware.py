"""Rules about the GPU's features: A1xx."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.block_gemm.rules.examples import FP8, TYPES
from tilewright.ops.rule import Rejection, rule


@rule(
    "A101",
    "no-matrix-instruction",
    reads=(*TYPES, "mma"),
    enforced_by="compiler",
    good={"mma": (32, 32, 8)},
    bad={"mma": (32, 32, 4)},
)
def check_matrix_instruction(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """The GPU must have the matrix tile for these types.

    Why: CK Tile selects a wave-level matrix operation by types and tile. If it has none for the GPU, the source does
    not compile, or compiles to another instruction than the one named.

    Fix: use one of the tiles that `tilewright arch show` lists for these types.
    """
    shapes = arch.mma_shapes(config.dtype_a, config.dtype_b, config.dtype_acc)
    types = f"{config.dtype_a}×{config.dtype_b}→{config.dtype_acc}"
    if not shapes:
        known = ", ".join(str(t) for t in arch.mma)
        return Rejection(f"{arch.name} cannot multiply {types}; it has {known}", "dtype_a")
    if config.mma in shapes:
        return None
    nearest = min(shapes, key=lambda s: sum(abs(x - y) for x, y in zip(s, config.mma, strict=True)))
    listing = ", ".join(str(s) for s in shapes)
    return Rejection(f"{arch.name} has no {config.mma} for {types}; it has {listing}", "mma", nearest)


@rule(
    "A102",
    "block-too-large",
    reads=("waves",),
    enforced_by="device",
    good={"waves": (2, 2, 1)},
    bad={"waves": (8, 4, 1), "block": (256, 128, 32)},
)
def check_work_group_size(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """A work-group has at most as many threads as the GPU allows.

    Why: the hardware cannot start a larger one. The compiler does not check this.

    Fix: use fewer waves.
    """
    threads = resources.block_threads(config, arch)
    limit = arch.compute.max_block_threads
    if threads <= limit:
        return None
    return Rejection(
        f"{config.waves} waves of {arch.wave_size} are {threads} threads, {arch.name} allows {limit}", "waves"
    )


@rule(
    "A103",
    "transposed-read",
    reads=(*TYPES, "layout", "mma"),
    enforced_by="compiler",
    good={"layout": "rrr", "mma": (32, 32, 16)},
    bad={**FP8, "layout": "rrr", "mma": (32, 32, 32)},
    arch="gfx950",
)
def check_transposed_read(config: BlockGemmConfig, arch: Arch) -> Rejection | None:
    """With a column-major A or a row-major B, a GPU with transposing LDS reads needs an mma that matches them.

    Why: CK Tile uses these reads on every GPU that has them. One read gives a lane 8 bytes, and the mma must take
    one, two or four reads per lane, as implemented in CK Tile for these types: one for any type, two for 16-bit
    types, four for 8-bit floats.

    Fix: use another mma, or layout rcr.
    """
    read = arch.lds.transpose_read_bytes
    if not read or config.layout == "rcr":
        return None
    size = find_dtype(config.dtype_a).storage_bytes
    per_read = read // size
    per_lane = config.mma.n * config.mma.k // arch.wave_size
    reads = per_lane // per_read if per_lane % per_read == 0 else 0
    offered = {1} | ({2} if size == 2 else set()) | ({4} if config.dtype_a in ("fp8", "bf8") else set())
    if reads in offered:
        return None
    return Rejection(
        f"mma {config.mma} takes {per_lane} elements of {size} bytes per lane, which are not "
        f"{' or '.join(str(n) for n in sorted(offered))} transposed read(s) of {read} bytes",
        "mma",
    )
