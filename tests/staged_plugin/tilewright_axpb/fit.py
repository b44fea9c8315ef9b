"""Which problems a kernel can compute: its own step, with parts as it is made for."""

from __future__ import annotations

from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.rule import Rejection, rule


@rule(
    "Z511",
    "other-step",
    reads=("step",),
    enforced_by="tilewright",
    good={"problem": {"step": "scale"}},
    bad={"problem": {"step": "whole"}},
)
def other_step(config: Any, problem: Any, arch: Arch) -> Rejection | None:
    """A kernel computes its own step.

    Why: it is compiled in.

    Fix: a kernel of that step.
    """
    if config.step == problem.step:
        return None
    return Rejection(f"the kernel computes {config.step}, the problem is {problem.step}", "step")


@rule(
    "Z512",
    "other-parts",
    reads=("step", "parts"),
    enforced_by="supports",
    good={},
    bad={"parts": 7, "problem": {"step": "scale", "count": 2}},
)
def other_parts(config: Any, problem: Any, arch: Arch) -> Rejection | None:
    """A kernel that scales needs room for its parts, one that adds takes as many as it is made for.

    Why: it is compiled in.

    Fix: a kernel of that many parts.
    """
    if problem.count == config.parts or (config.step == "scale" and problem.count > config.parts):
        return None
    return Rejection(f"the kernel has {config.parts} parts, the problem has room for {problem.count}", "parts")
