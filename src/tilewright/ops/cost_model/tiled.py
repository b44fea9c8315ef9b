"""The cost model of tiled matrix kernels: one model for all of them, on any GPU that has a file.

A kernel computes its result in tiles: one work-group computes one tile in steps along k. `compute_loop_cost` computes
the cost of a step for each pipe of a unit, from the kernel alone; `estimate_problem` distributes the work-groups of a
problem to the units. Kernels of other libraries are described by a `KernelTile`, too.

The model has two main assumptions. Work-groups that are resident on a unit together share its pipes: each adds only
its use of the bottleneck pipe. Time that no other work-group overlaps, that is the way of one work-group through all
pipes one after the other and the latency of its loads, is added once in every round of resident work-groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.spec import Arch
from tilewright.base.errors import choose
from tilewright.ops.cost_model.arithmetic import Number, ceil_div, maximum, minimum, where
from tilewright.ops.cost_model.cost import Estimate, Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTile:
    """One work-group of a kernel. Sizes are elements; flags are 0 or 1; each value may be a column of many kernels."""

    block_m: Number
    block_n: Number
    block_k: Number
    waves_m: Number
    waves_n: Number
    waves_k: Number = 1.0
    bits_a: Number = 16.0
    bits_b: Number = 16.0
    bits_c: Number = 16.0
    # Operations per clock that the matrix instruction reaches on one SIMD: see `matrix_rate`.
    matrix_rate: Number
    # Elements of A and of B that a lane loads from memory at once, and that it reads from LDS at once.
    vector_a: Number
    vector_b: Number
    read_a: Number
    read_b: Number
    # Elements of an operand's tile that are contiguous in memory: a row or a column of it, or all.
    inner_a: Number
    inner_b: Number
    # Whether B is loaded through LDS, or from memory to registers.
    b_in_lds: Number = 1.0
    # Whether a step's loads overlap with another step of the same work-group: it has two buffers and such a schedule.
    covered: Number = 0.0
    # Steps whose loads are in flight at once: a step waits for its share of the latency.
    steps_ahead: Number = 1.0
    lds_bytes: Number
    # Vector registers of a lane, including its accumulators: of the compiled kernel, or an estimate.
    registers: Number
    # Spilled bytes of a lane: each is stored and loaded in every step.
    scratch_bytes: Number = 0.0
    # Vector instructions of one wave: in a step, for each load in a step, before and after the steps.
    step_instructions: Number
    load_instructions: Number
    block_instructions: Number
    # Whether C is stored through LDS.
    shuffled: Number = 1.0
    # Steps that are prefetched beyond the end of k, and not used.
    extra_steps: Number = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopCost:
    """The cost of a work-group on a unit, in clocks unless noted otherwise."""

    block_m: Number
    block_n: Number
    block_k: Number
    resident: Number  # work-groups on a unit at once
    matrix: Number  # of the matrix pipes, per step
    vector: Number  # of the vector pipes
    lds: Number
    fetch: Number  # of the path from L2
    busiest: Number  # the largest of the four
    alone: Number  # a step of a work-group without overlap
    lines_bytes: Number  # read from L2 per step, in complete lines
    setup: Number  # before and after all steps, without overlap
    setup_busiest: Number
    extra_steps: Number
    store_bytes: Number  # of one element of C


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchedGemmSizes:
    """A problem as matrix products of one size: `batch` of them, each a sum of `split` parts of k."""

    m: Number
    n: Number
    k: Number
    batch: Number = 1.0
    split: Number = 1.0
    # Bytes that must be read from memory and written to it, each once; without partial sums.
    read_bytes: Number
    written_bytes: Number
    launches: Number = 1.0


def matrix_rate(arch: Arch, dtype: str, instruction: str = "") -> float:
    """Operations per clock of one SIMD with a matrix instruction of this type; by default the fastest."""
    compute = arch.compute
    peak = arch.peak_tflops[choose(f"type with a matrix rate on {arch.name}", dtype, arch.peak_tflops)]
    whole = peak * 1e6 / (compute.units * compute.simds_per_unit * compute.clock_mhz)
    return whole * arch.matrix_share.get(instruction, 1.0)


def compute_loop_cost(tile: KernelTile, arch: Arch) -> LoopCost:
    """The cost of a step of a work-group, and the number of work-groups that are resident on a unit."""
    simds, wave = float(arch.compute.simds_per_unit), float(arch.wave_size)
    issue = wave / arch.compute.lanes_per_simd
    waves = tile.waves_m * tile.waves_n * tile.waves_k
    rows = maximum(1.0, waves / simds)  # waves of a work-group that share a SIMD
    bytes_a = tile.block_m * tile.block_k * tile.bits_a / 8
    bytes_b = tile.block_n * tile.block_k * tile.bits_b / 8
    # Instructions of all waves: each wave reads the rows and columns of its part of the tile.
    loads = (tile.block_m / tile.vector_a + tile.block_n / tile.vector_b) * tile.block_k / wave
    reads_a = tile.waves_n * tile.block_m * tile.block_k / (tile.read_a * wave)
    reads_b = tile.waves_m * tile.block_n * tile.block_k / (tile.read_b * wave) * tile.b_in_lds
    # A lane uses at least one LDS bank, 32 bits.
    lane_clocks = wave / arch.lds.bytes_per_clock / 8
    lds = (
        reads_a * maximum(32.0, tile.read_a * tile.bits_a) * lane_clocks
        + reads_b * maximum(32.0, tile.read_b * tile.bits_b) * lane_clocks
        + (bytes_a + bytes_b * tile.b_in_lds) / arch.lds.bytes_per_clock
    )
    vector = issue * (tile.step_instructions * waves + (tile.load_instructions + 1) * loads + reads_a + reads_b) / simds
    matrix = 2 * tile.block_m * tile.block_n * tile.block_k / (tile.matrix_rate * simds)
    lines_bytes = _line_bytes(bytes_a, tile.inner_a * tile.bits_a / 8, arch) + _line_bytes(
        bytes_b, tile.inner_b * tile.bits_b / 8, arch
    )
    spilled = 2 * tile.scratch_bytes * waves * wave
    fetch = (lines_bytes + spilled) / arch.memory.l1_bytes_per_clock
    busiest = maximum(vector, matrix, lds, fetch)
    # A SIMD's waves are pipelined: while one is in a pipe, the next follows. Few waves leave SIMDs idle.
    idle = maximum(1.0, simds / waves)
    computing = ((vector + matrix) * idle + lds) / rows
    loading = fetch / rows + arch.memory.latency_clocks / tile.steps_ahead
    one_wave = where(tile.covered > 0, maximum(computing, loading), computing + loading) + arch.lds.latency_clocks
    alone = maximum(busiest, one_wave + (rows - 1) / rows * busiest)
    setup_vector = issue * tile.block_instructions * waves / simds
    shuffle = 2 * tile.shuffled * tile.block_m * tile.block_n * tile.bits_c / 8 / arch.lds.bytes_per_clock
    return LoopCost(
        block_m=tile.block_m,
        block_n=tile.block_n,
        block_k=tile.block_k,
        resident=_count_resident(tile, waves, arch),
        matrix=matrix,
        vector=vector,
        lds=lds,
        fetch=fetch,
        busiest=busiest,
        alone=alone,
        lines_bytes=lines_bytes + spilled,
        setup=setup_vector * idle + shuffle + arch.memory.latency_clocks,
        setup_busiest=maximum(setup_vector, shuffle),
        extra_steps=tile.extra_steps,
        store_bytes=tile.bits_c / 8,
    )


def _line_bytes(whole: Number, inner: Number, arch: Arch) -> Number:
    """Bytes of the cache lines of a tile with `inner` contiguous bytes: a part of a line costs a full line."""
    line = float(arch.memory.line_bytes)
    return whole / inner * ceil_div(inner, line) * line


def _count_resident(tile: KernelTile, waves: Number, arch: Arch) -> Number:
    """Work-groups that fit on a unit together, by registers, LDS and waves. At least one: these may be estimates."""
    compute, registers = arch.compute, arch.registers
    granule = float(registers.vgpr_granule)
    per_simd = minimum(
        float(compute.max_waves_per_simd),
        registers.vgprs // (ceil_div(maximum(1.0, tile.registers), granule) * granule),
    )
    by_lds = arch.lds.unit_bytes // (ceil_div(maximum(1.0, tile.lds_bytes), arch.lds.granule) * arch.lds.granule)
    by_waves = per_simd * compute.simds_per_unit // waves
    # A single wave needs no barrier.
    by_barriers = where(waves > 1, float(compute.max_blocks_per_unit), by_waves)
    return maximum(1.0, minimum(by_lds, by_waves, by_barriers))


@dataclass(frozen=True, kw_only=True, slots=True)
class TileCounts:
    """A problem divided into tiles, one for each work-group."""

    tiles: Number
    steps: Number  # of a tile, on average
    extra_steps: Number = 0.0  # run but not used
    longest: Number = None  # steps of the longest tile, if tiles differ
    stored: Number  # bytes that a tile stores, weighted by their cost
    memory_bytes: Number  # that must be read from memory and written to it
    launches: Number = 1.0
    use_m: Number  # the share of all tiles that the problem fills, along each dimension
    use_n: Number
    use_k: Number


def estimate_problem(sizes: BatchedGemmSizes, pace: LoopCost | Facts, arch: Arch) -> Estimate:
    """The time of a kernel for a problem. `pace` may also be a kernel's model inputs, which have the same names."""
    tiles_m, tiles_n = ceil_div(sizes.m, pace.block_m), ceil_div(sizes.n, pace.block_n)
    steps = ceil_div(ceil_div(sizes.k, sizes.split), pace.block_k)
    # Each part of a split sum is added to C in memory, which reads and writes C. C is cleared before.
    is_split = where(sizes.split > 1, 1.0, 0.0)
    work = TileCounts(
        tiles=tiles_m * tiles_n * sizes.batch * sizes.split,
        steps=steps,
        extra_steps=pace.extra_steps,
        stored=sizes.m / tiles_m * (sizes.n / tiles_n) * (pace.store_bytes * arch.memory.store_cost * (1 + is_split)),
        memory_bytes=sizes.read_bytes + sizes.written_bytes * sizes.split * (1 + is_split),
        launches=sizes.launches + is_split,
        use_m=sizes.m / (tiles_m * pace.block_m),
        use_n=sizes.n / (tiles_n * pace.block_n),
        use_k=sizes.k / (steps * sizes.split * pace.block_k),
    )
    return estimate_tiles(work, pace, arch)


def estimate_tiles(work: TileCounts, pace: LoopCost | Facts, arch: Arch) -> Estimate:
    """The time of tiles on the units of a GPU."""
    units, clock, memory = float(arch.compute.units), float(arch.compute.clock_mhz), arch.memory
    tiles, steps = work.tiles, work.steps
    bandwidth = memory.bandwidth_gbs * 1e3 / clock  # bytes per clock of all units
    share = minimum(bandwidth / minimum(units, tiles), float(memory.l1_bytes_per_clock))  # of one storing unit
    store = work.stored / share
    in_steps = (steps + work.extra_steps) * pace.busiest
    further = in_steps + maximum(pace.setup_busiest, store)
    first = (steps + work.extra_steps) * pace.alone + pace.setup + store
    # The unit with most work-groups: complete ones, in complete rounds of those that are resident together.
    blocks = ceil_div(tiles, units)
    rounds = ceil_div(blocks, pace.resident)
    in_units = rounds * (first - further) + blocks * further
    longest = {}
    if work.longest is not None:
        # The time is at least that of the longest tile, however many units there are.
        in_longest = work.longest * pace.alone + pace.setup + store
        in_units = maximum(in_units, in_longest)
        longest["longest"] = in_longest / clock
    in_l2 = tiles * steps * pace.lines_bytes / (memory.l2_channels * memory.l2_bytes_per_clock)
    in_memory = work.memory_bytes / bandwidth
    clocks = combine_times(in_units, in_l2, in_memory)
    launch = arch.compute.launch_us * work.launches
    per_pipe = blocks * steps / clock
    return Estimate(
        us=launch + clocks / clock,
        terms={
            "matrix": per_pipe * pace.matrix,
            "vector": per_pipe * pace.vector,
            "lds": per_pipe * pace.lds,
            "fetch": per_pipe * pace.fetch,
            "latency": rounds * (first - further) / clock,
            **longest,
            "l2": in_l2 / clock,
            "memory": in_memory / clock,
            "ends": blocks * (further - in_steps) / clock,
            "launch": launch,
        },
        shape={
            "tiles": tiles,
            "blocks": blocks,
            "rounds": rounds,
            "resident": pace.resident,
            "steps": steps,
            "last_round": blocks / rounds / pace.resident,
            "fill": tiles / (blocks * units),
            "use_m": work.use_m,
            "use_n": work.use_n,
            "use_k": work.use_k,
        },
    )


def combine_times(*parts: Number) -> Number:
    """The time of imperfectly overlapped parts: the cube root of the sum of cubes, between the longest and the sum."""
    return sum(part * part * part for part in parts) ** (1 / 3)


def to_model_inputs(pace: LoopCost) -> dict[str, Number]:
    """A loop cost as model inputs of a kernel, by name."""
    return {name: getattr(pace, name) for name in LoopCost.__slots__}
