"""A kind that test_tenth_kind.py adds to a copy of the package: the sum of the squares of each row of the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.step_cost import StepCost
from tilewright.ops.fmha.traffic import TensorSizes, Traffic
from tilewright.ops.rule import Rejection, rule

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.cost_model.arithmetic import Number
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem


def _get_tile_rows(tile: Mapping[str, int]) -> int:
    return tile["threads"]


def _estimate_step(config: Config, arch: Arch) -> StepCost:
    rows, hdim_v = float(config.tile["threads"]), float(config.tile["hdim_v"])
    return StepCost(
        block_m=rows,
        block_n=hdim_v,
        waves=max(1, config.tile["threads"] // arch.wave_size),
        instructions=2 * hdim_v,
        loaded=((rows, hdim_v * DTYPES[config.dtype].o_bytes),),
        setup_instructions=60.0,
        registers=40.0,
    )


def _get_extents(problem: Problem, queries: Number, keys: Number) -> tuple[Number, Number]:
    return queries, 1


def _count_bytes(sizes: TensorSizes) -> Traffic:
    return sizes.o * sizes.types.o_bytes, sizes.per_row


def _compute_reference(problem: Problem, given: Mapping[str, Any], arch: Arch) -> dict[str, Any]:
    from tilewright.ops.fmha.reference_backward import compute_dot_do_o

    return compute_dot_do_o(problem, {"o": given["o"], "d_o": given["o"]}, arch)


def _bound_squares(
    config: Config, problem: Problem, given: Mapping[str, Any], exact: Mapping[str, Any], arch: Arch
) -> dict[str, Any]:
    from tilewright.ops.fmha.tolerance import bound_d

    return bound_d(config, problem, {"o": given["o"], "d_o": given["o"]}, exact, arch)


@rule("P499", "odd-head", reads=("block",), enforced_by="tilewright", good={}, bad={"block": (64, 63)})
def check_head_size(config: Config, arch: Arch) -> Rejection | None:
    """Rows have an even number of elements.

    Why: this sample shows a rule of one kind.

    Fix: use the next even number.
    """
    return None if config.block[-1] % 2 == 0 else Rejection(f"hdim_v = {config.block[-1]} is odd", "block")


DOT_O_O = parts.make_kind(
    name="dot_o_o",
    doc="sums of the squares of each row of the output",
    number=10,
    fields=("pad_q", "pad_hdim_v", "blocks_per_cu"),
    block=("threads", "hdim_v"),
    pipelines=("dot_do_o",),
    rules=(check_head_size,),
    inputs=("o", "seqstart_q"),
    outputs=("d",),
    launcher="DotOO",
    launchers=parts.list_launchers("gradients", "dot_do_o", "dot_o_o"),
    profiles=(),
    tile_rows=_get_tile_rows,
    step=_estimate_step,
    get_extents=_get_extents,
    count_bytes=_count_bytes,
    reference=_compute_reference,
    tolerance=_bound_squares,
)
