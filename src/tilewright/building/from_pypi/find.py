"""Find the toolchain from PyPI in the cache, as components."""

from __future__ import annotations

from tilewright.base.errors import FileFormatError
from tilewright.building.components import Component, check_compiler, check_device_libraries, check_hip_headers
from tilewright.building.from_pypi.layout import BITCODE, COMPILER, HIP
from tilewright.building.from_pypi.manifest import INSTALL, get_toolchain_folder, read_toolchain_manifest


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
    compiler = root / COMPILER
    found = compiler if compiler.is_file() else None
    return (
        Component(name, what, root, str(manifest["version"]), "", INSTALL),
        check_compiler(
            "compiler", "clang++ of the wheel ziglang", found, missing=f"{compiler} does not exist", fix=INSTALL
        ),
        check_hip_headers(root / HIP / "include", INSTALL),
        check_device_libraries((root / BITCODE,), needed, INSTALL),
    )
