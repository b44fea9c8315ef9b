"""`generate`, `wrap`, then a real build with each build system; the library is opened and asked."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from built_kernels import in_tier_ci
from tests.proof.host_library import TW_OK, TW_UNSUPPORTED, call_supports, call_text
from tilewright import arch as archs
from tilewright.base import knobs
from tilewright.dispatch.plan import get_execution
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

# Twelve GEMM kernels with small blocks and one loop form: about 20 s of CPU time each.
GEMM_SET = """
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
# Two kernels that only convert a tensor: about 8 s of CPU time each.
FMHA_SET = """
op = "fmha"
name = "small"
doc = "Two kernels that compile quickly."
archs = ["gfx942"]

[[space]]
family = "convert_dq"
mode = "batch"
pipeline = "convert_dq"
dtype = ["fp16", "bf16"]
block = "64x64x32x32"
"""
SETS = {"gemm": (GEMM_SET, 12), "fmha": (FMHA_SET, 2)}
CASES = [
    ("ninja", "fmha"),
    *(pytest.param(system, "gemm", marks=pytest.mark.deep) for system in ("cmake", "ninja", "make")),
]
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


def build(system: str, folder: Path, *options: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = ""
    for command in BUILDS[system]:
        program = shutil.which(command[0], path=path)
        if program is None:
            pytest.skip(f"{command[0]} is not installed")
        jobs = () if "-B" in command else (f"-j{knobs.job_count()}",)
        words = [program, *command[1:], *jobs, *options]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        printed += done.stdout + done.stderr
        assert done.returncode == 0, printed[-4000:]
    return printed


def products_of(system: str, folder: Path) -> Path:
    return folder / "build" if system == "cmake" else folder


def stamps(folder: Path) -> dict[str, int]:
    files = [*folder.glob("kernel_objects/*o"), *folder.glob("lib*.so")]
    return {path.name: path.stat().st_mtime_ns for path in files}


def make_problems(kernel: Kernel) -> tuple[object, object]:
    """Make a problem that a kernel of one of the sets supports, and one that it does not support."""
    config: Any = kernel.config
    if kernel.op == "gemm":
        right = tw.gemm.Problem(m=128, n=128, k=128, dtype=config.dtype_a, layout=config.layout)
        return right, dataclasses.replace(right, n=100)
    attention: Any = get_execution(kernel.op).trials(config, archs.load(kernel.arch))[0]
    return attention, dataclasses.replace(attention, hdim_q=attention.hdim_q + 1)


@pytest.mark.parametrize(("system", "op"), CASES)
def test_from_declaration_to_library(system: str, op: str, tmp_path: Path) -> None:
    kernels, out = tmp_path / "kernels", tmp_path / "wrappers"
    text, count = SETS[op]
    (tmp_path / "small.toml").write_text(text)
    selection = ["--gpu-target", "gfx942", "--kernel-set", tmp_path / "small.toml"]
    tilewright("generate", op, "--output-dir", kernels, *selection)
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
        for problem, status in zip(make_problems(kernel), (TW_OK, TW_UNSUPPORTED), strict=True):
            arguments = get_execution(op).arguments(problem)
            assert call_supports(library, kernel, arguments) == status
    before = stamps(products)
    tilewright(*wrap)
    build(system, out)
    assert stamps(products) == before
    (kernels / f"{slugs[0]}.hpp").touch()
    if in_tier_ci():  # test_wrap_toolchains.py builds small sources again
        listed = build(system, out, "-n")
        assert f"{slugs[0]} (device code for gfx942)" in listed and slugs[1] not in listed
        return
    build(system, out)
    after = stamps(products)
    touched = {f"{slugs[0]}{suffix}" for suffix in (".gfx942.co", ".host.o", ".fatbin.o")}
    assert {name for name in after if after[name] != before[name]} == {*touched, "libtilewright_kernels.so"}
