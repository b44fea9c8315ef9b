"""Built-in kernel sets of an op: preselected sets and named spaces to search, each a kernel-set file in its folder.

Every combination of a preselected set is legal on every GPU that the set lists. A named space lists no GPUs: its
members are the combinations that no rule rejects.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.fields import list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import KernelSet, load_kernel_set
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


@functools.cache
def load_sets(folder: Path) -> Mapping[str, KernelSet]:
    """Load all kernel-set files of a folder: name → set."""
    return MappingProxyType({s.name: s for s in map(load_kernel_set, sorted(folder.glob("*.toml")))})


def find_space(op: Op, name: str, **overrides: object) -> Space:
    """A built-in space of an op, with some fields overridden: `dtype="bf16"`.

    A file must bind every required field, so that the space can be searched as it is. Fields that the space's name
    does not imply, such as types and layout, are intended to be overridden.
    """
    known = op.spaces()
    (space,) = known[choose(f"named space of {op.name}", name, known)].spaces
    return Space(space.op, {**space.declared, **overrides})
