"""Wheels of a registry's kernels, which other machines install with pip instead of compiling."""

from __future__ import annotations

from pathlib import Path

from tilewright.base.digest import digest_text
from tilewright.base.errors import InvalidValueError, PackError
from tilewright.base.events import report_task
from tilewright.base.short_text import format_count
from tilewright.base.user_progress import report_progress
from tilewright.building.ck_tree import probe_tree
from tilewright.building.compile_job import make_compile_job
from tilewright.building.prebuilt.kernel_wheel import BuildFacts
from tilewright.building.prebuilt.write_wheel import WheelKernel, check_wheel_name, write_wheel
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.registry.registry import Registry


@report_progress
def write_kernel_wheel(
    registry: Registry, folder: Path | str, *, name: str | None = None, version: str | None = None, shim: bool = False
) -> Path:
    """Write a wheel with the kernels of a registry, all built by this machine's toolchain for one GPU.

    The default of `name` is `tilewright-kernels-` and the GPU, that of `version` is Tilewright's. With `shim`, it also
    has the HIP library of emulated devices, so that these need no compiler either. Returns the wheel's path.
    """
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

    gpu = find_wheel_gpu(registry)
    title, number = name or f"tilewright-kernels-{gpu}", version or __version__
    check_wheel_name(title, number)
    toolchain = find_toolchain()
    with report_task("writing a wheel"):
        kernels = []
        for kernel, artifact in registry.artifacts.items():
            unit = make_compile_job(kernel, toolchain)
            if artifact.key != unit.key:
                raise PackError(
                    f"{kernel.slug} was built by another toolchain ({artifact.facts.get('compiler')}) and cannot be in "
                    "a wheel of this one: set TILEWRIGHT_PREBUILT=exact and build it again"
                )
            kernels.append(WheelKernel(artifact, unit.source_key))
        if shim:
            kernels.append(_build_shim(toolchain))
        return write_wheel(Path(folder), title, number, gpu, _collect_facts(toolchain), kernels)


def find_wheel_gpu(registry: Registry) -> str:
    """Return the GPU of a registry's kernels. Raises if it has several, or kernels that are not built."""
    gpus = sorted({kernel.arch for kernel in registry})
    if len(gpus) != 1:
        listed = ", ".join(gpus) or "none"
        raise InvalidValueError(f"a wheel has kernels for one GPU, and these are for {len(gpus)}: {listed}")
    missing = [kernel.slug for kernel in registry if kernel not in registry.artifacts]
    if missing:
        count = format_count(len(missing), "kernel")
        raise PackError(f"{count} of {len(registry):,} cannot be in a wheel: not built, first {missing[0]}")
    return gpus[0]


def _collect_facts(toolchain: Toolchain) -> BuildFacts:
    api = probe_tree(toolchain.ck_include).api
    return BuildFacts(
        toolchain=toolchain.kind,
        compiler=toolchain.compiler,
        hip=toolchain.hip_version,
        identity=digest_text(toolchain.identity()),
        ck=toolchain.ck_digest,
        generation=api.generation,
        changes=tuple(sorted(api.changes)),
    )


def _build_shim(toolchain: Toolchain) -> WheelKernel:
    from tilewright.emulator.hip_shim.shim_library import (  # noqa: PLC0415  (few wheels have it)
        build_shim,
        compute_shim_source,
    )

    store = Store()
    found = store.get(build_shim(toolchain, store).parent.name)
    if not isinstance(found, Artifact):
        raise PackError(f"the HIP library of emulated devices is no longer in {store.root}: build it again")
    return WheelKernel(found, compute_shim_source())
