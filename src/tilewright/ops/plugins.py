"""Ops that other packages add. A package that fails to load is reported and does not affect the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ops.op import Op

# Other packages add an op with an entry point of this group whose object is an `Op`.
ENTRY_POINTS = "tilewright.ops"


@dataclass(frozen=True)
class PluginFailure:
    """An entry point that failed to add an op, its package, and the reason."""

    entry_point: str  # as in the package's metadata: name = module:object
    package: str
    problem: str

    def __str__(self) -> str:
        return f"{self.entry_point} of {self.package}: {self.problem}"


def load_plugins(own: Sequence[Op]) -> Iterator[Op | PluginFailure]:
    """For each entry point, by name: its op, whose name must be new, or the failure."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (looks through all installed packages)

    names = {op.name for op in own}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        found = _load_plugin(point, names)
        if isinstance(found, Op):
            names.add(found.name)
        yield found


def _load_plugin(point: Any, names: set[str]) -> Op | PluginFailure:
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
