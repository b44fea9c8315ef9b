"""Resolve spaces, sets, configs and kernels to a list of kernels; find members by name; open their libraries."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tilewright import arch as archs
from tilewright.base.errors import IllegalConfigError, InvalidValueError, choose
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact
from tilewright.ops import find_op, kernel_of
from tilewright.ops.fields import ConfigBase, list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import KernelSet
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.runtime.forwarded_hip import ForwardedLibrary


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


def load_library(artifact: Artifact, device: Device) -> ctypes.CDLL | ForwardedLibrary:
    """Load a kernel's shared library on top of the device's HIP library. Its bytes are checked just before."""
    return device.library(artifact.verify_file(LIBRARY))


Kernels = Space | KernelSet | Kernel | ConfigBase | Iterable["Kernel | ConfigBase | Space | KernelSet"]


def resolve_kernels(named: Kernels, arch: str | Sequence[str] | None) -> tuple[Kernel, ...]:
    """The kernels of spaces, sets and configs on each GPU, without duplicates. Kernels already have a GPU."""
    gpus = () if arch is None else (arch,) if isinstance(arch, str) else tuple(arch)
    for name in gpus:
        archs.load(name)
    found = tuple(dict.fromkeys(_iterate_kernels(named, gpus)))
    if not found:
        raise InvalidValueError("the list of kernels is empty. Pass at least one kernel, config, space or set")
    return found


def _iterate_kernels(named: Kernels, gpus: Sequence[str]) -> Iterator[Kernel]:
    if isinstance(named, Kernel):
        if gpus and named.arch not in gpus:
            raise InvalidValueError(f"{named.slug} is a kernel for {named.arch}, but arch is {', '.join(gpus)}")
        yield named
    elif isinstance(named, Space | KernelSet | ConfigBase):
        if not gpus:
            raise InvalidValueError(
                f"a {type(named).__name__} has no GPU: pass arch=, one or more of {', '.join(archs.arch_names())}"
            )
        for gpu in gpus:
            if isinstance(named, ConfigBase):
                yield kernel_of(named, gpu)
            else:
                yield from _iterate_legal(named, gpu)
    elif isinstance(named, str) or not isinstance(named, Iterable):
        raise InvalidValueError(f"{named!r} is not a kernel, config, space or kernel set, nor a list of them")
    else:
        for member in named:
            yield from _iterate_kernels(member, gpus)


def _iterate_legal(named: Space | KernelSet, gpu: str) -> Iterator[Kernel]:
    """The legal kernels of a space or set on a GPU; none is an error that lists the rules that rejected them."""
    count = 0
    for kernel in named.iter(gpu) if isinstance(named, Space) else named.kernels(gpu):
        count += 1
        yield kernel
    if count == 0:
        what = "this space" if isinstance(named, Space) else f"the set {named.name}"
        raise IllegalConfigError(
            f"{what} has no legal kernel on {gpu}, so there is nothing to build:\n{named.report(gpu)}\n"
            "`tilewright rules CODE` explains a rule. Declare more values, or remove this GPU."
        )
