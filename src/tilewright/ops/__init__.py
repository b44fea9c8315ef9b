"""Ops, one folder each, and those that other packages add. Only the code in an op's folder knows that op."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnknownValueError, choose, require
from tilewright.ops import fmha, gemm, gemm_quant, grouped_conv, grouped_gemm, moe_sorting, norm, topk
from tilewright.ops.fields import ConfigBase
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.problem_values import dump_problem, load_problem
from tilewright.ops.rule import Verdict, Violation, find_violations, list_verdicts
from tilewright.ops.suggestions import Suggestion
from tilewright.ops.suggestions import suggest_configs as _suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Other packages add an op with an entry point of this group whose object is an `Op`.
ENTRY_POINTS = "tilewright.ops"
OPS: tuple[Op, ...] = (
    *(gemm.OP, grouped_conv.OP, fmha.OP, norm.OP, gemm_quant.OP, grouped_gemm.OP),
    *(topk.OP, moe_sorting.OP),
)
_OWN = {op.name: op for op in OPS}


@dataclass(frozen=True)
class PluginFailure:
    """An entry point that failed to add an op, its package, and the reason."""

    entry_point: str  # as in the package's metadata: name = module:object
    package: str
    problem: str

    def __str__(self) -> str:
        return f"{self.entry_point} of {self.package}: {self.problem}"


@functools.cache
def _collect_plugins() -> tuple[Op | PluginFailure, ...]:
    """For each entry point, by name: its op, whose name must be new, or the failure, which affects no other."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (looks through all installed packages)

    names = set(_OWN)
    loaded = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        found = _load_plugin(point, names)
        if isinstance(found, Op):
            names.add(found.name)
        loaded.append(found)
    return tuple(loaded)


def _load_plugin(point: EntryPoint, names: set[str]) -> Op | PluginFailure:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
    entry = f"{point.name} = {point.value}"
    try:
        op = point.load()
    except Exception as error:  # importing other packages' code may raise anything
        return PluginFailure(entry, package, f"it cannot be imported: {type(error).__name__}: {error}")
    if not isinstance(op, Op):
        return PluginFailure(entry, package, f"its object is a {type(op).__name__}, not an Op")
    if op.name in names:
        return PluginFailure(entry, package, f"it adds a second op named {op.name}")
    return op


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


def infer_problem_op(problem: object) -> Op:
    """The op of a problem. Raises `InvalidValueError` if it is not a problem."""
    for op in list_ops():
        if isinstance(problem, op.problem_type):
            return op
    names = ", ".join(f"tilewright.{op.name}.Problem" for op in list_ops())
    raise InvalidValueError(f"{problem!r} is not a problem. Create one of {names}")


def parse_kernel(slug: str) -> Kernel:
    """Parse a kernel's slug, the inverse of `Kernel.slug`."""
    require("slug", slug, str)
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
    return infer_op(config).make_kernel(config, archs.load(arch).name)


def fits(config: ConfigBase, problem: object, arch: str) -> list[Violation]:
    """The reasons why a kernel does not support a problem; empty if it does."""
    op = infer_op(config)
    require("the problem", problem, op.problem_type)
    return find_violations(op.fit_rules, config, problem, archs.load(arch))


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
    "gemm_quant",
    "grouped_conv",
    "grouped_gemm",
    "infer_op",
    "kernel_of",
    "list_ops",
    "list_plugin_failures",
    "load_problem",
    "moe_sorting",
    "norm",
    "parse_kernel",
    "suggest",
    "topk",
]
