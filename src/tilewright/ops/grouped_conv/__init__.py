"""Grouped convolution: forward, and the gradients of the input and of the weights."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tilewright.arch.dtypes import find_accumulator
from tilewright.arch.spec import Arch, Shape
from tilewright.base.errors import choose
from tilewright.ops.block_gemm.candidates import STARS
from tilewright.ops.block_gemm.config_fields import EPILOGUES
from tilewright.ops.block_gemm.types import DTYPE, PROBLEM_TYPES, expand_dtype
from tilewright.ops.builtin_sets import load_sets
from tilewright.ops.call_header import format_header
from tilewright.ops.execution import Execution, import_on_call
from tilewright.ops.fields import read_config
from tilewright.ops.grouped_conv import source
from tilewright.ops.grouped_conv.call import CALL
from tilewright.ops.grouped_conv.ck_model_features import DIRECTION_NAMES, compute_features
from tilewright.ops.grouped_conv.ck_probes import CK_PROBES
from tilewright.ops.grouped_conv.config import DIRECTIONS, INPUTS, NDIMS, PIPELINES, Config
from tilewright.ops.grouped_conv.estimate import COST
from tilewright.ops.grouped_conv.fit import FIT_RULES
from tilewright.ops.grouped_conv.implicit_gemm import compute_gemm_sizes
from tilewright.ops.grouped_conv.kinds import KINDS
from tilewright.ops.grouped_conv.miopen_driver import read_miopen_driver
from tilewright.ops.grouped_conv.padding import pad_problem
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.rules import RULES
from tilewright.ops.grouped_conv.tensors import apply_strides, list_tensors
from tilewright.ops.grouped_conv.trials import list_trials
from tilewright.ops.measurement_files import MeasurementReader
from tilewright.ops.op import Op, OtherModelInputs, Shorthand
from tilewright.ops.portfolio import Fields, KernelPortfolio
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.keywords import GroupedConvConfigKeywords, GroupedConvSpaceKeywords

_HERE = Path(__file__).parent
_VECTORS = (1, 2, 4, 8, 16)


def _parse_layout(layout: str) -> tuple[int]:
    by_name = {name: ndim for ndim, name in source.LAYOUTS.items()}
    return (by_name[choose("layout of grouped_conv", layout, by_name)],)


def _parse_direction(name: str) -> tuple[str]:
    return (choose("variant of grouped_conv", name, DIRECTIONS),)


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    types = [DTYPE.row(triple.a) for triple in arch.mma if triple.a == triple.b in INPUTS]
    return {
        ("direction",): [(name,) for name in DIRECTIONS],
        ("ndim",): [(ndim,) for ndim in NDIMS],
        DTYPE.fields: types,
        ("pipeline",): [(name,) for name in PIPELINES],
        ("epilogue",): [(name,) for name in EPILOGUES],
    }


def _list_portfolio_fields(problem: Problem, arch: Arch) -> tuple[Fields, ...]:  # noqa: ARG001
    """A problem fixes direction, dimensions and types, and whether the sum is split."""
    types = {name: getattr(problem, name) for name in PROBLEM_TYPES}
    sums = find_accumulator(problem.dtype_a, problem.dtype_b)
    split = problem.k_batch > 1
    return ({"direction": problem.direction, "ndim": problem.ndim, **types, "dtype_acc": sums, "split_k": split},)


OP = Op(
    name="grouped_conv",
    doc="grouped convolution, its gradient with respect to the input and its gradient with respect to the weights",
    config_type=Config,
    problem_type=Problem,
    example={
        "direction": "forward",
        "ndim": 2,
        **expand_dtype("fp16"),
        "block": (128, 128, 32),
        "waves": (2, 2, 1),
        "mma": (32, 32, 16),
        "pipeline": "compv3",
        "scheduler": "intrawave",
        "epilogue": "cshuffle",
        "vector": (4, 8, 8),
    },
    example_problem={
        "direction": "forward",
        "n": 2,
        "c": 64,
        "k": 64,
        "input_size": (16, 16),
        "filter_size": (3, 3),
        "left_pad": (1, 1),
        "right_pad": (1, 1),
        "dtype": "fp16",
    },
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={
        **STARS,
        "ndim": lambda _: NDIMS,
        "vector": lambda _: tuple(Shape(*s) for s in itertools.product(_VECTORS, repeat=3)),
        "merge_groups": lambda _: (1, 2, 4, 8),
    },
    kinds=KINDS,
    kind_field="direction",
    structure_fields=("direction", "pipeline", "epilogue"),
    strata=_list_strata,
    shorthands={
        "dtype": DTYPE,
        # Words of other tools for a direction and for ndim, in files and programs.
        "variant": Shorthand(("direction",), _parse_direction),
        "layout": Shorthand(("ndim",), _parse_layout),
    },
    template=_HERE / "kernel.hip.j2",
    headers=source.HEADERS,
    ck_probes=CK_PROBES,
    support={**source.SUPPORT, **format_header(CALL)},
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    importers={},
    problem_readers={"miopen_driver": read_miopen_driver},
    measurement_readers={
        "conv_benchmark": MeasurementReader(
            "ck_tile_conv_benchmark",
            import_on_call("tilewright.ops.grouped_conv.benchmark_times", "read_times"),
            ("arch",),
        ),
        "conv_gfx950": MeasurementReader(
            "ck_tile_conv_gfx950", import_on_call("tilewright.ops.grouped_conv.gfx950_times", "read_times")
        ),
    },
    filters={"datatype": "dtype", "layout": "layout", "variants": "direction", "ndim_spatial": "ndim"},
    execution=Execution(
        tensors=list_tensors,
        with_strides=apply_strides,
        arguments=CALL.make_arguments,
        point=CALL.make_address_setter,
        call=CALL,
        padded=pad_problem,
        inputs=import_on_call("tilewright.ops.grouped_conv.inputs", "make_inputs"),
        reference=import_on_call("tilewright.ops.grouped_conv.reference", "compute_reference"),
        tolerance=import_on_call("tilewright.ops.grouped_conv.reference", "compute_tolerance"),
        tolerance_basis=import_on_call("tilewright.ops.grouped_conv.reference", "tolerance_basis"),
        trials=list_trials,
        host_reference=_HERE / "host_reference.hpp",
    ),
    report_fields={"tile": "block"},
    cost=COST,
    portfolio=KernelPortfolio(_HERE / "portfolio", _list_portfolio_fields, matched=("direction", "dtype_a", "split_k")),
    other_models=OtherModelInputs(compute_features, DIRECTION_NAMES),
)


@OP.add_keywords
def space(**declared: Unpack[GroupedConvSpaceKeywords]) -> Space:
    """A lazy set of convolution kernels: each field a value, a list of values or "*".

    Required fields that are not given take every value. Optional fields keep their defaults.
    `dtype="fp16"` stands for the four type fields.
    """
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[GroupedConvConfigKeywords]) -> Config:
    """One convolution config; `dtype="fp16"` stands for the four type fields, `layout="nhwgc"` for ndim."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "compute_gemm_sizes", "config", "space"]
