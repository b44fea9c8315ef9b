"""`generate`, `wrap`, then a real build with each build system; the library is opened and asked."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.proof.host_library import TW_OK, TW_UNSUPPORTED, call_supports, call_text
from tilewright.base import knobs
from tilewright.ops import parse_kernel
from tilewright.ops.gemm.call import CALL

pytestmark = pytest.mark.compile

# Small blocks, one loop form after another, no shuffling through LDS: about 15 s of CPU time each.
SET = """
op = "gemm"
name = "small"
doc = "Twelve kernels that compile quickly."
archs = ["gfx942"]

[[space]]
variant = "standard"
dtype = ["fp16", "bf16"]
layout = ["rcr", "rrr", "crr"]
block = "64x64x32"
waves = "2x2x1"
mma = ["16x16x16", "32x32x8"]
pipeline = "compv3"
scheduler = "intrawave"
epilogue = "default"
"""
# Of all systems a dozen kernels; CI has time for two, and for one system.
CASES = [("ninja", 2), *(pytest.param(system, 12, marks=pytest.mark.deep) for system in ("cmake", "ninja", "make"))]
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"

BUILDS = {
    "cmake": [["cmake", "-B", "build"], ["cmake", "--build", "build"]],
    "ninja": [["ninja"]],
    "make": [["make"]],
}


def tilewright(*args: object) -> None:
    command = [sys.executable, "-m", "tilewright", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build(system: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = ""
    for command in BUILDS[system]:
        program = shutil.which(command[0], path=path)
        if program is None:
            pytest.skip(f"{command[0]} is not installed")
        jobs = () if "-B" in command else (f"-j{knobs.job_count()}",)
        words = [program, *command[1:], *jobs]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        printed += done.stdout + done.stderr
        assert done.returncode == 0, printed[-4000:]
    return printed


def products_of(system: str, folder: Path) -> Path:
    return folder / "build" if system == "cmake" else folder


def stamps(folder: Path) -> dict[str, int]:
    files = [*folder.glob("kernel_objects/*o"), *folder.glob("lib*.so")]
    return {path.name: path.stat().st_mtime_ns for path in files}


@pytest.mark.parametrize(("system", "count"), CASES)
def test_from_declaration_to_library(system: str, count: int, tmp_path: Path) -> None:
    kernels, out = tmp_path / "kernels", tmp_path / "wrappers"
    (tmp_path / "small.toml").write_text(SET)
    selection = ["--gpu-target", "gfx942", "--kernel-set", tmp_path / "small.toml", "--limit", count]
    tilewright("generate", "gemm", "--output-dir", kernels, *selection)
    option = "--generate-makefile" if system == "make" else f"--generate-{system}"
    wrap = ["wrap", "--kernel-dir", kernels, "--output-dir", out, option]
    tilewright(*wrap)
    printed = build(system, out)
    products = products_of(system, out)
    library = ctypes.CDLL(str(products / "libtilewright_kernels.so"))
    assert (products / "libtilewright_kernels.so").read_bytes().count(MAGIC) == count
    slugs = [entry["slug"] for entry in json.loads((kernels / "manifest.json").read_text())["kernels"]]
    assert len(slugs) == count
    for slug in slugs:
        assert f"/{count}] {slug} (device code for gfx942)" in printed
        kernel = parse_kernel(slug)
        assert call_text(library, kernel, "name") == slug
        config: Any = kernel.config
        for n, status in ((128, TW_OK), (100, TW_UNSUPPORTED)):
            problem = tw.gemm.Problem(m=128, n=n, k=128, dtype=config.dtype_a, layout=config.layout)
            assert call_supports(library, kernel, CALL.make_arguments(problem)) == status
    before = stamps(products)
    tilewright(*wrap)
    build(system, out)
    assert stamps(products) == before
    (kernels / f"{slugs[0]}.hpp").touch()
    build(system, out)
    after = stamps(products)
    touched = {f"{slugs[0]}{suffix}" for suffix in (".gfx942.co", ".host.o", ".fatbin.o")}
    assert {name for name in after if after[name] != before[name]} == {*touched, "libtilewright_kernels.so"}
