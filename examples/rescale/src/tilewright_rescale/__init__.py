"""The op rescale: y = factor · x, element by element.

To make it your own, begin with the problem (problem.py) and the kernel (kernel.hip.j2). Then change the reference
(reference.py) until `tilewright verify` accepts your kernels. Configs, rules and the cost model are in this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.arch import Arch
from tilewright.arch.dtypes import find_dtype
from tilewright.ops import Kernel, Op, c_interface
from tilewright.ops.call_header import format_header
from tilewright.ops.cost_model.streaming import StreamedSizes, StreamingGroup, make_streaming_cost
from tilewright.ops.execution import Execution, import_on_call
from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, config_field
from tilewright.ops.kind import Kind
from tilewright.ops.rule import Rejection, rule

from .problem import CALL, DTYPES, Problem, apply_strides, list_tensors

# Headers that every kernel includes: the C struct, and the macro that exports the kernel's functions.
INCLUDED: Mapping[str, Path | str] = {**format_header(CALL), **c_interface.SUPPORT}


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """The compile-time facts of one kernel: all fields that change its code."""

    dtype: str = config_field(ChoiceType(tuple(DTYPES)), "type of x and y")
    threads: int = config_field(CountType(1, 1024), "threads of a work-group", tag="t")
    items: int = config_field(CountType(1, 32), "elements that a thread computes", tag="i")


# Rules reject configs that do not work. Each has a code, an example that passes and one that fails: the fields that
# differ from the op's example. Fit rules read the problem as well.


@rule("X101", "partial-wave", reads=("threads",), enforced_by="tilewright", good={"threads": 128}, bad={"threads": 100})
def partial_wave(config: Config, arch: Arch) -> Rejection | None:
    """A work-group has complete waves.

    Why: a partial wave takes the time of a complete one.

    Fix: choose a multiple of the wave size.
    """
    if config.threads % arch.wave_size == 0:
        return None
    message = f"{config.threads} threads are not a multiple of the wave size {arch.wave_size}"
    return Rejection(message, "threads", max(1, config.threads // arch.wave_size) * arch.wave_size)


@rule("X501", "other-type", reads=("dtype",), enforced_by="tilewright", good={}, bad={"problem": {"dtype": "fp16"}})
def other_type(config: Config, problem: Problem, arch: Arch) -> Rejection | None:  # noqa: ARG001
    """The kernel has the type of the problem.

    Why: the type is compiled into the kernel.

    Fix: choose a kernel of the problem's type.
    """
    if config.dtype == problem.dtype:
        return None
    return Rejection(f"the kernel has type {config.dtype}, the problem {problem.dtype}", "dtype", problem.dtype)


def _make_context(kernel: Kernel) -> Mapping[str, Any]:
    """The variables of kernel.hip.j2."""
    config = kernel.config
    assert isinstance(config, Config)
    names = {"slug": kernel.slug, "symbol": kernel.symbol, "type": DTYPES[config.dtype]}
    return {**names, "threads": config.threads, "items": config.items}


def _count_sizes(problem: Problem) -> StreamedSizes:
    """For the cost model, which ranks kernels: the memory that a problem reads and writes."""
    size = problem.n * find_dtype(problem.dtype).storage_bytes
    return StreamedSizes(elements=problem.n, read_bytes=size, written_bytes=size)


def _describe_group(config: Config, arch: Arch) -> StreamingGroup:  # noqa: ARG001
    """For the cost model: the work of one work-group."""
    return StreamingGroup(
        elements=config.threads * config.items,
        threads=config.threads,
        load_bytes=find_dtype(config.dtype).storage_bytes,
        load_instructions=8,  # the address, the comparison with n, the product, conversions
    )


OP = Op(
    name="rescale",
    doc="y = factor · x",
    config_type=Config,
    problem_type=Problem,
    kinds=(Kind(name="rescale", doc="y = factor · x", context=_make_context),),
    example={"dtype": "fp32", "threads": 256, "items": 4},
    example_problem={"n": 1000, "dtype": "fp32"},
    rules=(partial_wave,),
    fit_rules=(other_type,),
    # The values of "*" in a space, for fields that do not list theirs.
    stars={"threads": lambda _: (64, 128, 256, 512), "items": lambda _: (1, 2, 4, 8)},
    template=Path(__file__).with_name("kernel.hip.j2"),
    headers=("hip/hip_runtime.h", *INCLUDED),
    support=INCLUDED,
    execution=Execution(
        tensors=list_tensors,
        with_strides=apply_strides,
        arguments=CALL.make_arguments,
        point=CALL.make_address_setter,
        # These need NumPy, which is imported when one of them is called.
        inputs=import_on_call(f"{__name__}.reference", "make_inputs"),
        reference=import_on_call(f"{__name__}.reference", "compute_reference"),
        tolerance=import_on_call(f"{__name__}.reference", "compute_tolerance"),
        trials=import_on_call(f"{__name__}.reference", "list_trials"),
    ),
    cost=make_streaming_cost(_count_sizes, _describe_group),
)

__all__ = ["OP", "Config", "Problem"]
