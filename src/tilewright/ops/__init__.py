"""Ops: one folder each, the only places that know an op."""

from __future__ import annotations

import functools
from typing import Any

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops import fmha, gemm, grouped_conv
from tilewright.ops.fields import ConfigBase
from tilewright.ops.kernel import Kernel
from tilewright.ops.near_miss import Suggestion
from tilewright.ops.near_miss import suggest as _suggest
from tilewright.ops.op import Op
from tilewright.ops.rule import Verdict, Violation, verdicts, violations

OPS: tuple[Op, ...] = (gemm.OP, grouped_conv.OP, fmha.OP)
# Other packages add an op with an entry point of this group whose object is an `Op`.
ENTRY_POINTS = "tilewright.ops"


@functools.cache
def all_ops() -> tuple[Op, ...]:
    """The ops that come with Tilewright, and those that installed packages add."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (looks through all installed packages)

    ops = list(OPS)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        op = point.load()
        if not isinstance(op, Op):
            raise InvalidValueError(
                f"the entry point {point.name} = {point.value} gives a {type(op).__name__}, not an Op"
            )
        if op.name in {other.name for other in ops}:
            raise InvalidValueError(f"the entry point {point.name} = {point.value} adds a second op named {op.name}")
        ops.append(op)
    return tuple(ops)


@functools.cache
def op_named(name: str) -> Op:
    """The op of that name; `UnknownValueError` lists them all."""
    own = {op.name: op for op in OPS}
    if name in own:
        return own[name]
    known = {op.name: op for op in all_ops()}
    return known[choose("op", name, known)]


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
