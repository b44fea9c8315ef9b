"""Resources of a work-group's GEMM before it is compiled: threads, vector widths and LDS, as in CK Tile.

Every function reads only attributes of the config, so that a search can call it with a partly bound config. File names
in comments are relative to ck_tile/ops/.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.ck_api import CkApi
from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm.ck_probes import PIPELINE_PROBLEM, chooses_on_device
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.cost_model.arithmetic import maximum

PIPELINE_TYPES = {
    "mem": "GemmPipelineAgBgCrMem",
    "compv3": "GemmPipelineAgBgCrCompV3",
    "compv4": "GemmPipelineAgBgCrCompV4",
    "compv5": "GemmPipelineAgBgCrCompV5",
    "compv6": "GemmPipelineAgBgCrCompV6",
    "comp_async": "GemmPipelineAgBgCrCompAsync",
}
SCHEDULER_NAMES = {"intrawave": "Intrawave", "interwave": "Interwave"}
# BlockHasHotloop is true for 3 steps, but then the loop runs 2 steps and the tail 3: 5 steps are summed
# (gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v4.hpp and …comp_async.hpp). Without the loop the result is correct.
UNLOOPED = {"compv4": 3, "comp_async": 3}


def check_coverage(*, threads: int, wave: int, y: int, x: int, vector: int, groups: int = 1) -> str | None:
    """Why a y×x tile, x contiguous, cannot be distributed over the threads; None if it can."""
    if x % vector:
        return f"its contiguous extent {x} is not a multiple of the vector width {vector}"
    share = x * y // threads
    if share == 0:
        return f"its {y}×{x} elements are fewer than the {threads} threads"
    lane_x = min(vector, share)
    lanes_x = x // lane_x
    lanes_y = wave // lanes_x
    if lanes_x * lanes_y != wave:
        return f"the {lanes_x} lanes of {lane_x} elements along its extent {x} do not divide a wave of {wave}"
    waves = threads // wave // groups
    rows = lanes_y * waves
    if rows == 0 or y % rows:
        return f"its extent {y} is not a multiple of the {rows} rows that {waves} waves of {lanes_y} rows load at once"
    return None


def part_sizes(k: int, k_batch: int, mma_k: int) -> tuple[int, int]:
    """The number of products in the first and the last part of a sum of k. The latter is negative if k is too short.

    Parts consist of whole mma tiles, the same number for all but the last (SplitKBatchOffset in
    gemm/kernel/universal_gemm_kernel.hpp).
    """
    whole = -(-k // (k_batch * mma_k)) * mma_k
    return whole, k - whole * (k_batch - 1)


def part_size(number: int, k: int, k_batch: int, mma_k: int, ck: CkApi) -> int:
    """The number of products in one part of a sum of k; less than 1 if k is too short.

    Since 2026, the first parts have one mma tile more than the others, and the last one also has the rest.
    """
    is_last = number + 1 == k_batch
    if not chooses_on_device(ck):
        return part_sizes(k, k_batch, mma_k)[is_last]
    few, wide = divmod(k // mma_k, k_batch)
    return (few + (number < wide)) * mma_k + (k % mma_k if is_last else 0)


def list_part_sizes(k: int, k_batch: int, mma_k: int, ck: CkApi) -> list[int]:
    """The different sizes of parts: of the first, of the last but one, and of the last."""
    return [part_size(number, k, k_batch, mma_k, ck) for number in (0, maximum(k_batch - 2, 0), k_batch - 1)]


# Pipelines with two LDS buffers that compute from one while they fill the other. The kernel declares GetSmemSize()
# twice for them (gemm/kernel/universal_gemm_kernel.hpp, DoubleSmemBuffer).
DOUBLE_LDS = ("compv4", "comp_async", "preshufflev2")
SINGLE_LDS = tuple(name for name in PIPELINE_TYPES if name not in DOUBLE_LDS)
SMALL_STEP = 24  # matrix operations
MAX_ACCESS_BYTES = 16  # widest load or store of a lane
PADDED_BANKS, BANK_BYTES = 64, 4  # of LDS
EIGHT_WAVES = 8  # CK Tile of 2026 takes them for those of its pipeline of eight waves


def choose_loop_adapter(config: BlockGemmConfig) -> str:
    """The adapter of the pipeline for CK Tile of 2026 (adapters.hpp); empty if it needs none."""
    if config.pipeline == "comp_async":
        return "ThreeSteps"
    count = config.waves.m * config.waves.n * config.waves.k
    return "EightWaves" if config.pipeline == "compv3" and count == EIGHT_WAVES else ""


def block_threads(config: BlockGemmConfig, arch: Arch) -> int:
    """Threads of a work-group."""
    return config.waves.m * config.waves.n * config.waves.k * arch.wave_size


def global_vector(name: str, elements_per_thread: int, contiguous: int) -> int:
    """Elements per global load that CK Tile chooses: the widest that divides both the tile's contiguous extent and
    a thread's share (GetGlobalVectorLoadSize in gemm/pipeline/gemm_universal_pipeline_ag_bg_cr_policy.hpp)."""
    kind = find_dtype(name)
    packed, size = kind.packed, kind.storage_bytes
    widths = [32, 16, 8] if packed == 2 else [16, 8]
    widths += [width for width in (4, 2) if size >= packed * width]
    for width in widths:
        vector = packed * width // size
        if contiguous % vector == 0 and elements_per_thread % vector == 0:
            return vector
    return packed


def vector_a(config: BlockGemmConfig, arch: Arch) -> int:
    """Elements of A that a lane loads at once."""
    block = config.block
    share = block.m * block.k // block_threads(config, arch)
    return global_vector(config.dtype_a, share, block.k if config.layout[0] == "r" else block.m)


def vector_b(config: BlockGemmConfig, arch: Arch) -> int:
    """Elements of B that a lane loads at once."""
    block = config.block
    share = block.n * block.k // block_threads(config, arch)
    return global_vector(config.dtype_b, share, block.n if config.layout[1] == "r" else block.k)


def fixed_vectors(config: BlockGemmConfig, vector: Shape, arch: Arch) -> tuple[int, int]:
    """Elements of A and of B that a lane loads at once if vectors are fixed: at most its share of the tile
    (LargestVec in core/algorithm/static_encoding_pattern.hpp)."""
    block, threads = config.block, block_threads(config, arch)
    return min(vector[0], block.m * block.k // threads), min(vector[1], block.n * block.k // threads)


def vector_c(config: BlockGemmConfig) -> int:
    """Elements of C (and of a D) that a lane stores (or loads) at once."""
    if config.epilogue == "default":
        return 1  # without the LDS shuffle a lane holds single elements along n
    return vector_d(config) if config.vector is None else config.vector[2]


def vector_d(config: BlockGemmConfig) -> int:
    """Elements of a D tensor that a lane loads at once. A fixed vector width does not apply to D tensors."""
    if config.epilogue == "default":
        return 1
    width = MAX_ACCESS_BYTES // find_dtype(config.dtype_c).storage_bytes
    return min(config.waves.n * config.mma.n, width)


def staged_tiles(config: BlockGemmConfig, arch: Arch) -> int:
    """mma tiles along m that the cshuffle epilogue stages at a time, if the wave has that many
    (NumMXdlPerWavePerShuffle in epilogue/cshuffle_epilogue.hpp).

    Small tiles are packed until they fill one store of a lane. CK Tile of 2026 stages one of them, but as many large
    tiles as a lane has stores in each, if they fit into LDS and the pipeline has one buffer.
    """
    mma, waves = config.mma, config.waves
    per_lane = max(1, mma.m * mma.n // arch.wave_size)
    vector = vector_c(config)
    if not chooses_on_device(arch.ck):
        return max(1, vector // per_lane)
    tiles = max(1, per_lane // vector)
    rows = mma.m * waves.m * min(tiles, max(1, config.block.m // (mma.m * waves.m)))
    size = rows * mma.n * waves.n * find_dtype(config.dtype_c).storage_bytes
    return 1 if config.pipeline in DOUBLE_LDS or size > arch.lds.bytes else tiles


def shuffle_tile(config: BlockGemmConfig, arch: Arch) -> tuple[int, int]:
    """Rows and columns of C that the cshuffle epilogue stages in LDS at a time
    (MNPerIterationShuffle in epilogue/cshuffle_epilogue.hpp)."""
    mma, waves, block = config.mma, config.waves, config.block
    repeats = min(staged_tiles(config, arch), max(1, block.m // (mma.m * waves.m)))
    rows = mma.m * waves.m * repeats
    columns = mma.n * waves.n
    if stages_whole_rows(config, arch):
        columns *= max(1, block.n // columns)
    if block.m % rows or block.n % columns:
        rows, columns = mma.m * waves.m, mma.n * waves.n
    return rows, columns


def stages_whole_rows(config: BlockGemmConfig, arch: Arch) -> bool:
    """Whether the cshuffle epilogue stages all columns of the block at a time: since 2026 for eight waves on GPUs with
    waves of 64 (EightWave)."""
    return chooses_on_device(arch.ck) and arch.wave_size == 64 and config.waves.m * config.waves.n == 8


def pipeline_lds_bytes(config: BlockGemmConfig) -> int:
    """Bytes of one LDS buffer of the pipeline: the A tile and the B tile, each rounded up to 16 bytes."""
    block = config.block
    a = _round_up(find_dtype(config.dtype_a).storage_bytes * block.m * block.k, 16)
    b = _round_up(find_dtype(config.dtype_b).storage_bytes * block.n * block.k, 16)
    if config.pipeline == "preshufflev2":
        return a  # B is loaded from memory to registers
    if config.pipeline == "compv5":
        # The wave groups add up their halves of C in LDS (comp_v5_default_policy.hpp, GetSmemSizeC).
        return max(a + b, find_dtype(config.dtype_acc).storage_bytes * block.m * block.n)
    return a + b


def epilogue_lds_bytes(config: BlockGemmConfig, arch: Arch) -> int:
    """Bytes of LDS in which the epilogue stages C."""
    if config.epilogue == "default":
        return 0
    rows, columns = shuffle_tile(config, arch)
    size = find_dtype(config.dtype_c).storage_bytes
    return rows * columns * size + _staged_padding(rows, columns * size, arch)


def _staged_padding(rows: int, row_bytes: int, arch: Arch) -> int:
    """Bytes between the staged rows of C. CK Tile of 2026 puts a word between lines of all banks on a GPU with 64 banks
    (MakeLdsBlockDescriptor)."""
    if not chooses_on_device(arch.ck) or arch.lds.banks != PADDED_BANKS:
        return 0
    rows_per_line = max(1, PADDED_BANKS * BANK_BYTES // row_bytes)
    if rows_per_line * row_bytes % (2 * BANK_BYTES):
        return 0
    return (rows // rows_per_line - 1) * BANK_BYTES


def lds_bytes(config: BlockGemmConfig, arch: Arch) -> int:
    """Bytes of LDS of one work-group. Pipeline and epilogue use the same memory, one after the other."""
    pipeline, epilogue = pipeline_lds_bytes(config), epilogue_lds_bytes(config, arch)
    if config.pipeline not in DOUBLE_LDS:
        return max(pipeline, epilogue)
    # Until 2025 the kernel declares the buffer twice, since 2026 it contains both buffers of the pipeline.
    return max(pipeline * 2, epilogue) if chooses_on_device(arch.ck) else max(pipeline, epilogue) * 2


def matrix_instructions(config: BlockGemmConfig, arch: Arch) -> tuple[str, ...]:
    """The matrix instruction of the kernel's one GEMM; an empty string if the GPU has none for it."""
    shapes = arch.mma_shapes(config.dtype_a, config.dtype_b, config.dtype_acc)
    found = shapes.get(config.mma, "")
    # CK Tile of 2026 passes scales of 1 to the instructions of 8- and 4-bit floats, before none.
    scaled = found.endswith("_f8f6f4") and chooses_on_device(arch.ck)
    return (found.replace("v_mfma_", "v_mfma_scale_") if scaled else found,)


def is_small(config: BlockGemmConfig) -> bool:
    """Whether a wave has few matrix operations per step of k. More only increase the compiler's unrolling time."""
    block, waves, mma = config.block, config.waves, config.mma
    per_wave = -(-block.m // (waves.m * mma.m)) * -(-block.n // (waves.n * mma.n)) * -(-block.k // mma.k)
    return per_wave <= SMALL_STEP


def least_steps(pipeline: str) -> int:
    """The minimum of steps along K for a correct result: compv6 prefetches three steps, and its tail for an odd number
    sums all prefetched ones, so that the result of a single step is wrong."""
    return 2 if pipeline == "compv6" else 1


def has_unbounded_add(config: BlockGemmConfig, arch: Arch) -> bool:
    """Whether CK Tile adds to C without checking its bounds."""
    return list_unbounded_adds(config, arch.family)[arch.ck.get_form(PIPELINE_PROBLEM)]


def list_unbounded_adds(config: BlockGemmConfig, family: str) -> Mapping[str, bool]:
    """Whether CK Tile adds to C without checking its bounds, by the form of its pipelines.

    bf16 is added by a compare-and-swap loop, within padded rows since 2026. On RDNA 3, other floating-point types are
    added by global instructions (CK_TILE_USE_AMD_BUFFER_ATOMIC_ADD_FLOAT in core/config.hpp).
    """
    globally = family == "rdna3" and config.dtype_c not in ("bf16", "int32")
    return {
        "per_loop": config.split_k and (globally or config.dtype_c == "bf16"),
        "plain": config.split_k and globally,
    }


def add_bytes(config: BlockGemmConfig) -> int:
    """Bytes of C per atomic add. Its address must be a multiple of them. fp16 is added in pairs: by an instruction, or
    on RDNA 3 by a compare-and-swap of 4 bytes. Other types of less than 4 bytes are swapped in units of up to 8 bytes
    (core/arch/generic_memory_space_atomic.hpp)."""
    size = find_dtype(config.dtype_c).storage_bytes
    if size >= 4:
        return size
    return 4 if config.dtype_c == "fp16" else min(8, vector_c(config) * size)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
