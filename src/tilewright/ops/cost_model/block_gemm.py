"""The cost-model tile of CK Tile's block GEMM, the core of GEMMs and convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.cost_model.cost import ResourceUse
from tilewright.ops.cost_model.tiled import KernelTile, compute_loop_cost, matrix_rate, to_model_inputs

ACCESS_BITS = 8 * resources.MAX_ACCESS_BYTES
# Vector instructions for each 8-bit element, which the compiler extracts from its word and inserts again: the loops of
# 32 compiled GEMMs of 8-bit types have 26 for a load of 16 elements, those of 16-bit types 7.
NARROW = 1.2
PIPELINE_FLAGS = ("mem", "compv3", "compv4", "compv5", "compv6", "comp_async")


@dataclass(frozen=True, slots=True)
class AddressCost:
    """The cost of a kernel's address computations: vector instructions of one wave, and registers of a lane."""

    step: float  # instructions in every step
    load: float  # instructions for each load in a step
    transposed: float  # instructions for each element of a lane whose neighbour in memory is not its neighbour along k
    block: float  # instructions before and after all steps
    address_registers: float  # for each load
    base_registers: float
    covers: bool  # whether loads ahead of their step hide latency: in a second buffer, or several steps ahead


# Counted in the loops of 69 compiled GEMMs of 16-bit types for gfx90a, gfx942 and gfx950 (clang 22; least absolute
# deviations). Their addresses advance by a constant, so that a load needs few instructions.
PLAIN_ADDRESSES = AddressCost(
    step=8, load=7, transposed=0.9, block=125, address_registers=2, base_registers=32, covers=True
)


def compute_block_inputs(
    config: BlockGemmConfig, arch: Arch, use: ResourceUse | None, code: AddressCost, vectors: tuple[int, int]
) -> dict[str, float]:
    """The model inputs of a kernel: the loop cost of its work-group, and fields for learned models."""
    tile = make_block_tile(config, arch, use, code, vectors)
    numbers = to_model_inputs(compute_loop_cost(tile, arch))
    if use is not None:
        numbers["resident"] = use.count_resident_groups(arch, resources.block_threads(config, arch))
    waves = config.waves
    return {
        **numbers,
        "waves": float(waves.m * waves.n * waves.k),
        "waves_m": float(waves.m),
        "mma_m": float(config.mma.m),
        "mma_k": float(config.mma.k),
        "registers": float(tile.registers),
        "lds_bytes": float(tile.lds_bytes),
        "buffers": 2.0 if config.pipeline in resources.DOUBLE_LDS else 1.0,
        "interwave": float(config.scheduler == "interwave"),
        "cshuffle": float(config.epilogue == "cshuffle"),
        **{name: float(config.pipeline == name) for name in PIPELINE_FLAGS},
    }


def make_block_tile(
    config: BlockGemmConfig, arch: Arch, use: ResourceUse | None, code: AddressCost, vectors: tuple[int, int]
) -> KernelTile:
    """The tile of a config with the fields of a block GEMM. `vectors` are the elements per load of A and of B."""
    block, waves, mma = config.block, config.waves, config.mma
    bits_a, bits_b = float(find_dtype(config.dtype_a).bits), float(find_dtype(config.dtype_b).bits)
    double = config.pipeline in resources.DOUBLE_LDS
    direct = config.pipeline == "preshufflev2"  # B is in the order of the lanes, and is loaded to registers
    instruction = resources.matrix_instructions(config, arch)[0]
    return KernelTile(
        block_m=float(block.m),
        block_n=float(block.n),
        block_k=float(block.k),
        waves_m=float(waves.m),
        waves_n=float(waves.n),
        waves_k=float(waves.k),
        bits_a=bits_a,
        bits_b=bits_b,
        bits_c=float(find_dtype(config.dtype_c).bits),
        matrix_rate=matrix_rate(arch, config.dtype_a, instruction),
        vector_a=float(vectors[0]),
        vector_b=float(vectors[1]),
        read_a=_lds_read_width(mma.m * mma.k, bits_a, arch),
        read_b=_lds_read_width(mma.n * mma.k, bits_b, arch),
        inner_a=float(block.k if config.layout[0] == "r" else block.m),
        inner_b=float(block.n * block.k if direct else block.n if config.layout[1] == "r" else block.k),
        b_in_lds=0.0 if direct else 1.0,
        covered=1.0 if double and code.covers else 0.0,
        steps_ahead=float(_steps_ahead(config, arch)) if code.covers else 1.0,
        lds_bytes=float(use.lds_bytes if use else resources.lds_bytes(config, arch)),
        registers=registers_in_use(use, arch) if use else _estimate_registers(config, arch, code, vectors),
        scratch_bytes=float(use.scratch_bytes) if use else 0.0,
        step_instructions=code.step + _count_rearranging(config, arch, code),
        load_instructions=code.load,
        block_instructions=code.block,
        shuffled=1.0 if config.epilogue == "cshuffle" else 0.0,
        extra_steps=1.0 if double else 0.0,
    )


def _count_rearranging(config: BlockGemmConfig, arch: Arch, code: AddressCost) -> float:
    """Vector instructions of a wave that reorder a step's elements before they are written to LDS."""
    if config.pipeline == "comp_async":
        return 0.0  # from memory to LDS, without registers
    block, lanes = config.block, resources.block_threads(config, arch)
    share_a, share_b = block.m * block.k / lanes, block.n * block.k / lanes
    transposed = share_a * (config.layout[0] == "c") + share_b * (config.layout[1] == "r")
    narrow = share_a * (find_dtype(config.dtype_a).bits < 16) + share_b * (find_dtype(config.dtype_b).bits < 16)
    return float(code.transposed * transposed + NARROW * narrow)


def _lds_read_width(elements: int, bits: float, arch: Arch) -> float:
    """Elements of an mma tile that a lane reads from LDS at once: its share, at most one access."""
    return max(1.0, min(elements / arch.wave_size, ACCESS_BITS / bits))


def registers_in_use(use: ResourceUse, arch: Arch) -> float:
    """Registers of a lane that limit occupancy: both kinds if they share one file, else the larger number."""
    if arch.registers.agprs == "unified":
        return float(use.vgprs + use.agprs)
    return float(max(use.vgprs, use.agprs))


def _estimate_registers(config: BlockGemmConfig, arch: Arch, code: AddressCost, vectors: tuple[int, int]) -> float:
    """Estimated registers of a lane before compilation: sums, loads in flight, operands of matrix instructions (twice
    with two buffers), and addresses. For half of 427 compiled kernels it is 0.8 to 1.06 times their number."""
    block, waves = config.block, config.waves
    lanes = float(resources.block_threads(config, arch))
    bits_a, bits_b = find_dtype(config.dtype_a).bits, find_dtype(config.dtype_b).bits
    direct = config.pipeline == "preshufflev2"  # B's loads are the operands of the instructions
    sums = block.m * block.n / lanes * waves.k * find_dtype(config.dtype_acc).bits / 32
    on_the_way = (block.m * bits_a + block.n * bits_b * (not direct)) * block.k / lanes / 32
    fragments = (block.m / waves.m * bits_a + block.n / waves.n * bits_b) * block.k / waves.k / arch.wave_size / 32
    loads = (block.m / vectors[0] + block.n / vectors[1]) * block.k / lanes
    buffers = 2 if config.pipeline in resources.DOUBLE_LDS and not direct else 1
    values = on_the_way * _steps_ahead(config, arch) + fragments * buffers
    values += code.base_registers + code.address_registers * loads
    # With separate register files, the sums do not compete with the rest.
    most = max(values, sums) if arch.registers.agprs == "separate" else values + sums
    return float(min(most, arch.registers.max_vgprs * (2 if arch.registers.agprs == "unified" else 1)))


def _steps_ahead(config: BlockGemmConfig, arch: Arch) -> int:
    """Steps whose loads to registers are in flight. mem has enough to keep 32 KiB in flight on a unit, from 2 to 8
    (PrefetchStages in gemm/pipeline/gemm_pipeline_ag_bg_cr_mem.hpp)."""
    if config.pipeline in ("compv5", "compv6"):
        return 2
    if config.pipeline != "mem":
        return 1
    block = config.block
    step = (block.m * find_dtype(config.dtype_a).bits + block.n * find_dtype(config.dtype_b).bits) * block.k // 8
    blocks = max(1, 4 * arch.wave_size // resources.block_threads(config, arch))
    return min(8, max(2, -(-32768 // blocks // step)))
