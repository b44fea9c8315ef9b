"""A toolchain whose files do not exist, for tests of keys and commands."""

from __future__ import annotations

from pathlib import Path

from tilewright.base.knobs import GPU_LESS
from tilewright.building.compile_job import CompileJob
from tilewright.building.toolchain import Toolchain
from tilewright.codegen.render import render
from tilewright.ops.kernel import Kernel

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


def make_absent_job(kernel: Kernel) -> CompileJob:
    """The compile job of a kernel with the toolchain above. Its CK headers, which do not exist, are not probed."""
    return CompileJob(render(kernel), TOOLCHAIN)
