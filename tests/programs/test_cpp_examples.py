"""The C++ programs in examples/cpp: built once, with CMake against packs, then each is run on the emulated device."""

from __future__ import annotations

import os
import re
import resource
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hip_compile import GPU, ROOT, Run

from built_kernels import built
from ci_kernels import STORE
from tilewright.base import knobs
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import parse_kernel

pytestmark = pytest.mark.compile

EXAMPLES = ROOT / "examples" / "cpp"
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.cpp"))
MOST_LINES = 60
# With clang 51 to 82 s for 39 programs, the latter while other tests were running.
MOST_CPU_S = 150.0


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of the packs, linked from kernels that CI has built."""
    built(map(parse_kernel, (EXAMPLES / "kernels.txt").read_text().split()))
    folder = tmp_path_factory.mktemp("packs")
    make_packs = runpy.run_path(str(EXAMPLES / "make_packs.py"))["make_packs"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(knobs.STORE.name, str(STORE.root))
        made: list[Path] = make_packs(folder)
    return made


@pytest.fixture(scope="module")
def build(packs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs, made by one build with CMake."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    folder = tmp_path_factory.mktemp("build")
    words = [
        *("cmake", "-S", EXAMPLES, "-B", folder, f"-DCMAKE_CXX_COMPILER={find_toolchain(with_ck=False).cxx}"),
        f"-DCMAKE_PREFIX_PATH={';'.join(map(str, packs))}",
        f"-DTILEWRIGHT={sys.executable};-m;tilewright",
    ]
    for command in (words, ["cmake", "--build", folder]):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        assert "warning:" not in done.stdout + done.stderr
    return folder


def test_all_programs_are_built_in_time(packs: list[Path], request: pytest.FixtureRequest) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    folder = request.getfixturevalue("build")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert all((folder / name).is_file() for name in PROGRAMS)
    assert len(PROGRAMS) >= 20
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < MOST_CPU_S


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, build: Path, packs: list[Path], emulate: Run) -> None:
    done = emulate("--gpu", GPU, "--", build / name, *packs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    assert set(re.findall(r"(\d+) of \d+ elements are wrong", done.stdout)) <= {"0"}
    assert done.stderr == ""


def test_a_wrong_result_is_found(build: Path, packs: list[Path], emulate: Run, tmp_path: Path) -> None:
    """The program fails if the kernel's result is not that of its input."""
    text = (EXAMPLES / "gemm_batched.cpp").read_text()
    wrong = text.replace("tensors.run(*plan);", 'tensors.run(*plan);\n    tensors["a"].values[7] += 1;')
    assert wrong != text
    source, program = tmp_path / "wrong.cpp", tmp_path / "wrong"
    source.write_text(wrong)
    words = [find_toolchain(with_ck=False).cxx, "-std=c++17", "-D__HIP_PLATFORM_AMD__", f"-I{packs[0]}/include"]
    words += [f"-I{EXAMPLES}", source, "-o", program, "-lamdhip64", "-ldl"]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    done = emulate("--gpu", GPU, "--", program, *packs)
    assert done.returncode == 1 and re.search(r"c: [1-9]\d* of 3960 elements are wrong", done.stdout)


def test_ctest_runs_a_program(build: Path) -> None:
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    listed = subprocess.run(["ctest", "--test-dir", str(build), "-N"], capture_output=True, text=True, check=True)
    assert f"Total Tests: {len(PROGRAMS)}" in listed.stdout
    words = ["ctest", "--test-dir", str(build), "-R", "^gemm_run$", "--output-on-failure"]
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False)
    assert "100% tests passed" in done.stdout, done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_short_and_explained(name: str) -> None:
    lines = (EXAMPLES / f"{name}.cpp").read_text().splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 120, "a line is too long"
    assert lines[0].startswith("// ") and lines[0].endswith((".", ":"))


def test_the_readme_lists_every_program() -> None:
    text = (EXAMPLES / "README.md").read_text()
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)\.cpp\) \|", text, re.MULTILINE)
    assert sorted(listed) == [(name, name) for name in PROGRAMS]
