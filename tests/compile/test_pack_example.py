"""The C++ example on a pack of real kernels: found by CMake, asked on a machine without a GPU, moved, asked again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tilewright as tw
from built_kernels import built
from tilewright.building.pack.manifest import Pack, read_pack
from tilewright.building.pack.write import write_pack
from tilewright.building.toolchain import find_toolchain
from tilewright.dispatch.dispatcher import read_resource_usage
from tilewright.ops.kernel import Kernel
from tilewright.select.c_source import render_rank_sources

pytestmark = pytest.mark.compile

EXAMPLE = Path(__file__).parents[2] / "examples" / "pack"
# Small blocks and no shuffling through LDS: about 20 s of CPU time each.
BASE = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": (64, 64, 32),
    "waves": (2, 2, 1),
    "mma": (32, 32, 8),
    "pipeline": "compv3",
    "scheduler": "intrawave",
    "epilogue": "default",
}
PADDED = {"dtype": "bf16", "layout": "rrr", "mma": (16, 16, 16), "pad_n": True}


def kernel(arch: str, **changes: object) -> Kernel:
    return tw.kernel_of(tw.gemm.config(**{**BASE, **changes}), arch)


KERNELS = (kernel("gfx942"), kernel("gfx942", **PADDED), kernel("gfx90a"))
EXPECTED = f"""\
tilewright_pack {tw.__version__} for gfx942: 2 kernels
  {KERNELS[1].slug}
  {KERNELS[0].slug}
fp16 256x256x128:
  the first of 1 should take MICROSECONDS us and needs 0 bytes of memory
  1. {KERNELS[0].slug}, workspace 0 bytes
fp16 256x250x128:
  not {KERNELS[1].slug}: S501 other-problem: the kernel has dtype_a bf16, the problem fp16
  not {KERNELS[0].slug}: S503 n-not-tiled: N = 250 is not a multiple of block n = 64
fp32 256x256x128:
  not {KERNELS[1].slug}: S501 other-problem: the kernel has dtype_a bf16, the problem fp32
  not {KERNELS[0].slug}: S501 other-problem: the kernel has dtype_a fp16, the problem fp32
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    toolchain = find_toolchain()
    artifacts = built(KERNELS)
    uses = read_resource_usage(dict(zip(KERNELS, artifacts, strict=True)))
    folder = tmp_path_factory.mktemp("packs") / "first"
    return write_pack(
        artifacts, toolchain, folder, rankings=lambda gpu, kernels: render_rank_sources(tw.load(gpu), kernels, uses)
    )


@pytest.fixture(scope="module")
def expected() -> str:
    """What the example prints: the time is the one that Python estimates of the built kernel."""
    results = dict(zip(KERNELS, built(KERNELS), strict=True))
    problem = tw.gemm.Problem(m=256, n=256, k=128, dtype="fp16", layout="rcr")
    best = tw.Registry(KERNELS, results).select(problem, "gfx942").best
    assert best.kernel == KERNELS[0]
    return EXPECTED.replace("MICROSECONDS", f"{best.us:.6g}")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def configure(pack: Path, build: Path, *options: str, source: Path = EXAMPLE) -> subprocess.CompletedProcess[str]:
    strict = ("-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror", "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror")
    return run("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={pack}", *strict, *options)


def build_example(pack: Path, build: Path, *options: str, targets: Sequence[str] = ()) -> None:
    configured = configure(pack, build, *options)
    assert configured.returncode == 0, configured.stderr
    made = run("cmake", "--build", build, *(("--target", *targets) if targets else ()))
    assert made.returncode == 0, made.stdout + made.stderr


def test_the_example_finds_lists_asks_and_survives_a_move(pack: Pack, expected: str, tmp_path: Path) -> None:
    build_example(pack.folder, tmp_path / "build", "-DGPU=gfx942")
    done = run(tmp_path / "build" / "choose", pack.folder, "gfx942")
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    listed = run(tmp_path / "build" / "list_kernels")
    assert (listed.returncode, listed.stdout.splitlines()[0]) == (0, "tilewright_pack for gfx942: 2 kernels")
    unknown = run(tmp_path / "build" / "choose", pack.folder, "gfx950")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "0 libraries for 'gfx950'" in unknown.stderr

    moved = tmp_path / "another place" / "moved"
    moved.parent.mkdir()
    pack.folder.rename(moved)
    try:
        assert read_pack(moved).kernels == pack.kernels
        assert run(tmp_path / "build" / "choose", moved, "gfx942").stdout == expected
        build_example(moved, tmp_path / "again", targets=("choose", "list_kernels"))
        assert run(tmp_path / "again" / "choose", moved, "gfx942").stdout == expected
        # The first GPU of the pack is the default of the C program.
        assert KERNELS[2].slug in run(tmp_path / "again" / "list_kernels").stdout
    finally:
        moved.rename(pack.folder)


def test_the_example_runs_a_kernel_on_the_emulated_device(pack: Pack, tmp_path: Path) -> None:
    command = f"-DTILEWRIGHT={sys.executable};-m;tilewright"
    build_example(pack.folder, tmp_path / "build", "-DGPU=gfx942", command, targets=("run",))
    surroundings = {**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1] / "src")}
    words = ["ctest", "--test-dir", str(tmp_path / "build"), "--verbose"]
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"runs {KERNELS[0].slug}" in done.stdout and "0 of 8192 elements are wrong" in done.stdout


def test_the_packed_kernels_say_what_python_says(pack: Pack, tmp_path: Path) -> None:
    source = tmp_path / "sizes.cpp"
    source.write_text(SIZES)
    words = ("-std=c++17", f"-I{pack.folder}/include", source, "-o", tmp_path / "sizes", "-ldl")
    assert run("g++", *words).returncode == 0
    done = run(tmp_path / "sizes", pack.folder)
    assert done.returncode == 0, done.stderr
    answers = [line.split() for line in done.stdout.splitlines()]
    seen = set()
    for slug, m, n, k, answer in answers:
        (asked,) = (kernel for kernel in KERNELS if kernel.slug == slug)
        config = asked.config
        problem = tw.gemm.Problem(m=int(m), n=int(n), k=int(k), dtype=config.dtype_a, layout=config.layout)
        assert (answer == "1") == (not tw.fits(config, problem, asked.arch)), (slug, m, n, k)
        seen.add((slug, answer))
    assert len(seen) == 2 * 2, "both kernels must have said yes and no"


def test_cmake_says_what_is_wrong(pack: Pack, tmp_path: Path) -> None:
    project = "cmake_minimum_required(VERSION 3.16)\nproject(wrong LANGUAGES CXX)\nfind_package(tilewright_pack {})\n"
    cases = {
        "REQUIRED COMPONENTS gfx942 gfx950": "the pack is not for gfx950.  It is for: gfx90a, gfx942.",
        "99.0 REQUIRED": 'compatible with requested version "99.0"',
        "REQUIRED COMPONENTS gfx942": "",
        f"{tw.__version__} REQUIRED OPTIONAL_COMPONENTS gfx950": "",
        "REQUIRED)\nfind_package(tilewright_pack REQUIRED": "",
    }
    for number, (words, said) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text(project.format(words))
        done = configure(pack.folder, folder / "build", source=folder)
        assert (done.returncode != 0) == bool(said), done.stderr
        assert said in " ".join(done.stderr.split("\n")).replace("    ", ""), done.stderr


def test_cmake_does_not_find_half_a_pack(pack: Pack, tmp_path: Path) -> None:
    shutil.copytree(pack.folder, tmp_path / "half")
    (tmp_path / "half" / "lib" / "libtilewright_pack_gfx90a.so").unlink()
    done = configure(tmp_path / "half", tmp_path / "build")

    assert done.returncode != 0
    assert "lib/libtilewright_pack_gfx90a.so is missing" in done.stderr


SIZES = """
#include <iostream>
#include <tilewright/gemm.h>
#include <tilewright/tilewright.hpp>
int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    for(const auto& kernel : pack)
        for(std::int64_t m : {64, 96, 128})
            for(std::int64_t n : {64, 72, 100, 128})
                for(std::int64_t k : {32, 48, 64})
                {
                    auto args = tilewright::make_args<tw_gemm_args>();
                    args.m = m, args.n = n, args.k = k, args.k_batch = args.batch = 1;
                    args.stride_a = k, args.stride_c = n;
                    args.stride_b = kernel.field("layout")[1] == 'r' ? n : k;
                    std::cout << kernel.slug() << ' ' << m << ' ' << n << ' ' << k << ' ';
                    std::cout << kernel.supports(args) << '\\n';
                }
}
"""
