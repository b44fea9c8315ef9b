"""The third stage of backward: conversion of the summed query gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilewright.ops.fmha.element_types import FP32_BYTES
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.step_cost import StepCost
from tilewright.ops.fmha.traffic import TensorSizes, Traffic

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.cost_model.arithmetic import Number
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem


def _estimate_step(config: Config, arch: Arch) -> StepCost:
    """Sums of dq are converted; those of a deterministic kernel are added first, one part per step."""
    tile = config.tile
    rows, hdim_q, threads = float(tile["m0"]), float(tile["hdim_q"]), tile["threads"]
    elements = rows * hdim_q / threads
    return StepCost(
        block_m=rows,
        block_n=hdim_q,
        waves=max(1, threads // arch.wave_size),
        instructions=20.0 + elements,
        loaded=((rows, hdim_q * FP32_BYTES),),
        setup_instructions=60.0 + 2 * elements,
        registers=25.0 + elements,
    )


def _get_extents(problem: Problem, queries: Number, keys: Number) -> tuple[Number, Number]:
    return queries, problem.dq_parts


def _count_bytes(sizes: TensorSizes) -> Traffic:
    return sizes.problem.dq_parts * sizes.q * FP32_BYTES, sizes.q * sizes.types.qkv_bytes


def _list_trial_values(config: Config) -> Iterator[dict[str, Any]]:
    """Yield an odd head size and interleaved heads: no two rows begin at the same alignment."""
    odd = max((config.hdim_q or config.hdim_v) - 1, 7)
    rows = config.tile["m0"] + 12
    yield {"hdim_q": odd, "hdim_v": odd, "layout": "bshd", "heads": 3, "kv_heads": 1, "seqlen_q": rows}


CONVERT_DQ = parts.make_kind(
    name="convert_dq",
    doc="backward, third stage: conversion of the summed query gradient",
    number=8,
    fields=("pad_q", "pad_hdim_q", "deterministic", "blocks_per_cu"),
    block=("threads", "m0", "n0", "hdim_q"),
    pipelines=("convert_dq",),
    keeps=(*parts.SIZES, "deterministic"),
    inputs=("dq_acc", "seqstart_q", "seqstart_k"),
    outputs=("dq",),
    launcher="ConvertDq",
    launchers=parts.list_launchers("gradients", "convert_dq"),
    profiles=("flash", "pytorch", "aiter"),
    step=_estimate_step,
    get_extents=_get_extents,
    columns="hdim_q",
    count_bytes=_count_bytes,
    list_trial_values=_list_trial_values,
    fill_trial=parts.fill_dq_parts,
    reference=parts.from_reference_backward("convert_dq"),
    tolerance=parts.from_tolerance("bound_converted"),
)
