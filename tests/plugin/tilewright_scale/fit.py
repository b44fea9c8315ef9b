"""Which problems a kernel can compute: what its `supports` says, and the type."""

from __future__ import annotations

from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.rule import Rejection, rule


@rule(
    "Z501",
    "other-type",
    reads=("dtype",),
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype": "fp64"}},
)
def other_type(config: Any, problem: Any, arch: Arch) -> Rejection | None:
    """Problem and kernel must have the same type.

    Why: it is compiled in.

    Fix: a kernel of the problem's type.
    """
    if config.dtype == problem.dtype:
        return None
    return Rejection(f"the kernel has dtype {config.dtype}, the problem {problem.dtype}", "dtype")


@rule(
    "Z503",
    "other-factor",
    reads=("factor",),
    enforced_by="tilewright",
    good={"problem": {"times": 2}},
    bad={"problem": {"times": 3}},
)
def other_factor(config: Any, problem: Any, arch: Arch) -> Rejection | None:
    """A problem that says its factor needs a kernel of that factor.

    Why: it is compiled in.

    Fix: a kernel of the problem's factor.
    """
    if problem.times in (None, config.factor):
        return None
    return Rejection(f"the kernel multiplies with {config.factor}, the problem with {problem.times}", "factor")


@rule(
    "Z502",
    "n-not-whole",
    reads=("whole", "threads"),
    enforced_by="supports",
    good={"whole": True, "problem": {"n": 128}},
    bad={"whole": True, "problem": {"n": 100}},
)
def n_not_whole(config: Any, problem: Any, arch: Arch) -> Rejection | None:
    """A kernel of whole work-groups takes whole work-groups.

    Why: tests need a kernel that refuses.

    Fix: a padded problem.
    """
    if not config.whole or problem.n % config.threads == 0:
        return None
    return Rejection(f"n = {problem.n} is not a multiple of {config.threads} threads", "whole", False)
