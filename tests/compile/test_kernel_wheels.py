"""A wheel of kernels, installed with pip: an empty cache and no compiler, and `tw.matmul` and `tw.attention` run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from built_kernels import built, with_store
from programs.hip_compile import compile_program
from tilewright.base import events, knobs
from tilewright.building import find_built as finding
from tilewright.building.prebuilt import choose
from tilewright.building.toolchain import find_toolchain

pytestmark = pytest.mark.compile

# All three are in CI's list of kernels; the last is not in the wheel.
_GEMM = "b32x32x16-w2x2x1-i16x16x16-compv3-intrawave-default-padm-padn-padk"
GEMM = tw.parse_kernel(f"gemm-gfx942-standard-fp32-fp32-fp32-fp32-rrr-{_GEMM}-4c77e89c98ce")
MISSING = tw.parse_kernel(f"gemm-gfx942-standard-fp32-fp32-fp32-fp32-rcr-{_GEMM}-d2536babdb4c")
ATTENTION = tw.parse_kernel(
    "fmha-gfx942-forward-batch-fp16-qr-b64x64x16x32x16x32-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk-lse-fed4180a2494"
)
KERNELS = (GEMM, ATTENTION)
SLUGS = tuple(kernel.slug for kernel in KERNELS)
# LLVM's readers of code objects, which the emulated device needs. Neither compiles.
READERS = ("llvm-objdump", "llvm-readelf")

PROGRAM = """
import json, sys
import numpy as np
import tilewright as tw
from tilewright import events
from tilewright.base.errors import ToolchainError
from tilewright.building.toolchain import find_toolchain

said, tasks = [], []
def listen(event):
    if isinstance(event, events.Notice): said.append(event.message)
    if isinstance(event, events.Started): tasks.append(event.task)
try:
    find_toolchain()
    absent = False
except ToolchainError:
    absent = True
kernels = [tw.parse_kernel(slug) for slug in sys.argv[1:3]]
rng = np.random.default_rng(1)
a, b = rng.standard_normal((40, 24), np.float32), rng.standard_normal((24, 36), np.float32)
q, k, v = (rng.standard_normal((1, 20, 2, 32)).astype(np.float16) for _ in range(3))
with events.add_listener(listen), tw.options(device="emulated:gfx942", pool=kernels):
    c = tw.matmul(a, b)
    o, _ = tw.attention(q, k, v, return_lse=True)
scores = np.einsum("bqhd,bkhd->bhqk", q.astype(np.float64), k.astype(np.float64)) / np.sqrt(32)
weights = np.exp(scores - scores.max(-1, keepdims=True))
exact = np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(np.float64))
print(json.dumps({
    "absent": absent, "said": said, "tasks": tasks, "used": [k.slug for k in tw.list_used_kernels()],
    "product": float(np.abs(c - a.astype(np.float64) @ b).max()), "attention": float(np.abs(o - exact).max()),
}))
"""


def run(arguments: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=300)


def run_tool(arguments: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run(["-m", "tilewright", *arguments], environment)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that the command writes, from kernels of the tests' store."""
    built(KERNELS)
    folder = tmp_path_factory.mktemp("dist")
    options = ["--wheel", str(folder), "--wheel-name", "tilewright-kernels-gfx942-test", "--wheel-emulator"]
    done = run_tool(["build", *SLUGS, "--json", *options], with_store())
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["compiled"] == 0
    return Path(said["wheel"])


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=120)
    return folder


def without_compiler(site: Path, folder: Path) -> dict[str, str]:
    """The environment of a machine with an empty cache, and no program on PATH but LLVM's readers."""
    programs = folder / "bin"
    programs.mkdir()
    for name in READERS:
        found = shutil.which(f"{name}-22")
        assert found is not None
        (programs / f"{name}-22").symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if not name.startswith((knobs.PREFIX, "ROCM"))}
    return {
        **kept,
        "PATH": str(programs),
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)]),
        knobs.CACHE_DIR.name: str(folder / "cache"),
    }


def test_functions_run_from_a_wheel_without_a_compiler(site: Path, tmp_path: Path) -> None:
    environment = without_compiler(site, tmp_path)
    done = run(["-c", PROGRAM, *SLUGS], environment)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["absent"]
    assert said["used"] == [GEMM.slug, ATTENTION.slug]
    assert said["product"] < 1e-5 and said["attention"] < 2e-3
    assert "build" not in said["tasks"]
    assert not (tmp_path / "cache" / "store" / "costs.jsonl").exists()
    compiler = find_toolchain().compiler
    assert [line for line in said["said"] if "tilewright-kernels-gfx942-test" in line and compiler in line]

    # A kernel that the wheel does not have is the error about the toolchain, with the kernel's name.
    failed = run_tool(["build", MISSING.slug], environment)
    assert failed.returncode == 2
    assert f"1 of 1 kernels are in no installed wheel, first {MISSING.slug}" in failed.stderr


def test_programs_run_from_a_wheel_without_a_compiler(site: Path, tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "programs" / "vector_add.hip"
    program = compile_program(source, tmp_path)
    environment = without_compiler(site, tmp_path)
    for _ in range(2):  # found, then kept
        done = run_tool(["emulate", str(program), "100"], environment)
        assert (done.returncode, done.stdout) == (0, "gfx942\n0 of 100 are wrong\n"), done.stderr
    (kept,) = (tmp_path / "cache" / "emulate").glob("*.json")
    assert json.loads(kept.read_text())["tools"]["compilers"] == {}
    without_wheel = {"PYTHONPATH": os.pathsep.join(sys.path), knobs.CACHE_DIR.name: str(tmp_path / "other")}
    bare = run_tool(["emulate", str(program), "100"], {**environment, **without_wheel})
    assert bare.returncode == 2 and "compiler" in bare.stderr


def test_a_build_with_the_same_toolchain_compiles_nothing(site: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}
    environment[knobs.STORE.name] = str(tmp_path / "store")
    done = run_tool(["build", *SLUGS, "--json"], environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["compiled"] == 0
    listed = run_tool(["cache", "wheels"], environment)
    assert "used: the same compiler, HIP and CK tree" in listed.stdout


def test_another_compiler_serves_only_if_it_is_allowed(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv(knobs.STORE.name, str(tmp_path / "store"))
    own = find_toolchain()
    other = replace(own, compiler="clang version 99.0", compiler_digest="other")
    monkeypatch.setattr(finding, "find_toolchain", lambda: other)
    monkeypatch.setattr(choose, "_reported", set())
    assert finding.find_built(KERNELS) == {}
    monkeypatch.setenv(knobs.PREBUILT.name, "same-source")
    messages: list[str] = []
    with events.add_listener(lambda event: messages.append(getattr(event, "message", ""))):
        found = finding.find_built(KERNELS)
    assert list(found) == list(KERNELS)
    assert [artifact.facts["compiler"] for artifact in found.values()] == [own.compiler] * 2
    (message,) = filter(None, messages)
    assert own.compiler in message
    assert "another toolchain than this machine's (clang version 99.0" in message
    # Another CK tree may compute something else.
    monkeypatch.setattr(finding, "find_toolchain", lambda: replace(other, ck_digest="other"))
    assert finding.find_built(KERNELS) == {}
