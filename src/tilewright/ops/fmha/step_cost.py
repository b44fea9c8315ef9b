"""The cost of one step of an attention kernel on a compute unit, from its config alone: the kernel's model inputs.

A step is one tile of scores: `block_m` rows of the work-group's tile against `block_k` of the other side. Vector
instructions were counted in code objects: in the tile loops of CDNA kernels that clang 22 compiles from CK Tile
(llvm-objdump; instructions that begin with v_, except matrix instructions and code that a branch skips in whole tiles).
The constants are rounded results of a least-squares fit, which predicts 0.88 to 1.10 times the count for 199 attention
kernels and 0.85 to 1.12 times the count for 46 gradient kernels (P10, P90).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.occupancy import compute_occupancy
from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.block_gemm import registers_in_use
from tilewright.ops.cost_model.cost import ResourceUse
from tilewright.ops.cost_model.tiled import LoopCost, matrix_rate, to_model_inputs
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import (
    APPENDKV,
    BATCH_PREFILL,
    COMBINE,
    CONVERT_DQ,
    DOT_DO_O,
    DQ_DK_DV,
    DTYPES,
    FORWARD,
    PAGEDKV,
    SPLITKV,
)
from tilewright.ops.fmha.fit import query_tile_rows
from tilewright.ops.fmha.resources import lds_bytes, list_gemm_types, matrix_instructions, split_triples

_FP32 = 4
_VECTOR = 16  # bytes of a lane's widest load
# Waves of the kernels whose config has none: block_fmha_pipeline_problem.hpp, kNumWarps and kBlockSize.
_COMBINE_WAVES, _APPEND_THREADS = 4, 256
# An exponential, logarithm or quotient takes the time of four other instructions: these units have a quarter of the
# lanes.
_SLOW = 4.0

# Attention, vector instructions of a wave in a step: for each score of a lane, each accumulated element of the result,
# each load, and once. One of a score's instructions is an exponential.
_SCORE, _OUTPUT, _LOAD, _STEP = 9.5 + (_SLOW - 1), 0.3, 3.0, 31.0
_ELEMENTWISE, _ALIBI, _DROPPED, _SPLIT = 2.5, 6.0, 12.0, 3.0
_CAPPED = 6.5 + 2 * (_SLOW - 1)  # two of them are slow
# Before and after all steps: once, and for each element of the result.
_BLOCK, _STORED = 200.0, 8.0
# The same for gradients.
_SCORE_GRADIENT, _QUERY_GRADIENT, _STEP_GRADIENT, _BLOCK_GRADIENT = 17.0 + (_SLOW - 1), 2.5, 63.0, 1500.0
_ELEMENTWISE_GRADIENT, _ALIBI_GRADIENT, _DROPPED_GRADIENT, _BIAS_GRADIENT = 9.0, 6.0, 14.0, 7.0
# Registers of a lane in addition to the tiles that it holds: the mean remainder of 204 and 50 compiled kernels.
_REGISTERS, _REGISTERS_GRADIENT = 55.0, 80.0

# Pipelines that load the operands of the next step during a step. The others wait at the start of each step for its
# first piece (block_fmha_pipeline_qr_ks_vs.hpp), kr_ktr_vr for queries and later for dO.
_AHEAD = ("qr_async", "qr_async_trload", "qr_whole_k", "v3", "kr_ktr_vr_iglp", "trload_kr_ktr_vr", "trload_qr_qtr_dor")
# Pipelines whose waves alternate between the matrix and the vector pipes: half of a work-group computes the softmax
# while the other half multiplies.
_IN_TURN = ("v3",)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCost:
    """The cost of one step of a work-group."""

    block_m: float  # rows of a work-group
    block_n: float  # elements of a row that a work-group computes
    block_k: float = 1.0  # rows of the other side in a step
    by_keys: bool = False  # whether a work-group's rows are keys, and its steps go along the queries
    waves: int
    matrix: float = 0.0  # SIMD clocks of the matrix pipes, for all waves
    instructions: float  # vector instructions of one wave
    lds_bytes: float = 0.0  # read from and written to LDS
    loaded: tuple[tuple[float, float], ...]  # from memory: the number of rows, and the bytes of each
    added_bytes: float = 0.0  # added to sums in memory
    waits: float = 1.0  # waits for loads, one after the other
    meetings: float = 0.0  # barriers
    setup_instructions: float
    registers: float


def compute_kernel_inputs(config: Config, arch: Arch, use: ResourceUse | None) -> dict[str, float]:
    """Return the loop cost of a work-group, and fields that are features of learned models."""
    step = _STEPS[config.family](config, arch)
    return {
        **to_model_inputs(_compute_loop_cost(config, step, arch, use)),
        "by_keys": float(step.by_keys),
        "merged": float(config.merge_heads),
        "waves": float(step.waves),
        "registers": step.registers if use is None else registers_in_use(use, arch),
        "lds_bytes": float(use.lds_bytes if use else lds_bytes(config, arch)),
        "mma_m": float(config.mma[0] if config.mma else 0),
        "ahead": float(config.pipeline in _AHEAD),
        "in_turn": float(config.pipeline in _IN_TURN),
        "masked": float(config.mask_form != "none"),
        "padded": float(config.pad_q + config.pad_k),
    }


def _compute_loop_cost(config: Config, step: StepCost, arch: Arch, use: ResourceUse | None) -> LoopCost:
    """Compute the clocks of a step on each pipe: as `tiled.compute_loop_cost`, but with two products and a softmax."""
    simds, wave = float(arch.compute.simds_per_unit), float(arch.wave_size)
    issue = wave / arch.compute.lanes_per_simd
    line = float(arch.memory.line_bytes)
    vector = issue * step.instructions * step.waves / simds
    matrix = step.matrix / simds
    lds = step.lds_bytes / arch.lds.bytes_per_clock
    lines_bytes = sum(rows * math.ceil(size / line) * line for rows, size in step.loaded) + 2 * step.added_bytes
    if use is not None:  # spilled registers are stored and loaded in every step
        lines_bytes += 2 * use.scratch_bytes * step.waves * wave
    fetch = lines_bytes / arch.memory.l1_bytes_per_clock
    busiest = max(vector, matrix, lds, fetch)
    rows, idle = max(1.0, step.waves / simds), max(1.0, simds / step.waves)
    work = (vector + matrix) * idle / rows + (lds + fetch) / rows + (rows - 1) / rows * busiest
    if config.pipeline in _IN_TURN:
        work = busiest * idle
    latency = float(arch.memory.latency_clocks)
    wait = max(0.0, latency - work) if config.pipeline in _AHEAD else step.waits * latency
    setup = issue * step.setup_instructions * step.waves / simds
    return LoopCost(
        block_m=step.block_m,
        block_n=step.block_n,
        block_k=step.block_k,
        resident=_count_resident_groups(config, step, arch, use),
        matrix=matrix,
        vector=vector,
        lds=lds,
        fetch=fetch,
        busiest=busiest,
        alone=work + wait + step.meetings * arch.lds.latency_clocks,
        lines_bytes=lines_bytes,
        setup=setup * idle + 2 * latency,
        setup_busiest=setup,
        extra_steps=0.0,
        store_bytes=0.0,
    )


def _count_resident_groups(config: Config, step: StepCost, arch: Arch, use: ResourceUse | None) -> float:
    """Return the work-groups that fit on a compute unit; at least one, whatever the estimated registers."""
    most = arch.registers.max_vgprs
    if use is not None:
        vgprs, agprs, sgprs, lds = use.vgprs, use.agprs, use.sgprs, use.lds_bytes
    else:
        vgprs, sgprs, lds = min(math.ceil(step.registers), most), 0, lds_bytes(config, arch)
        spare = 0 if arch.registers.agprs == "none" else most
        agprs = min(max(0, math.ceil(step.registers) - most), spare)
    threads = step.waves * arch.wave_size
    found = compute_occupancy(arch, vgprs=vgprs, agprs=agprs, sgprs=sgprs, lds_bytes=lds, block_threads=threads)
    return float(max(1, found.blocks_per_unit))


def _estimate_attention_step(config: Config, arch: Arch) -> StepCost:
    """Two products, S = Q Kᵀ and O = P V, and a softmax between them."""
    tile, types = config.tile, DTYPES[config.dtype]
    m, n, columns, hdim = (float(tile[name]) for name in ("m0", "n0", "n1", "hdim_q"))
    waves_m, waves_n, waves_k = split_triples(config.waves)[0]
    waves = waves_m * waves_n * waves_k
    size = find_dtype(types.qkv).bits / 8
    # In that pipeline, which exchanges scores through LDS, each wave along the keys computes the softmax of all keys.
    repeated = waves_n if config.pipeline == "qr_nwarp_sshuffle" else 1
    scores, outputs = m * n / (waves * arch.wave_size) * repeated, m * columns / (waves * arch.wave_size)
    biased = n * m * find_dtype(types.bias).bits / 8 if config.bias == "elementwise" else 0.0
    loads = (n * (hdim + columns) * size / _VECTOR + (n * m if biased else 0.0)) / (waves * arch.wave_size)
    q_in_lds = waves_n * m * hdim * size if config.pipeline == "qs" else 0.0
    exchanged = (1 + waves_n) * m * n * size if repeated > 1 else 0.0
    pieces = math.ceil(hdim / tile["k0"]) + math.ceil(n / tile["k1"])
    queries = m * hdim * size / _FP32 / (waves_m * arch.wave_size)
    return StepCost(
        block_m=m,
        block_n=columns,
        block_k=n,
        waves=waves,
        matrix=_count_matrix_clocks(config, arch, (m * n * hdim, m * n * columns)),
        instructions=scores * _count_score_instructions(config) + outputs * _OUTPUT + loads * _LOAD + _STEP,
        # Written once, and read by each wave along the queries.
        lds_bytes=(1 + waves_m) * n * (hdim + columns) * size + q_in_lds + exchanged,
        loaded=((n, hdim * size), (n, columns * size), (1, biased)),
        # A barrier before a piece is written and one before it is read; pipelines that load ahead have a buffer for
        # each piece.
        meetings=pieces * (1.0 if config.pipeline in _AHEAD else 2.0),
        setup_instructions=_BLOCK + _STORED * outputs,
        registers=_REGISTERS + outputs + scores + (0.0 if config.pipeline == "qs" else queries),
    )


def _count_score_instructions(config: Config) -> float:
    """Return the vector instructions for one score. Masks are checked only in tiles that they cut."""
    return (
        _SCORE
        + _ELEMENTWISE * (config.bias == "elementwise")
        + _ALIBI * (config.bias == "alibi")
        + _CAPPED * config.soft_cap
        + _DROPPED * config.dropout
        + _SPLIT * (config.family == SPLITKV)
    )


def _estimate_gradient_step(config: Config, arch: Arch) -> StepCost:
    """Five products: q kᵀ and dO vᵀ again, then dv, dk and dq."""
    tile, types = config.tile, DTYPES[config.dtype]
    m, n, hdim_q, hdim_v = (float(tile[name]) for name in ("m0", "n0", "hdim_q", "hdim_v"))
    waves = math.prod(split_triples(config.waves)[0])
    lanes = waves * arch.wave_size
    size = find_dtype(types.qkv).bits / 8
    scores, queries = m * n / lanes, m * hdim_q / lanes
    biased = m * n * find_dtype(types.bias).bits / 8 if config.bias == "elementwise" else 0.0
    # trload_qr_qtr_dor has all queries in one tile and steps along the keys.
    by_keys = config.pipeline != "trload_qr_qtr_dor"
    rows, walked = (n, m) if by_keys else (m, n)
    per_score = (
        _SCORE_GRADIENT
        + _ELEMENTWISE_GRADIENT * (config.bias == "elementwise")
        + _ALIBI_GRADIENT * (config.bias == "alibi")
        + _DROPPED_GRADIENT * config.dropout
        + _BIAS_GRADIENT * config.bias_gradient
    )
    # Tiles of queries and of dO are stored twice, once transposed, and read by all waves.
    shared = walked * (hdim_q + hdim_v) * size
    held = rows * (hdim_q + hdim_v) + rows * (2 * hdim_q + hdim_v) * size / _FP32
    return StepCost(
        block_m=rows,
        block_n=max(hdim_q, hdim_v),
        block_k=walked,
        by_keys=by_keys,
        waves=waves,
        matrix=_count_matrix_clocks(
            config, arch, (m * n * (hdim_q + hdim_v), m * n * (hdim_q + hdim_v), m * n * hdim_q)
        ),
        instructions=scores * per_score + queries * _QUERY_GRADIENT + _STEP_GRADIENT,
        lds_bytes=2 * (1 + waves) * shared + (1 + waves) * m * n * size,
        loaded=((walked, hdim_q * size), (walked, hdim_v * size), (1, biased), (2, walked * _FP32)),
        added_bytes=m * hdim_q * _FP32 + (biased if config.bias_gradient else 0.0),
        waits=2.0,
        meetings=2.0 if config.pipeline in _AHEAD else 7.0,  # s_barrier of their loops
        setup_instructions=_BLOCK_GRADIENT,
        registers=_REGISTERS_GRADIENT + held / lanes + scores,
    )


def _count_matrix_clocks(config: Config, arch: Arch, products: tuple[float, ...]) -> float:
    """Return the SIMD clocks of products with each GEMM's instruction; `products` are numbers of multiplications."""
    pairs = zip(products, list_gemm_types(config), matrix_instructions(config, arch), strict=True)
    return sum(2 * count / matrix_rate(arch, kinds[0], name) for count, kinds, name in pairs)


def _estimate_combine_step(config: Config, _: Arch) -> StepCost:
    """Each wave sums every fourth part of the rows."""
    tile = config.tile
    rows, columns, parts = float(query_tile_rows(config)), float(tile["n1"]), float(1 << config.log_max_splits)
    return StepCost(
        block_m=rows,
        block_n=columns,
        block_k=float(_COMBINE_WAVES),
        waves=_COMBINE_WAVES,
        instructions=43.0,
        loaded=((rows * _COMBINE_WAVES, columns * _FP32),),
        # Counted in kernels for 8 to 256 parts; a wave reads the LSE of all parts.
        setup_instructions=170.0 + 7.0 * parts,
        registers=24.0 + 0.35 * parts,
    )


def _estimate_append_step(config: Config, arch: Arch) -> StepCost:
    """New keys and values are copied; keys are rotated."""
    tile = config.tile
    size = find_dtype(DTYPES[config.dtype].qkv).bits / 8
    rows, hdim_q, hdim_v = float(tile["n0"]), float(tile["hdim_q"]), float(tile["hdim_v"])
    elements = rows * (hdim_q + hdim_v) / _APPEND_THREADS
    return StepCost(
        block_m=rows,
        block_n=hdim_v,
        waves=_APPEND_THREADS // arch.wave_size,
        instructions=80.0 + elements * (10.0 if config.rotary != "none" else 1.0),
        loaded=((rows, hdim_q * size), (rows, hdim_v * size)),
        setup_instructions=50.0,
        registers=20.0 + elements,
    )


def _estimate_dot_step(config: Config, arch: Arch) -> StepCost:
    """A thread sums the products of a result row with its gradient."""
    tile = config.tile
    size = find_dtype(DTYPES[config.dtype].o).bits / 8
    rows, hdim_v = float(tile["threads"]), float(tile["hdim_v"])
    return StepCost(
        block_m=rows,
        block_n=hdim_v,
        waves=max(1, tile["threads"] // arch.wave_size),
        instructions=2 * hdim_v,
        loaded=((2 * rows, hdim_v * size),),
        setup_instructions=60.0,
        registers=60.0,
    )


def _estimate_convert_step(config: Config, arch: Arch) -> StepCost:
    """Sums of dq are converted; those of a deterministic kernel are added first, one part per step."""
    tile = config.tile
    rows, hdim_q, threads = float(tile["m0"]), float(tile["hdim_q"]), tile["threads"]
    elements = rows * hdim_q / threads
    return StepCost(
        block_m=rows,
        block_n=hdim_q,
        waves=max(1, threads // arch.wave_size),
        instructions=20.0 + elements,
        loaded=((rows, hdim_q * _FP32),),
        setup_instructions=60.0 + 2 * elements,
        registers=25.0 + elements,
    )


_STEPS = {
    **dict.fromkeys((FORWARD, PAGEDKV, SPLITKV, BATCH_PREFILL), _estimate_attention_step),
    **{
        COMBINE: _estimate_combine_step,
        APPENDKV: _estimate_append_step,
        DOT_DO_O: _estimate_dot_step,
        DQ_DK_DV: _estimate_gradient_step,
        CONVERT_DQ: _estimate_convert_step,
    },
}
