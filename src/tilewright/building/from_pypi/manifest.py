"""The folder of the toolchain from PyPI: its files and its manifest, which exists once the installation is complete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.base.document_values import expect_table
from tilewright.base.documents import convert_read_errors, read_json
from tilewright.building.from_pypi.wheels import VERSION

INSTALL = "tilewright toolchain install"
MANIFEST = "manifest.json"
COMPILER = "bin/clang++"
HIP = "hip"  # laid out like a ROCm installation
BITCODE = f"{HIP}/amdgcn/bitcode"


def get_toolchain_folder() -> Path:
    """Return the folder of the installed toolchain, which may not exist."""
    return knobs.cache_dir() / "toolchain" / VERSION


def read_toolchain_manifest(home: Path) -> Mapping[str, Any] | None:
    """Read the manifest of an installed toolchain: its wheels and their file counts. None if it is not installed."""
    path = home / MANIFEST
    if not path.exists():
        return None
    with convert_read_errors(path, f"delete the folder and run `{INSTALL}`"):
        manifest = expect_table("a manifest", read_json(path))
        expect_table("wheels", manifest["wheels"])
    return manifest
