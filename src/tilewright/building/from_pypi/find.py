"""Find the toolchain from PyPI in the cache, as components."""

from __future__ import annotations

from pathlib import Path

from tilewright.base import knobs
from tilewright.base.errors import FileFormatError
from tilewright.building.components import Component, check_compiler, check_device_libraries, check_hip_headers
from tilewright.building.from_pypi.manifest import (
    BITCODE,
    COMPILER,
    HIP,
    INSTALL,
    get_toolchain_folder,
    read_toolchain_manifest,
)


def find_pypi_parts(needed: tuple[str, ...]) -> tuple[Component, ...]:
    """Find the components of the installed toolchain; a single unusable one if it is not installed.

    `needed` are the device libraries that every kernel is linked with.
    """
    root = get_toolchain_folder()
    name, what = "wheels", "a toolchain from PyPI"
    try:
        manifest = read_toolchain_manifest(root)
    except FileFormatError as error:
        return (Component(name, what, None, "", str(error), INSTALL),)
    if manifest is None:
        return (Component(name, what, None, "", f"{root} does not exist", INSTALL),)
    return (
        Component(name, what, root, str(manifest["version"]), "", INSTALL),
        _check_compiler(root / COMPILER),
        check_hip_headers(root / HIP / "include", INSTALL),
        check_device_libraries((root / BITCODE,), needed, INSTALL),
    )


def _check_compiler(compiler: Path) -> Component:
    name, what = "compiler", "clang++ of the wheel ziglang"
    if knobs.CXX.get() is not None:
        problem = f"{knobs.CXX.name} names another compiler, and the parts of this toolchain belong together"
        return Component(name, what, None, "", problem, f"unset {knobs.CXX.name}")
    found = compiler if compiler.is_file() else None
    return check_compiler(name, what, found, missing=f"{compiler} does not exist", fix=INSTALL)
