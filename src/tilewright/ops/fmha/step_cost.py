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
from typing import TYPE_CHECKING

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.block_gemm import registers_in_use
from tilewright.ops.cost_model.cost import ResourceUse
from tilewright.ops.cost_model.tiled import LoopCost, matrix_rate, to_model_inputs
from tilewright.ops.fmha.element_types import DTYPES, FP32_BYTES
from tilewright.ops.fmha.kind import find_kind, list_gemm_types, matrix_instructions, split_triples

if TYPE_CHECKING:
    from tilewright.ops.fmha.config import Config

_VECTOR = 16  # bytes of a lane's widest load
# An exponential, logarithm or quotient takes the time of four other instructions: these units have a quarter of the
# lanes.
SLOW = 4.0

# Attention, vector instructions of a wave in a step: for each score of a lane, each accumulated element of the result,
# each load, and once. One of a score's instructions is an exponential.
_SCORE, _OUTPUT, _LOAD, _STEP = 9.5 + (SLOW - 1), 0.3, 3.0, 31.0
_ELEMENTWISE, _ALIBI, _DROPPED = 2.5, 6.0, 12.0
_CAPPED = 6.5 + 2 * (SLOW - 1)  # two of them are slow
# Before and after all steps: once, and for each element of the result.
_BLOCK, _STORED = 200.0, 8.0
# Registers of a lane in addition to the tiles that it holds: the mean remainder of 204 compiled kernels.
_REGISTERS = 55.0

# Pipelines that load the operands of the next step during a step. The others wait at the start of each step for its
# first piece (block_fmha_pipeline_qr_ks_vs.hpp), kr_ktr_vr for queries and later for dO.
AHEAD = ("qr_async", "qr_async_trload", "qr_whole_k", "v3", "kr_ktr_vr_iglp", "trload_kr_ktr_vr", "trload_qr_qtr_dor")
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
    step = find_kind(config).step(config, arch)
    return {
        **to_model_inputs(_compute_loop_cost(config, step, arch, use)),
        "by_keys": float(step.by_keys),
        "merged": float(config.merge_heads),
        "waves": float(step.waves),
        "registers": step.registers if use is None else registers_in_use(use, arch),
        "lds_bytes": float(use.lds_bytes if use else find_kind(config).lds_bytes(config, arch)),
        "mma_m": float(config.mma[0] if config.mma else 0),
        "ahead": float(config.pipeline in AHEAD),
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
    wait = max(0.0, latency - work) if config.pipeline in AHEAD else step.waits * latency
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
    if use is None:
        most, wanted = arch.registers.max_vgprs, math.ceil(step.registers)
        spare = 0 if arch.registers.agprs == "none" else most
        agprs = min(max(0, wanted - most), spare)
        use = ResourceUse(min(wanted, most), agprs, 0, find_kind(config).lds_bytes(config, arch), 0)
    return use.count_resident_groups(arch, step.waves * arch.wave_size)


def estimate_attention_step(config: Config, arch: Arch, *, more: float = 0.0) -> StepCost:
    """Two products, S = Q Kᵀ and O = P V, and a softmax between them. A score takes `more` instructions than usual."""
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
    queries = m * hdim * size / FP32_BYTES / (waves_m * arch.wave_size)
    return StepCost(
        block_m=m,
        block_n=columns,
        block_k=n,
        waves=waves,
        matrix=count_matrix_clocks(config, arch, (m * n * hdim, m * n * columns)),
        instructions=scores * (_count_score_instructions(config) + more) + outputs * _OUTPUT + loads * _LOAD + _STEP,
        # Written once, and read by each wave along the queries.
        lds_bytes=(1 + waves_m) * n * (hdim + columns) * size + q_in_lds + exchanged,
        loaded=((n, hdim * size), (n, columns * size), (1, biased)),
        # A barrier before a piece is written and one before it is read; pipelines that load ahead have a buffer for
        # each piece.
        meetings=pieces * (1.0 if config.pipeline in AHEAD else 2.0),
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
    )


def count_matrix_clocks(config: Config, arch: Arch, products: tuple[float, ...]) -> float:
    """Return the SIMD clocks of products with each GEMM's instruction; `products` are numbers of multiplications."""
    pairs = zip(products, list_gemm_types(config), matrix_instructions(config, arch), strict=True)
    return sum(2 * count / matrix_rate(arch, kinds[0], name) for count, kinds, name in pairs)
