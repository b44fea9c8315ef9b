"""GEMM: C = elementwise(A·B, D…)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tilewright.arch.dtypes import find_accumulator
from tilewright.arch.spec import Arch
from tilewright.ops.aiter_table import make_log_reader, make_table_reader
from tilewright.ops.block_gemm.candidates import STARS
from tilewright.ops.block_gemm.ck_probes import CK_PROBES
from tilewright.ops.block_gemm.config_fields import EPILOGUES
from tilewright.ops.block_gemm.types import DTYPE, PROBLEM_TYPES, expand_dtype
from tilewright.ops.builtin_sets import load_sets
from tilewright.ops.call_header import format_header
from tilewright.ops.execution import Execution, import_on_call
from tilewright.ops.fields import read_config
from tilewright.ops.gemm import source
from tilewright.ops.gemm.call import CALL
from tilewright.ops.gemm.config import LAYOUTS, PIPELINES, VARIANTS, Config
from tilewright.ops.gemm.estimate import COST
from tilewright.ops.gemm.fit import FIT_RULES
from tilewright.ops.gemm.kinds import KINDS
from tilewright.ops.gemm.padding import pad_problem
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.problem_files import AITER_TABLES, read_hipblaslt_bench, read_tunableop
from tilewright.ops.gemm.rules import RULES
from tilewright.ops.gemm.tensors import (
    apply_strides,
    list_preparations,
    list_tensors,
)
from tilewright.ops.gemm.tile_engine import read_tile_engine
from tilewright.ops.gemm.trials import list_trials
from tilewright.ops.measurement_files import MeasurementReader
from tilewright.ops.op import Op
from tilewright.ops.portfolio import Fields, KernelPortfolio
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.ops.gemm.keywords import GemmConfigKeywords, GemmSpaceKeywords

_HERE = Path(__file__).parent


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    types = [DTYPE.row(f"{triple.a}*{triple.b}") for triple in arch.mma]
    return {
        ("variant",): [(name,) for name in VARIANTS],
        DTYPE.fields: types,
        ("layout",): [(name,) for name in LAYOUTS],
        ("pipeline",): [(name,) for name in PIPELINES],
        ("epilogue",): [(name,) for name in EPILOGUES],
    }


def _list_portfolio_fields(problem: Problem, arch: Arch) -> tuple[Fields, ...]:  # noqa: ARG001
    """A problem fixes types, layout and operation, and by its batch and its D tensors the variant."""
    variant = "multi_d" if problem.num_d else "batched" if problem.batch > 1 else "standard"
    types = {name: getattr(problem, name) for name in PROBLEM_TYPES}
    sums = find_accumulator(problem.dtype_a, problem.dtype_b)
    operation = {name: getattr(problem, name) for name in ("layout", "elementwise", "num_d")}
    return ({"variant": variant, **types, "dtype_acc": sums, **operation},)


OP = Op(
    name="gemm",
    doc="matrix product C = elementwise(A·B, D…)",
    config_type=Config,
    problem_type=Problem,
    example={
        "variant": "standard",
        **expand_dtype("fp16"),
        "layout": "rcr",
        "block": (128, 128, 32),
        "waves": (2, 2, 1),
        "mma": (32, 32, 16),
        "pipeline": "compv3",
        "scheduler": "intrawave",
        "epilogue": "cshuffle",
    },
    example_problem={"m": 256, "n": 256, "k": 256, "dtype": "fp16", "layout": "rcr"},
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={
        **STARS,
        "num_d": lambda _: (0, 1, 2),
        "vector": lambda _: (None,),
    },
    kinds=KINDS,
    kind_field="variant",
    structure_fields=("variant", "pipeline", "epilogue"),
    strata=_list_strata,
    shorthands={"dtype": DTYPE},
    template=_HERE / "kernel.hip.j2",
    headers=source.HEADERS,
    ck_probes=CK_PROBES,
    support={**source.SUPPORT, **format_header(CALL)},
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    importers={"tile_engine": read_tile_engine},
    problem_readers={
        "aiter": make_table_reader(AITER_TABLES),
        "aiter_log": make_log_reader(AITER_TABLES),
        "tunableop": read_tunableop,
        "hipblaslt_bench": read_hipblaslt_bench,
    },
    aiter_tables=(AITER_TABLES,),
    measurement_readers={
        "tile_engine": MeasurementReader(
            "tile_engine",
            import_on_call("tilewright.ops.gemm.tile_engine_times", "read_times"),
            ("arch", "elementwise", "permute_n"),
        )
    },
    execution=Execution(
        tensors=list_tensors,
        with_strides=apply_strides,
        arguments=CALL.make_arguments,
        point=CALL.make_address_setter,
        call=CALL,
        preparations=list_preparations,
        padded=pad_problem,
        inputs=import_on_call("tilewright.ops.gemm.reference", "make_inputs"),
        reference=import_on_call("tilewright.ops.gemm.reference", "compute_reference"),
        tolerance=import_on_call("tilewright.ops.gemm.reference", "compute_tolerance"),
        tolerance_basis=import_on_call("tilewright.ops.gemm.reference", "tolerance_basis"),
        trials=list_trials,
        host_reference=_HERE / "host_reference.hpp",
    ),
    filters={"datatype": "dtype", "variants": "variant"},
    report_fields={"tile": "block"},
    cost=COST,
    portfolio=KernelPortfolio(_HERE / "portfolio", _list_portfolio_fields),
)


@OP.add_keywords
def space(**declared: Unpack[GemmSpaceKeywords]) -> Space:
    """A lazy set of GEMM kernels: each field a value, a list of values or "*".

    Required fields that are not given take every value. Optional fields keep their defaults.
    `dtype="fp16"` stands for the four type fields.
    """
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[GemmConfigKeywords]) -> Config:
    """One GEMM config; `dtype="fp16"` stands for the four type fields."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "config", "space"]
