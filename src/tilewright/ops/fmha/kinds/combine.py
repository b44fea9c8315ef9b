"""Merges the partial results of splitkv: the second stage of a forward problem with `num_splits`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ops.fmha.element_types import FP32_BYTES
from tilewright.ops.fmha.kind import get_tile
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.resources.forward import SUMS_IN_VECTOR, count_packed_elements
from tilewright.ops.fmha.step_cost import StepCost
from tilewright.ops.fmha.traffic import TensorSizes, Traffic

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.cost_model.arithmetic import Number
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem

WAVES = 4  # fmha/pipeline/block_fmha_pipeline_problem.hpp, BlockFmhaSplitKVCombinePipelineProblem


def _get_tile_rows(tile: Mapping[str, int]) -> int:
    # A lane holds 4 elements of a row of n1 (fmha/pipeline/block_fmha_fwd_splitkv_combine_pipeline_default_policy).
    # Waves of 32 lanes have half as many rows, but the kernel always requires the number for 64 lanes.
    return 64 // (tile["n1"] // SUMS_IN_VECTOR)


def _compute_lds(config: Config, arch: Arch) -> int:
    """block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp, GetSmemSize: the LSE of all parts, and sums."""
    n1, splits = get_tile(config).get("n1", 0), 1 << config.log_max_splits
    lanes = n1 // SUMS_IN_VECTOR
    rows = arch.wave_size // lanes if lanes else 0
    if rows == 0:
        return 0
    lse = count_packed_elements(splits, rows, _get_vector_size(splits * rows, arch.wave_size))
    sums = count_packed_elements(WAVES * rows, n1, _get_vector_size(WAVES * rows * n1, arch.wave_size))
    return (lse + sums) * FP32_BYTES


def _get_vector_size(elements: int, wave_size: int) -> int:
    """GetVectorSizeForTile, with only as many waves as have an element for each lane."""
    waves = WAVES
    while waves > 1 and elements < waves * wave_size:
        waves //= 2
    return max(1, min(SUMS_IN_VECTOR, elements // (waves * wave_size)))


def _estimate_step(config: Config, _: Arch) -> StepCost:
    """Each wave sums every fourth part of the rows."""
    tile = config.tile
    rows, columns, parts = float(_get_tile_rows(tile)), float(tile["n1"]), float(1 << config.log_max_splits)
    return StepCost(
        block_m=rows,
        block_n=columns,
        block_k=float(WAVES),
        waves=WAVES,
        instructions=43.0,
        loaded=((rows * WAVES, columns * FP32_BYTES),),
        # Counted in kernels for 8 to 256 parts; a wave reads the LSE of all parts.
        setup_instructions=170.0 + 7.0 * parts,
        registers=24.0 + 0.35 * parts,
    )


def _get_extents(problem: Problem, queries: Number, keys: Number) -> tuple[Number, Number]:
    return queries, problem.num_splits


def _count_bytes(sizes: TensorSizes) -> Traffic:
    return sizes.parts, sizes.results


def _fill_trial(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"num_splits": 2 if config.log_max_splits else 1}


COMBINE = parts.make_kind(
    name="combine",
    doc="merges the partial results of splitkv",
    number=3,
    fields=("pad_q", "pad_hdim_v", "lse", "static_quant", "log_max_splits", "blocks_per_cu"),
    block=("n1", "hdim_v"),
    pipelines=("combine",),
    keeps=(*parts.SIZES, *parts.QUANTISED, "num_splits", "lse"),
    inputs=("o_acc", "lse_acc", "seqstart_q"),
    outputs=("o", "lse"),
    launcher="Combine",
    launchers=parts.list_launchers("combine"),
    profiles=("flash", "aiter"),
    tile_rows=_get_tile_rows,
    lds_bytes=_compute_lds,
    step=_estimate_step,
    get_extents=_get_extents,
    count_bytes=_count_bytes,
    list_trial_values=parts.list_split_counts,
    fill_trial=_fill_trial,
    finish_inputs=parts.from_inputs("clear_some_parts"),
    reference=parts.from_reference("compute_combine"),
    tolerance=parts.from_tolerance("bound_combine"),
)
