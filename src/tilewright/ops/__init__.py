"""Ops: one folder each, the only places that know an op."""

from __future__ import annotations

import functools
from typing import Any

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnknownValueError, choose
from tilewright.ops import fmha, gemm, grouped_conv
from tilewright.ops.fields import ConfigBase
from tilewright.ops.kernel import Kernel
from tilewright.ops.near_miss import Suggestion
from tilewright.ops.near_miss import suggest as _suggest
from tilewright.ops.op import Op
from tilewright.ops.plugins import PluginFailure, load_plugins
from tilewright.ops.rule import Verdict, Violation, verdicts, violations

OPS: tuple[Op, ...] = (gemm.OP, grouped_conv.OP, fmha.OP)
_OWN = {op.name: op for op in OPS}


@functools.cache
def _plugins() -> tuple[Op | PluginFailure, ...]:
    return tuple(load_plugins(OPS))


def all_ops() -> tuple[Op, ...]:
    """The ops that come with Tilewright, and those that installed packages add."""
    return (*OPS, *(each for each in _plugins() if isinstance(each, Op)))


def plugin_failures() -> tuple[PluginFailure, ...]:
    """The installed packages that should add an op and cannot, with the reasons."""
    return tuple(each for each in _plugins() if isinstance(each, PluginFailure))


def plugin_note() -> str:
    """What an error about an unknown name should add: it may be that of a package that failed. Mostly empty."""
    failures = plugin_failures()
    return f"Not loaded: {'; '.join(map(str, failures))}." if failures else ""


def op_named(name: str) -> Op:
    """The op of that name; `UnknownValueError` lists them all, and the packages that could not add theirs."""
    found = _OWN.get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    for op in all_ops():
        if op.name == name:
            return op
    raise UnknownValueError("op", name, (op.name for op in all_ops()), plugin_note())


def op_of(config: ConfigBase) -> Op:
    """The op that a config belongs to."""
    own = {op.config_type: op for op in OPS}
    if type(config) in own:
        return own[type(config)]
    for op in all_ops():
        if type(config) is op.config_type:
            return op
    raise InvalidValueError(f"{type(config).__name__} is not a config of {', '.join(o.name for o in all_ops())}")


def parse_kernel(slug: str) -> Kernel:
    """The kernel that a slug names: the inverse of `Kernel.slug`."""
    parts = slug.split("-")
    if len(parts) < 4:
        raise InvalidValueError(f"{slug!r} is not a kernel name: it must have op, arch, fields and digest")
    choose("arch", parts[1], archs.arch_names())
    return op_named(parts[0]).parse_tokens(parts[1], parts[2:-1], parts[-1])


def explain(config: ConfigBase, arch: str) -> list[Verdict]:
    """What every rule says about a config on a GPU: passes as well as failures."""
    return verdicts(op_of(config).rules, config, archs.load(arch))


def suggest(config: ConfigBase, arch: str, limit: int = 5) -> list[Suggestion]:
    """Legal configs nearest to an illegal one, fewest and smallest changes first; never changes the config."""
    return _suggest(op_of(config), config, archs.load(arch), limit)


def kernel_of(config: ConfigBase, arch: str) -> Kernel:
    """The kernel of a config on a GPU."""
    archs.load(arch)
    return op_of(config).kernel(config, arch)


def fits(config: ConfigBase, problem: Any, arch: str) -> list[Violation]:
    """Why a kernel cannot compute a problem; empty when it can."""
    return violations(op_of(config).fit_rules, config, problem, archs.load(arch))
