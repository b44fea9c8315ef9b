"""An op of two kernels: y = factor · x + b. One multiplies, the other adds up; between them lie parts of the product.

Small, so that tests of plans compile it in a second. A kernel that is `lazy` leaves out the last element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.ops import c_interface
from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, FlagType, config_field
from tilewright.ops.kernel import Kernel
from tilewright.ops.kind import Kind
from tilewright.ops.op import Op
from tilewright.ops.rule import collect_rules
from tilewright_axpb import fit
from tilewright_axpb.execution import EXECUTION
from tilewright_axpb.problem import ADD, SCALE, Problem

_HERE = Path(__file__).parent
_LAUNCHERS = {SCALE: "tilewright_axpb_scale.hpp", ADD: "tilewright_axpb_add.hpp"}


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    step: str = config_field(ChoiceType((SCALE, ADD)), "what the kernel computes")
    threads: int = config_field(CountType(1, 1024), "threads of a work-group", tag="t")
    parts: int = config_field(CountType(1, 16), "parts between the steps", tag="p", default=1)
    lazy: bool = config_field(FlagType(), "the last element is left out", tag="lazy", default=False)


def _context(kernel: Kernel) -> Mapping[str, Any]:
    config = kernel.config
    assert isinstance(config, Config)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "threads": config.threads,
        "count": config.parts,
        "lazy": str(config.lazy).lower(),
        "launcher": f"tilewright_axpb::{config.step.title()}",
    }


OP = Op(
    name="axpb",
    doc="y = factor · x + b",
    config_type=Config,
    problem_type=Problem,
    example={"step": SCALE, "threads": 64},
    example_problem={"step": SCALE, "n": 100},
    fit_rules=collect_rules(fit),
    kinds=tuple(Kind(name=step, doc=step, context=_context, launchers=(name,)) for step, name in _LAUNCHERS.items()),
    kind_field="step",
    structure_fields=("step",),
    strata=lambda _: {("step",): [(SCALE,), (ADD,)]},
    template=_HERE / "kernel.hip.j2",
    headers=("hip/hip_runtime.h", "tilewright_axpb.h", c_interface.NAME),
    support={"tilewright_axpb.h": _HERE / "abi.h", **c_interface.SUPPORT},
    launchers={name: _HERE / f"{step}.hpp" for step, name in _LAUNCHERS.items()},
    execution=EXECUTION,
)

__all__ = ["OP", "Config", "Problem"]
