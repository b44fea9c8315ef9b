"""`tilewright_add_pack`: a C++ program builds its kernels, of two ops, as a part of its own build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_pack_example import KERNELS as GEMMS

from built_kernels import built, with_store
from tilewright.ops import parse_kernel

pytestmark = pytest.mark.compile

GEMM = GEMMS[0]
CONV = parse_kernel(
    "grouped_conv-gfx942-backward_data-nd1-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x16-mem-intrawave-cshuffle-v4x8x8-"
    "f31d988f58c6"
)
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(mine LANGUAGES CXX)
find_package(Tilewright REQUIRED)
tilewright_add_pack(my_kernels KERNELS mine.toml {kernel} GPUS gfx942 JOBS 1)
add_executable(app main.cpp)
target_compile_features(app PRIVATE cxx_std_17)
target_compile_definitions(app PRIVATE FOLDER="${{my_kernels_FOLDER}}")
target_link_libraries(app PRIVATE my_kernels::headers)
"""
SET = """
op = "gemm"
name = "mine"
doc = "one kernel"
archs = ["gfx942"]
[[space]]
variant = "standard"
dtype = "fp16"
layout = "rcr"
block = "64x64x32"
waves = "2x2x1"
mma = "32x32x8"
pipeline = "compv3"
scheduler = "intrawave"
epilogue = "default"
"""
PROGRAM = """
#include <tilewright/gemm.hpp>
#include <tilewright/grouped_conv.hpp>
#include <iostream>
int main()
{
    const auto pack = tilewright::Pack::open(FOLDER, "gfx942");
    std::cout << pack.plan(tilewright::gemm::Problem().m(128).n(64).k(64).dtype("fp16").layout("rcr"))->text();
    std::cout << pack.plan(tilewright::grouped_conv::Problem().direction("backward_data").n(1).c(16).k(16)
                               .input_size(32).filter_size(3).pad(1).dtype("fp16"))->text();
}
"""


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=with_store())


def test_a_program_builds_its_pack_from_an_empty_folder(tmp_path: Path) -> None:
    built([GEMM, CONV])
    (tmp_path / "mine.toml").write_text(SET)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(kernel=CONV.slug))
    (tmp_path / "main.cpp").write_text(PROGRAM)
    script = tmp_path / "tilewright"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tilewright "$@"\n')
    script.chmod(0o755)
    folder = run(script, "cmake").stdout.strip()
    options = (f"-DTilewright_ROOT={folder}", f"-DTILEWRIGHT_EXECUTABLE={script}")
    configured = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", *options)
    assert configured.returncode == 0, configured.stderr
    made = run("cmake", "--build", tmp_path / "build")
    assert made.returncode == 0, made.stdout + made.stderr
    done = run(tmp_path / "build" / "app")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1. {GEMM.slug}, workspace 0 bytes\n1. {CONV.slug}, workspace 0 bytes\n"
    # Nothing has changed, so nothing is written again.
    assert "Building the pack" not in run("cmake", "--build", tmp_path / "build").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mine KERNELS x.toml", "tilewright_add_pack(mine): GPUS is missing."),
        ("mine MANY 3 KERNELS x.toml GPUS gfx942", "unknown words MANY;3"),
    ],
)
def test_wrong_words_are_named(words: str, said: str, tmp_path: Path) -> None:
    folder = run(sys.executable, "-m", "tilewright", "cmake").stdout.strip()
    text = "cmake_minimum_required(VERSION 3.16)\nproject(x LANGUAGES NONE)\nfind_package(Tilewright REQUIRED)\n"
    (tmp_path / "CMakeLists.txt").write_text(f"{text}tilewright_add_pack({words})\n")
    options = (f"-DTilewright_ROOT={folder}", "-DTILEWRIGHT_EXECUTABLE=/bin/true")
    done = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", *options)

    assert done.returncode != 0
    assert said in " ".join(done.stderr.split())
