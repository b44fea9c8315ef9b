"""The first stage of backward: sums of the output times its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.step_cost import StepCost
from tilewright.ops.fmha.traffic import TensorSizes, Traffic

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.cost_model.arithmetic import Number
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem


def _estimate_step(config: Config, arch: Arch) -> StepCost:
    """A thread sums the products of a result row with its gradient."""
    tile = config.tile
    size = DTYPES[config.dtype].o_bytes
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


def _get_extents(problem: Problem, queries: Number, keys: Number) -> tuple[Number, Number]:
    return queries, 1


def _count_bytes(sizes: TensorSizes) -> Traffic:
    return 2 * sizes.o * sizes.types.o_bytes, sizes.per_row


def _list_trial_values(_: Config) -> Iterator[dict[str, Any]]:
    """Yield no dropout; other trials have some."""
    yield {"p_drop": 0.0}


def _get_tile_rows(tile: Mapping[str, int]) -> int:
    """A thread has one row."""
    return tile["threads"]


DOT_DO_O = parts.make_kind(
    name="dot_do_o",
    doc="backward, first stage: sums of the output times its gradient",
    number=6,
    fields=("pad_q", "pad_hdim_v", "blocks_per_cu"),
    block=("threads", "hdim_v"),
    pipelines=("dot_do_o",),
    keeps=(*parts.SIZES, *parts.DROPOUT),
    inputs=("o", "d_o", "seqstart_q"),
    outputs=("d",),
    launcher="DotDoO",
    launchers=parts.list_launchers("gradients", "dot_do_o"),
    profiles=("flash", "pytorch", "aiter"),
    tile_rows=_get_tile_rows,
    step=_estimate_step,
    get_extents=_get_extents,
    count_bytes=_count_bytes,
    list_trial_values=_list_trial_values,
    reference=parts.from_reference_backward("compute_dot_do_o"),
    tolerance=parts.from_tolerance("bound_d"),
)
