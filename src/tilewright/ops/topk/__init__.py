"""Top-k of softmax or sigmoid: the routing of tokens to experts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from tilewright import arch as archs
from tilewright.arch.dtypes import find_dtype
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
from tilewright.ops.op import Op
from tilewright.ops.portfolio import KernelPortfolio, fix_fields
from tilewright.ops.space import Space
from tilewright.ops.topk.config import ACTIVATIONS, COMMON_FIELDS, DTYPES, Config, count_lanes, count_rows
from tilewright.ops.topk.problem import CALL, Problem, apply_strides, list_tensors
from tilewright.ops.topk.rules import FIT_RULES, RULES, count_most_elements

if TYPE_CHECKING:
    from tilewright.ops.topk.keywords import TopkConfigKeywords, TopkSpaceKeywords

_HERE = Path(__file__).parent
_DOCS = {
    "softmax": "the k largest probabilities of each row",
    "sigmoid": "the k largest elements of each row, with sigmoid as their weights",
}
_SELECTION = "tilewright_topk_selection.hpp"
_TEMPLATES = ("ck_tile/core.hpp", "ck_tile/host/kernel_launch.hpp", "ck_tile/ops/topk_softmax.hpp")
_OWN: dict[str, Path | str] = {
    **c_interface.SUPPORT,
    **format_header(CALL),
    _SELECTION: _HERE / "selection.hpp",
}


def _make_context(kernel: Kernel) -> dict[str, Any]:
    """The variables of kernel.hip.j2."""
    config = cast("Config", kernel.config)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "cpp_x": find_dtype(config.dtype).cpp,
        **{name: getattr(config, name) for name in ("experts", "rows", "threads", "vector")},
        "is_softmax": format_cpp_bool(config.activation == "softmax"),
        "block_rows": max(1, count_rows(config, archs.load(kernel.arch))),
        "most_elements": count_most_elements(config),
    }


def _count_sizes(problem: Problem) -> StreamedSizes:
    """Rows, the bytes of x, and those of both results, of 4 bytes for each element."""
    return StreamedSizes(
        elements=problem.rows,
        read_bytes=problem.rows * problem.experts * find_dtype(problem.dtype).storage_bytes,
        written_bytes=8 * problem.rows * problem.k,
    )


def _describe_group(config: Config, arch: Arch) -> StreamingGroup:
    held = config.rows * config.experts // count_lanes(config, arch)
    return StreamingGroup(
        elements=count_rows(config, arch),
        threads=config.threads,
        load_bytes=config.vector * find_dtype(config.dtype).storage_bytes,
        # Conversion, comparison with the end of the row, exponential and product of each element; then, for each of
        # eight results, a usual number, two comparisons and two choices.
        load_instructions=float(config.vector * (8 + 8 * 4)),
        # Six exchanges of lanes with a comparison for maximum, sum and each result, of each row.
        setup_instructions=40.0 + 10 * 6 * 6 * config.rows,
        waits=1.0,
        registers=min(arch.registers.max_vgprs, 24 + 4 * held),
    )


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:  # noqa: ARG001
    return {
        ("activation",): [(name,) for name in ACTIVATIONS],
        ("dtype",): [(name,) for name in DTYPES],
        ("rows",): [(1,), (2,), (4,)],
        ("vector",): [(1,), (2,), (4,)],
    }


OP = Op(
    name="topk",
    doc="Top-k of softmax or sigmoid: the routing of tokens to experts",
    config_type=Config,
    problem_type=Problem,
    example={"activation": "softmax", "dtype": "fp16", "experts": 64, "rows": 2, "threads": 256, "vector": 1},
    example_problem={"activation": "softmax", "rows": 33, "experts": 64, "k": 8, "dtype": "fp16"},
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={
        "experts": lambda _: (8, 16, 32, 64, 128, 192, 256, 384, 512),
        "rows": lambda _: (1, 2, 4),
        "threads": lambda _: (64, 128, 256, 512),
        "vector": lambda _: (1, 2, 4, 8),
    },
    kinds=tuple(Kind(name=name, doc=doc, context=_make_context) for name, doc in _DOCS.items()),
    kind_field="activation",
    structure_fields=("activation", "rows"),
    strata=_list_strata,
    template=_HERE / "kernel.hip.j2",
    headers=(ck_shortcuts.NAME, *_TEMPLATES, *_OWN),
    support={**ck_shortcuts.SUPPORT, **_OWN},
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    execution=make_execution(
        CALL,
        "tilewright.ops.topk.reference",
        tensors=list_tensors,
        with_strides=apply_strides,
        tolerance_basis=lambda config, _: (config.experts, config.vector),
    ),
    filters={"datatype": "dtype", "variants": "activation"},
    cost=make_streaming_cost(_count_sizes, _describe_group, CModelInputs(CALL)),
    portfolio=KernelPortfolio(_HERE / "preselected", fix_fields(*COMMON_FIELDS)),
)


@OP.add_keywords
def space(**declared: Unpack[TopkSpaceKeywords]) -> Space:
    """A lazy set of top-k kernels: each field a value, a list of values or "*"."""
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[TopkConfigKeywords]) -> Config:
    """One top-k config."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "config", "space"]
