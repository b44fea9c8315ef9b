"""Writes new keys and values to a cache, rotated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ops.cost_model.arithmetic import maximum, where
from tilewright.ops.execution import import_on_call
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.step_cost import StepCost
from tilewright.ops.fmha.traffic import TensorSizes, Traffic

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.cost_model.arithmetic import Number
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem

THREADS = 256  # fmha/pipeline/block_fmha_pipeline_problem.hpp, BlockFmhaFwdAppendKVPipelineProblem


def _estimate_step(config: Config, arch: Arch) -> StepCost:
    """New keys and values are copied; keys are rotated."""
    tile = config.tile
    size = DTYPES[config.dtype].qkv_bytes
    rows, hdim_q, hdim_v = float(tile["n0"]), float(tile["hdim_q"]), float(tile["hdim_v"])
    elements = rows * (hdim_q + hdim_v) / THREADS
    return StepCost(
        block_m=rows,
        block_n=hdim_v,
        waves=THREADS // arch.wave_size,
        instructions=80.0 + elements * (10.0 if config.rotary != "none" else 1.0),
        loaded=((rows, hdim_q * size), (rows, hdim_v * size)),
        setup_instructions=50.0,
        registers=20.0 + elements,
    )


def _get_extents(problem: Problem, queries: Number, keys: Number) -> tuple[Number, Number]:
    return maximum(problem.seqlen_new, where(problem.rotary != "none", queries, 1)), 1


def _count_bytes(sizes: TensorSizes) -> Traffic:
    """New keys and values are read and written and, if they are rotated, queries, too."""
    rotated = sizes.problem.rotary != "none"
    moved = sizes.count_kv(sizes.problem.seqlen_new) + sizes.q * sizes.types.qkv_bytes * rotated
    return moved, moved


def _list_trial_values(config: Config) -> Iterator[dict[str, Any]]:
    """Yield numbers of new tokens around a tile, or of whole tiles, a rotated half of a head, and pages."""
    n0 = config.tile["n0"]
    counts = (1, 3 * n0 // 4, n0, n0 + 1) if config.pad_k else (n0, 2 * n0)
    yield from ({"seqlen_new": new, "seqlen_k": 2 * new + 3} for new in counts)
    yield {"rotary_dim": max(config.hdim_q // 2, 8)} if config.rotary != "none" else {}
    yield from parts.list_page_sizes(config)


def _fill_trial(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    new = min(values["seqlen_k"], config.tile["n0"] + 3)
    return {"seqlen_new": new, **parts.fill_page_size(config, values)}


APPENDKV = parts.make_kind(
    name="appendkv",
    doc="writes new keys and values to a cache, rotated",
    number=4,
    fields=("pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v", "v_layout", "paged", "rotary", "blocks_per_cu"),
    block=("m0", "n0", "hdim_q", "hdim_v"),
    pipelines=("appendkv",),
    inputs=("k_new", "v_new", "seqlens_k", "page_table", "rotary_cos", "rotary_sin"),
    outputs=("q", "k", "v"),
    appends=True,
    has_key_lengths=parts.has_always,
    launcher="AppendKv",
    launchers=parts.list_launchers("cache", "appendkv"),
    profiles=("flash",),
    step=_estimate_step,
    get_extents=_get_extents,
    count_bytes=_count_bytes,
    list_trial_values=_list_trial_values,
    fill_trial=_fill_trial,
    wide_inputs=("q", "k", "v", "k_new", "v_new"),
    integer_inputs=True,
    reference=import_on_call("tilewright.ops.fmha.reference_caches", "compute_appendkv"),
    tolerance=parts.from_tolerance("bound_appended"),
)
