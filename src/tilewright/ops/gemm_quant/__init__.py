"""GEMM with scales: C = (A·B) · scale_a · scale_b, with 8-bit floats A and B."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tilewright.arch.spec import Arch
from tilewright.ops.aiter_table import make_log_reader, make_table_reader
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.candidates import STARS
from tilewright.ops.block_gemm.ck_probes import CK_PROBES
from tilewright.ops.block_gemm.types import DTYPE, expand_dtype
from tilewright.ops.builtin_sets import load_sets
from tilewright.ops.execution import make_execution
from tilewright.ops.fields import read_config
from tilewright.ops.gemm_quant import source
from tilewright.ops.gemm_quant.config import (
    COMMON_FIELDS,
    DTYPES,
    GROUPED,
    LAYOUTS,
    OUTPUTS,
    PIPELINES,
    QUANTS,
    Config,
    view_gemm,
)
from tilewright.ops.gemm_quant.estimate import COST
from tilewright.ops.gemm_quant.problem import CALL, Problem, apply_strides, list_tensors
from tilewright.ops.gemm_quant.problem_files import AITER_TABLES
from tilewright.ops.gemm_quant.rules import FIT_RULES, RULES
from tilewright.ops.kind import Kind
from tilewright.ops.op import Op
from tilewright.ops.portfolio import Fields, KernelPortfolio
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.ops.gemm_quant.keywords import GemmQuantConfigKeywords, GemmQuantSpaceKeywords

_HERE = Path(__file__).parent
_DOCS = {
    "tensor": "one scale for A and one for B",
    "rowcol": "a scale for each row of A and each column of B",
    "b1x128": "a scale for 128 elements along K of each column of B",
    "b128x128": "a scale for 128 × 128 elements of B",
    "a1x128": "a scale for 128 elements along K of each row of A",
    "a1x128_b128x128": "scales as of a1x128 and of b128x128",
}


def _make_kind(name: str) -> Kind:
    return Kind(
        name=name,
        doc=_DOCS[name],
        context=source.make_context,
        launchers=source.list_launchers(name),
        lds_bytes=lambda config, arch: resources.lds_bytes(view_gemm(config), arch),
        matrix_instructions=lambda config, arch: resources.matrix_instructions(view_gemm(config), arch),
        is_small=lambda config: resources.is_small(view_gemm(config)),
    )


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    types = [DTYPE.row(f"{triple.a}*{triple.b}") for triple in arch.mma if {triple.a, triple.b} <= set(DTYPES)]
    return {
        ("quant",): [(name,) for name in QUANTS],
        ("dtype_a", "dtype_b"): [row[:2] for row in types],
        ("dtype_c",): [(name,) for name in OUTPUTS],
        ("layout",): [(name,) for name in LAYOUTS],
        ("pipeline",): [(name,) for name in PIPELINES],
    }


def _list_portfolio_fields(problem: Problem, arch: Arch) -> tuple[Fields, ...]:
    fields = {**{name: getattr(problem, name) for name in COMMON_FIELDS}, "dtype_acc": "fp32"}
    # With the headers of 2026-06, only kernels that pad M take any number of rows (rule S512).
    padded = problem.quant in GROUPED and arch.ck.generation >= "2026-06"
    return ({**fields, **({"pad_m": True} if padded else {})},)


OP = Op(
    name="gemm_quant",
    doc="matrix product of 8-bit floats with scales",
    config_type=Config,
    problem_type=Problem,
    example={
        "quant": "rowcol",
        **expand_dtype("fp8"),
        "dtype_c": "bf16",
        "layout": "rcr",
        "block": (128, 128, 64),
        "waves": (2, 2, 1),
        "mma": (32, 32, 16),
        "pipeline": "compv3",
        "scheduler": "intrawave",
    },
    example_problem={
        **{"m": 256, "n": 256, "k": 256, "quant": "rowcol", "layout": "rcr"},
        **{"dtype_a": "fp8", "dtype_b": "fp8", "dtype_c": "bf16"},
    },
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={name: STARS[name] for name in ("block", "waves", "mma", "blocks_per_cu")},
    kinds=tuple(_make_kind(name) for name in QUANTS),
    kind_field="quant",
    structure_fields=("quant", "pipeline"),
    strata=_list_strata,
    shorthands={"dtype": DTYPE},
    template=_HERE / "kernel.hip.j2",
    headers=source.HEADERS,
    ck_probes=CK_PROBES,
    support=source.SUPPORT,
    launchers=source.LAUNCHERS,
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    problem_readers={"aiter": make_table_reader(*AITER_TABLES), "aiter_log": make_log_reader(*AITER_TABLES)},
    aiter_tables=AITER_TABLES,
    execution=make_execution(
        CALL,
        "tilewright.ops.gemm_quant.reference",
        tensors=list_tensors,
        with_strides=apply_strides,
    ),
    filters={"datatype": "dtype", "variants": "quant"},
    report_fields={"tile": "block"},
    cost=COST,
    portfolio=KernelPortfolio(_HERE / "preselected", _list_portfolio_fields),
)


@OP.add_keywords
def space(**declared: Unpack[GemmQuantSpaceKeywords]) -> Space:
    """A lazy set of kernels with scales: each field a value, a list of values or "*".

    `dtype="fp8"` stands for the four type fields, with an fp16 C.
    """
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[GemmQuantConfigKeywords]) -> Config:
    """One config of a kernel with scales; `dtype="fp8"` stands for the four type fields, with an fp16 C."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "config", "space"]
