"""Resolves spaces, sets, configs and kernels to a list of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilewright import arch as archs
from tilewright.base.errors import IllegalConfigError, InvalidValueError
from tilewright.ops import kernel_of
from tilewright.ops.fields import ConfigBase
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import KernelSet
from tilewright.ops.space import Space

Kernels = Space | KernelSet | Kernel | ConfigBase | Iterable["Kernel | ConfigBase | Space | KernelSet"]


def resolve_kernels(named: Kernels, arch: str | Sequence[str] | None) -> tuple[Kernel, ...]:
    """The kernels of spaces, sets and configs on each GPU, without duplicates. Kernels already have a GPU."""
    gpus = () if arch is None else (arch,) if isinstance(arch, str) else tuple(arch)
    for name in gpus:
        archs.load(name)
    found = tuple(dict.fromkeys(_iterate_kernels(named, gpus)))
    if not found:
        raise InvalidValueError(
            "there are no kernels: the list is empty. Pass at least one kernel, config, space or set"
        )
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
