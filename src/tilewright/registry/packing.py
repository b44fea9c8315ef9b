"""Packs of a registry's kernels, with the ranking functions that select among them in C and C++."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tilewright import arch as archs
from tilewright.base.errors import PackError, require
from tilewright.base.events import report_task
from tilewright.base.short_text import format_count
from tilewright.base.user_progress import report_progress
from tilewright.building.pack.library import RankOrder, TunedKernel
from tilewright.building.pack.manifest import Pack
from tilewright.building.pack.write import DEFAULT_NAME, write_pack
from tilewright.building.toolchain import find_toolchain
from tilewright.dispatch.dispatcher import read_resource_usage
from tilewright.registry.registry import Registry
from tilewright.select.c_source import render_rank_sources


@report_progress
def pack(registry: Registry, folder: Path | str, *, name: str = DEFAULT_NAME) -> Pack:
    """Link the kernels of a registry into a pack for C and C++ in `folder`, atomically. All must be built.

    An existing pack is replaced; a folder with anything else is rejected. `name` is the CMake name of the pack. It
    ranks kernels as the registry does: with its priorities and its tuned table.
    """
    require("registry", registry, Registry)
    require("folder", folder, str, PathLike)
    missing = [kernel.slug for kernel in registry if kernel not in registry.artifacts]
    if missing:
        failed = len(registry.failures)
        raise PackError(
            f"{format_count(len(missing), 'kernel')} of {len(registry):,} cannot be packed: {failed:,} failed to build "
            f"and {len(missing) - failed:,} are not built yet. The first is {missing[0]}. Call registry.build(), or "
            "pack registry.find(built=True)"
        )
    uses = read_resource_usage(registry.results)
    with report_task("packing"):
        return write_pack(
            list(registry.artifacts.values()),
            find_toolchain(),
            Path(folder),
            name=name,
            rankings=lambda gpu, kernels: render_rank_sources(archs.load(gpu), kernels, uses),
            order=RankOrder(registry.priorities, _list_tuned(registry)),
        )


def _list_tuned(registry: Registry) -> list[TunedKernel]:
    """The entries of the registry's tuned table for its kernels."""
    table = getattr(registry.selector, "tuned", None)
    entries = [] if table is None else list(table)
    return [TunedKernel(each.kernel, each.problem, each.us) for each in entries if each.kernel in registry]
