"""Kernel sets that list their kernels one by one."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fields import list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import KernelSet
from tilewright.ops.op import Op
from tilewright.ops.space import Space


def make_explicit_set(op: Op, arch: str, name: str, doc: str, kernels: Sequence[Kernel]) -> KernelSet:
    """A set of exactly these kernels in this order, with a space of one combination for each.

    Such a file can be shortened: its first tables are its first kernels.
    """
    for kernel in kernels:
        if (kernel.op, kernel.arch) != (op.name, arch):
            raise InvalidValueError(f"a set of {op.name} kernels for {arch} cannot contain {kernel.slug}")
    return KernelSet(name, doc, op.name, (arch,), tuple(_make_space(op, kernel) for kernel in kernels))


def _make_space(op: Op, kernel: Kernel) -> Space:
    """The space of one kernel. Fields with their default value are left out: an undeclared field has its default."""
    values = {name: getattr(kernel.config, name) for name in op.field_names}
    fields = list_fields(op.config_type)
    return Space(op, {n: [v] for n, v in values.items() if fields[n].required or v != fields[n].default})
