"""RMSNorm and LayerNorm, with a residual and with quantised results; quantisation alone."""

from __future__ import annotations

import functools
import itertools
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
from tilewright.ops.norm.config import (
    COMMON_FIELDS,
    DTYPES,
    QUANTIZED_DTYPES,
    QUANTS,
    RESIDUALS,
    Config,
    compute_lds_bytes,
    count_threads,
    get_common_fields,
)
from tilewright.ops.norm.problem import CALL, Problem, apply_strides, list_tensors
from tilewright.ops.norm.rules import FIT_RULES, RULES, count_most_elements
from tilewright.ops.op import Op
from tilewright.ops.portfolio import KernelPortfolio, fix_fields
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.ops.norm.keywords import NormConfigKeywords, NormSpaceKeywords

_HERE = Path(__file__).parent
_DOCS = {
    "rms": "y = x · rstd · weight, with the inverse root mean square of each row",
    "layer": "y = (x - mean) · rstd · weight + bias, with mean and inverse deviation of each row",
    "smoothquant": "y = x · smooth / scale, with a scale of each row",
}
# CK Tile's names for values of fields, and the members of its arguments in their order.
_ADDS = {"none": "NO_ADD", "add": "PRE_ADD", "store": "PRE_ADD_STORE"}
_QUANTS = {"none": "NO_SWEEP", "dynamic": "DYNAMIC_QUANT", "smooth": "SMOOTH_DYNAMIC_QUANT"}
_SIZES = "epsilon, i(a.rows), i(a.columns), i(a.stride_x), i(a.stride_residual), i(a.stride_y), i(a.stride_sum)"
_ARGUMENTS = {
    "rms": f"a.x, a.residual, a.smooth, a.weight, a.y, a.sum, a.scale, a.rstd, nullptr, {_SIZES}",
    "layer": "a.x, a.residual, a.smooth, nullptr, a.weight, a.bias, a.y, a.sum, a.scale, a.mean, a.rstd, " + _SIZES,
    "smoothquant": "a.x, a.smooth, a.scale, a.y, i(a.rows), i(a.columns), i(a.stride_x), i(a.stride_y)",
}
_EPILOGUES = tuple(f"ck_tile/ops/epilogue/{name}_epilogue.hpp" for name in ("default_2d", "dynamic_quant"))
_TEMPLATES = tuple(f"ck_tile/ops/{name}.hpp" for name in ("layernorm2d", "rmsnorm2d", "smoothquant"))
_OWN: dict[str, Path | str] = {**c_interface.SUPPORT, **format_header(CALL)}


def _make_context(kernel: Kernel) -> dict[str, Any]:
    """The variables of kernel.hip.j2."""
    config = cast("Config", kernel.config)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "cpp": {"x": find_dtype(config.dtype).cpp, "y": find_dtype(config.dtype_y).cpp},
        **{name: getattr(config, name) for name in ("kind", "rows", "columns", "threads", "vector")},
        **{name: format_cpp_bool(getattr(config, name)) for name in ("save", "pad", "two_pass")},
        "add": _ADDS[config.residual],
        "quant": _QUANTS[config.quant],
        "quantized": config.quant != "none",
        "smooth": format_cpp_bool(config.quant == "smooth"),
        "passes": "TwoPass" if config.two_pass else "OnePass",
        "tensors": [tensor.name for tensor in list_tensors(Problem(rows=1, columns=1, **get_common_fields(config)))],
        "arguments": _ARGUMENTS[config.kind].split(", "),
        "step": config.vector if config.pad else config.columns,
        "most_elements": count_most_elements(config),
        "block_threads": count_threads(config, archs.load(kernel.arch)),
    }


def _count_sizes(problem: Problem) -> StreamedSizes:
    """Rows, and the bytes of all matrices."""
    size = problem.rows * problem.columns * find_dtype(problem.dtype).storage_bytes
    y_size = problem.rows * problem.columns * find_dtype(problem.dtype_y).storage_bytes
    return StreamedSizes(
        elements=problem.rows,
        read_bytes=size if problem.residual == "none" else 2 * size,
        written_bytes=y_size + size if problem.residual == "store" else y_size,
    )


def _describe_group(config: Config, arch: Arch) -> StreamingGroup:
    held = config.columns // config.threads
    passes = 2 if config.two_pass else 1
    return StreamingGroup(
        elements=config.rows,
        threads=count_threads(config, arch),
        load_bytes=config.vector * find_dtype(config.dtype).storage_bytes,
        # Conversion, sum, product with the weight and conversion of each element; the first two in each pass.
        load_instructions=float(config.vector * (4 + 2 * passes)),
        # Sums of lanes and waves, and the same instructions for elements beyond the end of a row.
        setup_instructions=60.0 + 3.0 * held,
        waits=float(passes),
        registers=min(arch.registers.max_vgprs, 24 + 2 * held),
        lds_bytes=compute_lds_bytes(config, arch),
    )


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:  # noqa: ARG001
    types = itertools.product(QUANTS[1:], QUANTIZED_DTYPES)
    return {
        ("kind", "residual"): [*itertools.product(("rms", "layer"), RESIDUALS), ("smoothquant", "none")],
        ("quant", "dtype_y"): [*(("none", name) for name in DTYPES), *types],
        ("dtype",): [(name,) for name in DTYPES],
        ("two_pass",): [(False,), (True,)],
    }


OP = Op(
    name="norm",
    doc="RMSNorm and LayerNorm, with a residual and with quantised results",
    config_type=Config,
    problem_type=Problem,
    example={
        "kind": "rms",
        "dtype": "fp16",
        "dtype_y": "fp16",
        "rows": 1,
        "columns": 1024,
        "threads": 128,
        "vector": 8,
    },
    example_problem={"kind": "rms", "rows": 64, "columns": 1024, "dtype": "fp16", "dtype_y": "fp16"},
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={
        "rows": lambda _: (1, 2, 4, 8),
        "columns": lambda _: (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192),
        "threads": lambda _: (16, 32, 64, 128, 256, 512, 1024),
        "vector": lambda _: (1, 2, 4, 8),
    },
    kinds=tuple(Kind(name=n, doc=doc, context=_make_context, lds_bytes=compute_lds_bytes) for n, doc in _DOCS.items()),
    kind_field="kind",
    structure_fields=("kind", "quant", "two_pass"),
    strata=_list_strata,
    template=_HERE / "kernel.hip.j2",
    headers=(ck_shortcuts.NAME, "ck_tile/core.hpp", "ck_tile/host/kernel_launch.hpp", *_TEMPLATES, *_EPILOGUES, *_OWN),
    support={**ck_shortcuts.SUPPORT, **_OWN},
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    execution=make_execution(
        CALL,
        "tilewright.ops.norm.reference",
        tensors=list_tensors,
        with_strides=apply_strides,
        tolerance_basis=lambda config, _: (config.threads, config.two_pass),
    ),
    filters={"datatype": "dtype", "variants": "kind"},
    cost=make_streaming_cost(_count_sizes, _describe_group, CModelInputs(CALL)),
    portfolio=KernelPortfolio(_HERE / "preselected", fix_fields(*COMMON_FIELDS)),
)


@OP.add_keywords
def space(**declared: Unpack[NormSpaceKeywords]) -> Space:
    """A lazy set of norm kernels: each field a value, a list of values or "*"."""
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[NormConfigKeywords]) -> Config:
    """One norm config."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "config", "space"]
