"""examples/hip: built with CMake and a hipcc, then tested by CTest and pytest as its README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hip_compile import GPU, ROOT

from hip_compiler import write_hipcc

pytestmark = pytest.mark.compile
EXAMPLE = ROOT / "examples" / "hip"


def _run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(
        list(map(str, words)), env=surroundings, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example and a variant without the barrier in the loop, built in one folder each."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    folder = tmp_path_factory.mktemp("hip")
    write_hipcc(folder / "bin", GPU)
    shutil.copytree(EXAMPLE, folder / "right")
    shutil.copytree(EXAMPLE, folder / "wrong")
    reduce = folder / "wrong" / "reduce.hpp"
    reduce.write_text(re.sub(r"\s+__syncthreads\(\); // without it.*", "", reduce.read_text()))
    emulate = ";".join([sys.executable, "-m", "tilewright", "emulate", "--gpu", GPU, "--mode", "strict", "--"])
    for name in ("right", "wrong"):
        launcher = [f"-DCMAKE_TEST_LAUNCHER={emulate}", f"-DCMAKE_CROSSCOMPILING_EMULATOR={emulate}"]
        words = [
            "cmake",
            "-S",
            folder / name,
            "-B",
            folder / name / "build",
            "-DCMAKE_CXX_COMPILER_FORCED=ON",
            *launcher,
        ]
        made = _run(*words, CXX=str(folder / "bin" / "hipcc"))
        assert made.returncode == 0, made.stdout + made.stderr
        made = _run("cmake", "--build", folder / name / "build")
        assert made.returncode == 0, made.stdout + made.stderr
    return folder


def test_ctest_passes(build: Path) -> None:
    done = _run("ctest", "--test-dir", build / "right" / "build", "--output-on-failure")
    assert "100% tests passed, 0 tests failed out of 3" in done.stdout


def test_ctest_finds_the_missing_barrier(build: Path) -> None:
    done = _run("ctest", "--test-dir", build / "wrong" / "build", "--output-on-failure")
    assert "2 tests failed out of 3" in done.stdout or "3 tests failed out of 3" in done.stdout
    assert "FAIL" in done.stdout


def test_pytest_reads_the_report(build: Path, tmp_path: Path) -> None:
    command = tmp_path / "tilewright"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tilewright "$@"\n')
    command.chmod(0o755)
    done = _run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, EXAMPLE / "check_launches.py",
        PATH=f"{tmp_path}:{os.environ['PATH']}", TEST_REDUCE=str(build / "right" / "build" / "test_reduce"),
    )  # fmt: skip
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_workflow_runs_the_commands_of_the_readme() -> None:
    workflow, readme = ((EXAMPLE / name).read_text() for name in ("workflow.yml", "README.md"))
    for command in ("CXX=hipcc cmake", "cmake --build build", "ctest --test-dir build --output-on-failure"):
        assert command in workflow and command in readme
