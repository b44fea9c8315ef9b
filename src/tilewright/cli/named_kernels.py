"""Kernels named on a command line: by kernel name, by set, or as an op with field values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.cli.kernel_choice import DECLARED, apply_settings, find_set, make_set
from tilewright.cli.settings import make_declared_space, resolve_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilewright.ops.kernel import Kernel
    from tilewright.ops.op import Op


def find_named_kernels(subjects: Sequence[str], settings: Sequence[str], arch: str, limit: int | None) -> list[Kernel]:
    """The kernels for a GPU, each once, in the order of the arguments. An error if there are none."""
    chosen: dict[Kernel, None] = {}
    for kernel in _iterate_kernels(subjects, settings, arch):
        if limit is not None and len(chosen) == limit:
            break
        chosen[kernel] = None
    if not chosen:
        raise InvalidValueError(f"none of these kernels is legal on {arch}: {', '.join(subjects)}")
    return list(chosen)


def _iterate_kernels(subjects: Sequence[str], settings: Sequence[str], arch: str) -> Iterator[Kernel]:
    for subject in subjects:
        yield from _find_members(subject, settings, arch)


def _find_members(subject: str, settings: Sequence[str], arch: str) -> Iterable[Kernel]:
    """The kernels that one argument names."""
    from tilewright.ops import find_op, list_ops

    ops = {op.name: op for op in list_ops()}
    if subject in ops:
        return make_set(ops[subject], DECLARED, make_declared_space(ops[subject], settings)).kernels(arch)
    if subject.partition("-")[0] in ops:
        kernel = resolve_kernel(subject, None, settings)
        if kernel.arch != arch:
            raise InvalidValueError(f"{kernel.slug} is a kernel for {kernel.arch}, but the device is a {arch}")
        return [kernel]
    op = _find_op(subject, list(ops.values()))
    return apply_settings(find_op(op.name), find_set(op, subject), settings).kernels(arch)


def _find_op(name: str, ops: Sequence[Op]) -> Op:
    """The op that has a set of this name, or the op of a set file."""
    from tilewright.ops import describe_plugin_failures, find_op
    from tilewright.ops.kernel_set import load_kernel_set

    if name.endswith(".toml") or "/" in name:
        return find_op(load_kernel_set(name).op)
    having = [op for op in ops if name in {**op.sets(), **op.spaces()}]
    if not having:
        known = [*(op.name for op in ops), *(n for op in ops for n in {**op.sets(), **op.spaces()})]
        raise UnknownValueError("op, set or kernel", name, known, describe_plugin_failures())
    return having[0]
