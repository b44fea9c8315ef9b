"""Grouped GEMM: C = A·B for each group, with the sizes of groups on the device."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.candidates import STARS
from tilewright.ops.block_gemm.ck_probes import CK_PROBES
from tilewright.ops.block_gemm.config_fields import EPILOGUES
from tilewright.ops.block_gemm.types import DTYPE, expand_dtype
from tilewright.ops.builtin_sets import load_sets
from tilewright.ops.execution import make_execution
from tilewright.ops.fields import read_config
from tilewright.ops.grouped_gemm import source
from tilewright.ops.grouped_gemm.config import (
    COMMON_FIELDS,
    DTYPES,
    LAYOUTS,
    OUTPUTS,
    PIPELINES,
    Config,
    view_gemm,
)
from tilewright.ops.grouped_gemm.estimate import COST, estimate_groups
from tilewright.ops.grouped_gemm.padding import pad_problem
from tilewright.ops.grouped_gemm.problem import CALL, Problem, apply_strides, list_tensors
from tilewright.ops.grouped_gemm.rules import FIT_RULES, RULES
from tilewright.ops.kind import Kind
from tilewright.ops.op import Op
from tilewright.ops.portfolio import Fields, KernelPortfolio
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.ops.grouped_gemm.keywords import GroupedGemmConfigKeywords, GroupedGemmSpaceKeywords

_HERE = Path(__file__).parent


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    types = [DTYPE.row(f"{triple.a}*{triple.b}") for triple in arch.mma if {triple.a, triple.b} <= set(DTYPES)]
    return {
        ("dtype_a", "dtype_b"): [row[:2] for row in types],
        ("dtype_c",): [(name,) for name in OUTPUTS],
        ("layout",): [(name,) for name in LAYOUTS],
        ("pipeline",): [(name,) for name in PIPELINES],
        ("epilogue",): [(name,) for name in EPILOGUES],
    }


def _list_portfolio_fields(problem: Problem, arch: Arch) -> tuple[Fields, ...]:  # noqa: ARG001
    return ({**{name: getattr(problem, name) for name in COMMON_FIELDS}, "dtype_acc": "fp32"},)


OP = Op(
    name="grouped_gemm",
    doc="matrix products of groups, with their sizes on the device",
    config_type=Config,
    problem_type=Problem,
    example={
        **expand_dtype("bf16"),
        "layout": "rcr",
        "block": (128, 128, 32),
        "waves": (2, 2, 1),
        "mma": (32, 32, 16),
        "pipeline": "compv3",
        "scheduler": "intrawave",
        "epilogue": "cshuffle",
    },
    example_problem={"m": 256, "n": 256, "k": 256, "groups": 4, "ragged": "m", "dtype": "bf16", "layout": "rcr"},
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={name: STARS[name] for name in ("block", "waves", "mma", "blocks_per_cu")},
    kinds=(
        Kind(
            name="persistent",
            doc="work-groups take tiles of all groups in turn",
            context=source.make_context,
            lds_bytes=lambda config, arch: resources.lds_bytes(view_gemm(config), arch),
            matrix_instructions=lambda config, arch: resources.matrix_instructions(view_gemm(config), arch),
            is_small=lambda config: resources.is_small(view_gemm(config)),
        ),
    ),
    structure_fields=("pipeline", "epilogue"),
    strata=_list_strata,
    shorthands={"dtype": DTYPE},
    template=_HERE / "kernel.hip.j2",
    headers=source.HEADERS,
    ck_probes=CK_PROBES,
    support=source.SUPPORT,
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    execution=make_execution(
        CALL,
        "tilewright.ops.grouped_gemm.reference",
        tensors=list_tensors,
        with_strides=apply_strides,
        padded=pad_problem,
    ),
    filters={"datatype": "dtype"},
    report_fields={"tile": "block"},
    cost=COST,
    portfolio=KernelPortfolio(_HERE / "portfolio", _list_portfolio_fields),
)


@OP.add_keywords
def space(**declared: Unpack[GroupedGemmSpaceKeywords]) -> Space:
    """A lazy set of grouped GEMM kernels: each field a value, a list of values or "*".

    `dtype="bf16"` stands for the four type fields.
    """
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[GroupedGemmConfigKeywords]) -> Config:
    """One config of a grouped GEMM kernel; `dtype="bf16"` stands for the four type fields."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "config", "estimate_groups", "space"]
