"""An op that another package adds: y = factor · x. Small, so that tests of the build engine compile it in a second.

Some fields make kernels that tests of dispatch need: with `whole`, n must be padded; with `backwards`, x must be
prepared; with `scratch`, a workspace is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, FlagType, config_field
from tilewright.ops.kernel import Kernel
from tilewright.ops.kind import Kind
from tilewright.ops.op import Op
from tilewright.ops.rule import collect_rules
from tilewright_scale import fit
from tilewright_scale.execution import EXECUTION
from tilewright_scale.problem import Problem

_HERE = Path(__file__).parent
DTYPES = {"fp32": "float", "fp64": "double"}


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    dtype: str = config_field(ChoiceType(tuple(DTYPES)), "element type")
    threads: int = config_field(CountType(1, 1024), "threads of a work-group", tag="t")
    factor: int = config_field(CountType(0, 1_000_000), "what x is multiplied with", tag="x")
    whole: bool = config_field(FlagType(), "n must be a multiple of the threads", tag="whole", default=False)
    backwards: bool = config_field(FlagType(), "x is read from its end", tag="backwards", default=False)
    scratch: int = config_field(CountType(0, 1 << 20), "bytes of workspace", tag="s", default=0)


def _context(kernel: Kernel) -> Mapping[str, Any]:
    config = kernel.config
    assert isinstance(config, Config)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "type": DTYPES[config.dtype],
        "threads": config.threads,
        "factor": config.factor,
        "whole": config.whole,
        "backwards": config.backwards,
        "scratch": config.scratch,
        # Lets a test have a kernel that is legal and does not compile.
        "broken": config.factor == 666,
    }


OP = Op(
    name="scale",
    doc="y = factor · x",
    config_type=Config,
    problem_type=Problem,
    example={"dtype": "fp32", "threads": 64, "factor": 2},
    example_problem={"n": 100},
    fit_rules=collect_rules(fit),
    kinds=(Kind(name="scale", doc="multiplies", context=_context),),
    structure_fields=("dtype",),
    strata=lambda _: {("dtype",): [(name,) for name in DTYPES]},
    template=_HERE / "kernel.hip.j2",
    headers=("hip/hip_runtime.h", "tilewright_scale.h"),
    support={"tilewright_scale.h": _HERE / "abi.h"},
    execution=EXECUTION,
)

__all__ = ["OP", "Config", "Problem"]
