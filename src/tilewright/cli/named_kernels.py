"""Kernels named on a command line: by kernel name, by set, or as an op with field values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.cli.selection import DECLARED, changed_set, named_set, set_of_space
from tilewright.cli.settings import declared_space, named_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilewright.ops.kernel import Kernel
    from tilewright.ops.op import Op


def kernels_named(subjects: Sequence[str], settings: Sequence[str], arch: str, limit: int | None) -> list[Kernel]:
    """The kernels for a GPU, each once, in the order of the arguments. An error if there are none."""
    chosen: dict[Kernel, None] = {}
    for kernel in _all(subjects, settings, arch):
        if limit is not None and len(chosen) == limit:
            break
        chosen[kernel] = None
    if not chosen:
        raise InvalidValueError(f"none of these kernels is legal on {arch}: {', '.join(subjects)}")
    return list(chosen)


def _all(subjects: Sequence[str], settings: Sequence[str], arch: str) -> Iterator[Kernel]:
    for subject in subjects:
        yield from _members(subject, settings, arch)


def _members(subject: str, settings: Sequence[str], arch: str) -> Iterable[Kernel]:
    """The kernels that one argument names."""
    from tilewright.ops import all_ops, op_named

    ops = {op.name: op for op in all_ops()}
    if subject in ops:
        return set_of_space(ops[subject], DECLARED, declared_space(ops[subject], settings)).kernels(arch)
    if subject.partition("-")[0] in ops:
        kernel = named_kernel(subject, None, settings)
        if kernel.arch != arch:
            raise InvalidValueError(f"{kernel.slug} is a kernel for {kernel.arch}, but the device is a {arch}")
        return [kernel]
    op = _op_of_set(subject, list(ops.values()))
    return changed_set(op_named(op.name), named_set(op, subject), settings).kernels(arch)


def _op_of_set(name: str, ops: Sequence[Op]) -> Op:
    """The op that has a set of this name, or the op of a set file."""
    from tilewright.ops import op_named, plugin_note
    from tilewright.ops.kernel_set import load_kernel_set

    if name.endswith(".toml") or "/" in name:
        return op_named(load_kernel_set(name).op)
    having = [op for op in ops if name in {**op.sets(), **op.spaces()}]
    if not having:
        known = [*(op.name for op in ops), *(n for op in ops for n in {**op.sets(), **op.spaces()})]
        raise UnknownValueError("op, set or kernel", name, known, plugin_note())
    return having[0]
