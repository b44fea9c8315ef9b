"""All kinds of attention kernels, one file each, and the computations that take several kernels."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from tilewright.ops.fmha.kind import AttentionKind, Computation
from tilewright.ops.kind import index_kinds


def _load_computations() -> list[Computation]:
    """Return the computations of all modules in this folder, in the order of their numbers."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    found = {id(each): each for module in modules for each in vars(module).values() if isinstance(each, Computation)}
    return sorted(found.values(), key=lambda each: each.number)


COMPUTATIONS: Mapping[str, Computation] = index_kinds(_load_computations())
KINDS: tuple[AttentionKind, ...] = tuple(each for each in COMPUTATIONS.values() if isinstance(each, AttentionKind))
PIPELINES = tuple(dict.fromkeys(name for kind in KINDS for name in kind.pipelines))
