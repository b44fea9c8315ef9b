"""Ops, one folder each. Only the code in an op's folder knows that op."""

from __future__ import annotations

import functools
from typing import Any

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnknownValueError, choose
from tilewright.ops import fmha, gemm, grouped_conv
from tilewright.ops.fields import ConfigBase
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.plugins import PluginFailure, load_plugins
from tilewright.ops.problem_values import dump_problem, load_problem
from tilewright.ops.rule import Verdict, Violation, find_violations, list_verdicts
from tilewright.ops.suggestions import Suggestion
from tilewright.ops.suggestions import suggest_configs as _suggest

OPS: tuple[Op, ...] = (gemm.OP, grouped_conv.OP, fmha.OP)
_OWN = {op.name: op for op in OPS}


@functools.cache
def _collect_plugins() -> tuple[Op | PluginFailure, ...]:
    return tuple(load_plugins(OPS))


def list_ops() -> tuple[Op, ...]:
    """The ops that are part of Tilewright, then those that installed packages add."""
    return (*OPS, *(each for each in _collect_plugins() if isinstance(each, Op)))


def list_plugin_failures() -> tuple[PluginFailure, ...]:
    """The installed packages that failed to add an op, with the reasons."""
    return tuple(each for each in _collect_plugins() if isinstance(each, PluginFailure))


def describe_plugin_failures() -> str:
    """A note for errors about unknown names: the name may belong to a package that failed to load. Usually empty."""
    failures = list_plugin_failures()
    return f"Not loaded: {'; '.join(map(str, failures))}." if failures else ""


def find_op(name: str) -> Op:
    """The op with this name. `UnknownValueError` lists all ops and the packages that could not add theirs."""
    found = _OWN.get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    for op in list_ops():
        if op.name == name:
            return op
    raise UnknownValueError("op", name, (op.name for op in list_ops()), describe_plugin_failures())


def infer_op(config: ConfigBase) -> Op:
    """The op that a config belongs to."""
    own = {op.config_type: op for op in OPS}
    if type(config) in own:
        return own[type(config)]
    for op in list_ops():
        if type(config) is op.config_type:
            return op
    raise InvalidValueError(f"{type(config).__name__} is not a config of {', '.join(o.name for o in list_ops())}")


def parse_kernel(slug: str) -> Kernel:
    """Parse a kernel's slug, the inverse of `Kernel.slug`."""
    parts = slug.split("-")
    if len(parts) < 4:
        raise InvalidValueError(f"{slug!r} is not a kernel name: it must have op, arch, fields and digest")
    choose("arch", parts[1], archs.arch_names())
    return find_op(parts[0]).parse_tokens(parts[1], parts[2:-1], parts[-1])


def explain(config: ConfigBase, arch: str) -> list[Verdict]:
    """The verdict of every rule on a config on a GPU, passes as well as failures."""
    return list_verdicts(infer_op(config).rules, config, archs.load(arch))


def suggest(config: ConfigBase, arch: str, limit: int = 5) -> list[Suggestion]:
    """The legal configs nearest to an illegal one, fewest and smallest changes first. Never changes the config."""
    return _suggest(infer_op(config), config, archs.load(arch), limit)


def kernel_of(config: ConfigBase, arch: str) -> Kernel:
    """The kernel of a config on a GPU."""
    archs.load(arch)
    return infer_op(config).make_kernel(config, arch)


def fits(config: ConfigBase, problem: Any, arch: str) -> list[Violation]:
    """The reasons why a kernel does not support a problem; empty if it does."""
    return find_violations(infer_op(config).fit_rules, config, problem, archs.load(arch))


__all__ = [
    "OPS",
    "Kernel",
    "Op",
    "PluginFailure",
    "Suggestion",
    "Verdict",
    "Violation",
    "describe_plugin_failures",
    "dump_problem",
    "explain",
    "find_op",
    "find_violations",
    "fits",
    "fmha",
    "gemm",
    "grouped_conv",
    "infer_op",
    "kernel_of",
    "list_ops",
    "list_plugin_failures",
    "load_problem",
    "parse_kernel",
    "suggest",
]
