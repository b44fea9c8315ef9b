"""Folders of kernel sources, and of wrappers and build files that compile them into one library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from tilewright import arch as archs
from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError, require
from tilewright.base.user_progress import report_progress
from tilewright.building.recipe import make_recipe
from tilewright.codegen.build_files import find_build_system
from tilewright.codegen.folder import GenerationResult, generate_sources
from tilewright.codegen.wrapper_folder import WrapResult, wrap_kernels
from tilewright.codegen.wrappers import choose_gpus, find_wrappers, read_kernel_folder
from tilewright.ops.space import MOST_KERNELS
from tilewright.registry.members import Kernels, resolve_kernels

DEFAULT_LIBRARY = "tilewright_kernels"
_LIBRARY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@report_progress
def generate(
    kernels: Kernels,
    folder: Path | str,
    arch: str | Sequence[str] | None = None,
    jobs: int | None = None,
    *,
    limit: int | None = MOST_KERNELS,
) -> GenerationResult:
    """Write the sources of kernels, spaces, sets, configs or names of these into a folder, and a manifest.

    Only files that change are written. Kernels of an earlier call that are not among these are removed. More kernels
    than `limit` are an error; None removes the limit.
    """
    listed = resolve_kernels(kernels, arch, limit)
    return generate_sources(listed, Path(folder), jobs=jobs or knobs.job_count())


@report_progress
def wrap(
    kernel_dir: Path | str,
    folder: Path | str,
    systems: Sequence[str] = ("ninja",),
    arch: str | Sequence[str] = (),
    *,
    pattern: str = "*.hpp",
    library: str = DEFAULT_LIBRARY,
    toolchain: str | None = None,
    flags: Sequence[str] = (),
    jobs: int | None = None,
) -> WrapResult:
    """Write a source file per kernel header, and build files of `systems` (cmake, ninja, make) for one library.

    The GPU is the one in the manifest of the kernels; without one, or with several, give `arch`. `flags` are further
    compiler flags. `toolchain` is rocm, pypi or gpu-less; None is the current one.
    """
    for what, value in (("kernel_dir", kernel_dir), ("folder", folder)):
        require(what, value, str, PathLike)
    require("library", library, str)
    require("pattern", pattern, str)
    if not _LIBRARY.fullmatch(library):
        raise InvalidValueError(f"a library's name consists of letters, digits, '_' and '-', got {library!r}")
    source = Path(kernel_dir)
    known = read_kernel_folder(source)
    wrappers = find_wrappers(source, pattern, known)
    asked = [archs.load(name).name for name in ((arch,) if isinstance(arch, str) else arch)]
    gpus = [archs.load(name) for name in choose_gpus(wrappers, known, asked)]
    return wrap_kernels(
        wrappers,
        source,
        Path(folder),
        make_recipe(toolchain, gpus, flags),
        library=library,
        systems=[find_build_system(name) for name in systems],
        jobs=jobs or knobs.job_count(),
    )
