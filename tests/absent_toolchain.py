"""A toolchain whose files do not exist, for tests of keys and commands."""

from __future__ import annotations

from pathlib import Path

from tilewright.base.knobs import GPU_LESS
from tilewright.building.toolchain import Toolchain

TOOLCHAIN = Toolchain(
    kind=GPU_LESS,
    cxx=Path("/nowhere/clang++"),
    compiler="clang version 22.0",
    compiler_digest="c0",
    system_digest="s0",
    objdump=Path("/nowhere/objdump"),
    readelf=Path("/nowhere/readelf"),
    bundler=None,
    rocm_path=Path("/nowhere"),
    bitcode_dir=Path("/nowhere/bitcode"),
    bitcode_digest="b0",
    ck_include=Path("/nowhere/ck"),
    ck_digest="d0",
    hip_version="5.2.21153",
    hip_digest="h0",
)
