"""Sorting of tokens by expert, with blocks for the tiles of the matrix products that follow."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from tilewright.arch.spec import Arch
from tilewright.ops import c_interface, ck_shortcuts
from tilewright.ops.builtin_sets import load_sets
from tilewright.ops.c_interface import format_cpp_bool
from tilewright.ops.call_header import format_header
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.cost_model.streaming import StreamedSizes, StreamingGroup, make_streaming_cost
from tilewright.ops.execution import make_execution
from tilewright.ops.fields import read_config
from tilewright.ops.kernel import Kernel
from tilewright.ops.kind import Kind
from tilewright.ops.moe_sorting.config import COMMON_FIELDS, LDS_BYTES, THREADS, Config, count_step
from tilewright.ops.moe_sorting.problem import (
    CALL,
    MOST_RESULTS,
    MOST_TOKENS,
    Problem,
    apply_strides,
    list_tensors,
)
from tilewright.ops.moe_sorting.rules import FIT_RULES, MAX_INDEX, RULES, count_most_experts
from tilewright.ops.op import Op
from tilewright.ops.portfolio import KernelPortfolio, fix_fields
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.ops.moe_sorting.keywords import MoeSortingConfigKeywords, MoeSortingSpaceKeywords

_HERE = Path(__file__).parent
_TEMPLATES = (
    "ck_tile/core.hpp",
    "ck_tile/host/kernel_launch.hpp",
    *(f"ck_tile/ops/fused_moe/kernel/moe_sorting_{name}.hpp" for name in ("kernel", "problem")),
)
_ENTRIES: dict[str, Path | str] = {"tilewright_moe_sorting_entries.hpp": _HERE / "entries.hpp"}
_OWN: dict[str, Path | str] = {
    **c_interface.SUPPORT,
    **format_header(CALL),
    "tilewright_moe_sorting_table.hpp": _HERE / "table.hpp",
}


def _make_context(kernel: Kernel) -> dict[str, Any]:
    """The variables of kernel.hip.j2."""
    config = cast("Config", kernel.config)
    one = Problem(tokens=1, experts=1, k=1, unit=1, masked=config.masked)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "tile": config.tile,
        "masked": format_cpp_bool(config.masked),
        "skip_empty": format_cpp_bool(not config.keep_empty),
        "tensors": [tensor.name for tensor in list_tensors(one)],
        "step": count_step(config),
        "threads": THREADS,
        "lds_words": LDS_BYTES // 4,
        "most_experts": count_most_experts(config),
        "most_tokens": MOST_TOKENS,
        "most_results": MOST_RESULTS,
        "most_index": MAX_INDEX,
    }


def _count_sizes(problem: Problem) -> StreamedSizes:
    """All tokens are one element, since one work-group sorts them. Pairs are read twice, to count and to place them."""
    return StreamedSizes(
        elements=1,
        read_bytes=12 * problem.tokens * problem.k + 4 * problem.tokens * problem.experts,
        written_bytes=8 * problem.entries + 4 * problem.blocks,
    )


def _describe_group(config: Config, arch: Arch) -> StreamingGroup:  # noqa: ARG001
    return StreamingGroup(
        elements=1,
        threads=THREADS,
        load_bytes=4,
        # Clearing, counting and reading of an element of the table; a larger tile waits less often.
        load_instructions=12.0 + 16.0 / config.tile,
        setup_instructions=400.0,
        waits=4.0 + 8.0 / config.tile,
        registers=32 + 2 * config.tile,
        lds_bytes=LDS_BYTES,
    )


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:  # noqa: ARG001
    return {
        ("tile",): [(tile,) for tile in (1, 2, 4, 8)],
        ("masked",): [(False,), (True,)],
        ("keep_empty",): [(False,), (True,)],
    }


OP = Op(
    name="moe_sorting",
    doc="Sorting of tokens by expert, with blocks for the products that follow",
    config_type=Config,
    problem_type=Problem,
    example={"tile": 4},
    example_problem={"tokens": 33, "experts": 64, "k": 8, "unit": 32},
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={"tile": lambda _: (1, 2, 4, 8)},
    kinds=(Kind(name="sorting", doc="one work-group counts and places all pairs", context=_make_context),),
    structure_fields=("masked", "keep_empty"),
    strata=_list_strata,
    template=_HERE / "kernel.hip.j2",
    headers=(ck_shortcuts.NAME, *_ENTRIES, *_TEMPLATES, *_OWN),
    support={**ck_shortcuts.SUPPORT, **_ENTRIES, **_OWN},
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    execution=make_execution(
        CALL,
        "tilewright.ops.moe_sorting.reference",
        tensors=list_tensors,
        with_strides=apply_strides,
        tolerance_basis=lambda *_: 0,
    ),
    cost=make_streaming_cost(_count_sizes, _describe_group, CModelInputs(CALL)),
    portfolio=KernelPortfolio(_HERE / "preselected", fix_fields(*COMMON_FIELDS)),
)


@OP.add_keywords
def space(**declared: Unpack[MoeSortingSpaceKeywords]) -> Space:
    """A lazy set of sorting kernels: each field a value, a list of values or "*"."""
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[MoeSortingConfigKeywords]) -> Config:
    """One sorting config."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "config", "space"]
