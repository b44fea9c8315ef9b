"""Queries of a registry's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tilewright.base.errors import choose
from tilewright.building.store.artifact import Artifact
from tilewright.ops import find_op
from tilewright.ops.fields import list_fields
from tilewright.ops.kernel import Kernel

# Criteria in addition to the fields and shorthands of the op.
_OWN = ("name", "op", "arch", "built")


def find_kernels(
    kernels: Sequence[Kernel], results: Mapping[Kernel, Any], wanted: Mapping[str, Any]
) -> tuple[Kernel, ...]:
    """The kernels that match all criteria; a list of values means any of them.

    A kernel does not match if its op lacks a field. A field that no kernel's op has is an error.
    """
    own = {name: value for name, value in wanted.items() if name in _OWN}
    rest = {name: value for name, value in wanted.items() if name not in _OWN}
    kept = [kernel for kernel in kernels if all(_has_property(kernel, results, *pair) for pair in own.items())]
    ops = dict.fromkeys(kernel.op for kernel in kept)
    known = list(dict.fromkeys(name for op in ops for name in _list_field_names(op)))
    for name in rest:
        if ops:
            choose(f"field of {' and '.join(ops)}", name, (*_OWN, *known))
    return tuple(kernel for kernel in kept if all(_has_field_value(kernel, *pair) for pair in rest.items()))


def _list_field_names(op: str) -> tuple[str, ...]:
    found = find_op(op)
    return (*found.field_names, *found.shorthands)


def _has_property(kernel: Kernel, results: Mapping[Kernel, Any], name: str, value: Any) -> bool:
    if name == "built":
        return isinstance(results.get(kernel), Artifact) is bool(value)
    values = value if isinstance(value, list) else [value]
    if name == "name":
        return any(fnmatchcase(kernel.slug, str(pattern)) for pattern in values)
    return getattr(kernel, name) in values


def _has_field_value(kernel: Kernel, name: str, value: Any) -> bool:
    op = find_op(kernel.op)
    values = value if isinstance(value, list) else [value]
    if name in op.shorthands:
        shorthand = op.shorthands[name]
        mine = tuple(getattr(kernel.config, field) for field in shorthand.fields)
        return any(shorthand.row(one) == mine for one in values)
    if name not in op.field_names:
        return False
    kind = list_fields(op.config_type)[name].kind
    return any(kind.read(name, one) == getattr(kernel.config, name) for one in values)
