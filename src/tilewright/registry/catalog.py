"""The kernels that come with Tilewright: the built-in sets of all ops, and a choice among them for a problem."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright import arch as archs
from tilewright.arch.ck_api import CkApi
from tilewright.arch.spec import Arch
from tilewright.base.errors import UnsupportedError
from tilewright.base.short_text import format_count, format_html_table, format_text_table
from tilewright.dispatch.dispatcher import resolve_arch
from tilewright.ops import find_op, infer_problem_op, list_ops
from tilewright.ops.kernel_set import KernelSet
from tilewright.ops.op import Op
from tilewright.registry.registry import Registry
from tilewright.select.selection import Selection

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

_COLUMNS = ("set", "op", "GPUs", "kernels")


class KernelSets(Mapping[str, KernelSet]):
    """Kernel sets by name, in a fixed order. At a prompt they are shown as a table."""

    def __init__(self, found: Mapping[str, KernelSet]) -> None:
        self._found = dict(found)

    def __getitem__(self, name: str) -> KernelSet:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        table = format_text_table(_COLUMNS, [_list_cells(each) for each in self._found.values()])
        return f"{format_count(len(self), 'kernel set')}\n{table}"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = [_list_cells(each) for each in self._found.values()]
        return format_html_table(format_count(len(self), "kernel set"), _COLUMNS, rows)


def _list_cells(kernel_set: KernelSet) -> tuple[object, ...]:
    counts = kernel_set.count_named()
    return kernel_set.name, kernel_set.op, ", ".join(kernel_set.archs), max(counts.values(), default=None)


def sets(op: str | None = None, gpu: str | None = None) -> KernelSets:
    """The preselected sets, by name: all of them, or those of an op, or for a GPU.

    A set can be passed wherever kernels are, and so can its name: `tw.build("fp16_rcr_essential", "gfx942")`.
    """
    ops = list_ops() if op is None else (find_op(op),)
    arch = None if gpu is None else archs.load(gpu).name
    found: dict[str, KernelSet] = {}
    for each in ops:
        for name, kernel_set in each.sets().items():
            if arch is None or arch in kernel_set.archs:
                found.setdefault(name, kernel_set)
    return KernelSets(found)


def kernels(op: str, gpu: str, **fields: Any) -> Registry:
    """The kernels of an op's preselected sets for a GPU, as a registry in which nothing is built yet.

    Fields and shorthands of the op filter them, as in `Registry.find`: `kernels("gemm", "gfx942", dtype="fp16")`. For
    kernels outside the sets, declare a space.
    """
    found = _list_kernels(find_op(op), archs.load(gpu))
    chosen = found.find(**fields) if fields else found
    if not chosen.kernels:
        asked = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise UnsupportedError(
            f"none of the {format_count(len(found), 'kernel')} in the sets of {op} for {gpu} has {asked}. "
            f"Declare a space of such kernels: tilewright.{op}.space(…)"
        )
    return chosen


def select_kernel(problem: Any, gpu: Device | Arch | str | None = None, *, pad: bool = False) -> Selection:
    """Rank the kernels of the preselected sets for a problem on a GPU: built or not, `best` is the first.

    `gpu` is a GPU's name, its product name or a device; without it, it is that of the current device. With `pad`,
    kernels that support only a padded problem are listed after those that support this one.
    """
    op = infer_problem_op(problem)
    arch = resolve_arch(gpu, ())
    return _list_kernels(op, arch).select(problem, arch, pad=pad, built=False)


def _list_kernels(op: Op, arch: Arch) -> Registry:
    """All kernels of an op's sets for a GPU, with the CK headers in use."""
    return _list_kernels_cached(op.name, arch.name, arch.ck)


@functools.lru_cache(maxsize=32)
def _list_kernels_cached(name: str, gpu: str, _ck: CkApi) -> Registry:
    """Cached, because selecting prepares the kernels: a second problem is then ranked faster."""
    op = find_op(name)
    found = [each for each in op.sets().values() if gpu in each.archs]
    if not found:
        known = sorted({arch for each in op.sets().values() for arch in each.archs}, key=lambda arch: (len(arch), arch))
        raise UnsupportedError(
            f"{name} has no preselected set for {gpu}; it has sets for {', '.join(known) or 'no GPU'}. "
            f"Declare a space of kernels: tilewright.{name}.space(…)"
        )
    return Registry.of(found, gpu)
