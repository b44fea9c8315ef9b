"""A program without Python gets the choice of Python: packs that rank their kernels."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pack_parts import HOST, kernel_of, linkable

from tilewright import arch as archs
from tilewright.building.pack.library import FUNCTIONS
from tilewright.building.pack.manifest import Pack
from tilewright.building.pack.write import write_pack
from tilewright.building.store.artifact import Artifact
from tilewright.building.toolchain import Toolchain
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.select.c_source import render_rank_sources
from tilewright.select.chain import Chain
from tilewright.select.selection import Candidate

pytestmark = pytest.mark.compile

GPU = "gfx942"
PROGRAM = Path(__file__).with_name("pack_ranked.cpp")
# Supports whatever it is asked for.
WILLING = HOST.replace("args[12] % 64 == 0 ? 0 : 2", "0")
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-fsanitize=address,undefined")
BLOCKS = ((64, 64, 64), (128, 64, 64), (64, 128, 64), (128, 128, 32), (128, 128, 64), (256, 128, 32), (256, 256, 32))
KERNELS = (
    *(kernel_of(GPU, "gemm", block=block, pipeline=name) for block in BLOCKS for name in ("compv3", "mem")),
    kernel_of(GPU, "gemm", dtype_a="bf16", dtype_b="bf16", dtype_c="bf16"),
    *(kernel_of(GPU, "grouped_conv", block=block) for block in BLOCKS),
)
SIZES = ((64, 64, 64), (128, 5120, 2880), (4096, 4096, 4096), (512, 512, 20_000), (8192, 77, 640), (16_384, 16_384, 8))
IMAGES = ((1, 64, 64, 14), (32, 256, 256, 28), (8, 3, 64, 224), (128, 1024, 2048, 7), (2, 320, 320, 64))


def problems_of(op_name: str) -> list[Any]:
    op = find_op(op_name)
    if op_name == "gemm":
        return [op.problem_type(m=m, n=n, k=k, dtype="fp16", layout="rcr") for m, n, k in SIZES]
    config = next(kernel.config for kernel in KERNELS if kernel.op == op_name)
    same = {name: getattr(config, name) for name in ("direction", "dtype_a", "dtype_b", "dtype_c")}
    shapes = [(n, c, k, (side,) * config.ndim) for n, c, k, side in IMAGES]
    return [
        op.problem_type(**same, n=n, c=c, k=k, input_size=size, filter_size=(3,) * config.ndim, pad=(1,) * config.ndim)
        for n, c, k, size in shapes
    ]


def rankings(bundles: Sequence[Any], gpu: str, kernels: Sequence[Kernel]) -> Mapping[str, str]:
    return render_rank_sources(archs.load(gpu), kernels, bundles=bundles)


@pytest.fixture(scope="module")
def artifacts(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> list[Artifact]:
    folder = tmp_path_factory.mktemp("ranked")
    return [linkable(kernel, toolchain, folder, host=WILLING) for kernel in KERNELS]


@pytest.fixture(scope="module")
def plain(artifacts: list[Artifact], toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return write_pack(artifacts, toolchain, tmp_path_factory.mktemp("plain") / "pack")


@pytest.fixture(scope="module")
def ranked(artifacts: list[Artifact], toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("ranking") / "pack"
    return write_pack(artifacts, toolchain, folder, rankings=functools.partial(rankings, ()))


@pytest.fixture(scope="module")
def program(plain: Pack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("program") / "ranked"
    subprocess.run(
        ["g++", *STRICT, "-fno-sanitize-recover=all", f"-I{plain.folder}/include", str(PROGRAM), "-o", str(built)],
        check=True,
    )
    return built


def printed(program: Path, library: Path, op_name: str, tmp_path: Path) -> list[list[tuple[str, float]]]:
    """What the program says for each problem: slugs and times, best first."""
    op, problems = find_op(op_name), problems_of(op_name)
    assert op.execution is not None
    (tmp_path / "args").write_bytes(b"".join(bytes(op.execution.arguments(problem)) for problem in problems))
    dtype = problems[0].dtype_a
    words = ["env", "ASAN_OPTIONS=detect_leaks=0", program, library, op_name, tmp_path / "args", dtype]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[tuple[str, float]]] = [[] for _ in problems]
    for line in done.stdout.splitlines():
        number, slug, us = line.split()
        found[int(number)].append((slug, float(us)))
    return found


def chosen(op_name: str, dtype: str, bundles: tuple[Any, ...] = ()) -> list[list[tuple[str, float | None]]]:
    """What Python says of the same kernels."""
    own = sorted((k for k in KERNELS if k.op == op_name and k.config.dtype_a == dtype), key=lambda k: k.slug)
    candidates = [Candidate(kernel, 0.0, "") for kernel in own]
    chain = Chain(bundles=bundles)
    rankings = [chain.rank(problem, archs.load(GPU), candidates).choices for problem in problems_of(op_name)]
    return [[(choice.kernel.slug, choice.us) for choice in choices] for choices in rankings]


@pytest.mark.parametrize("op_name", ["gemm", "grouped_conv"])
def test_a_program_gets_the_order_of_python(op_name: str, ranked: Pack, program: Path, tmp_path: Path) -> None:
    found = printed(program, ranked.library_path(GPU), op_name, tmp_path)
    wanted = chosen(op_name, problems_of(op_name)[0].dtype_a)

    assert [[slug for slug, _ in choices] for choices in found] == [[slug for slug, _ in each] for each in wanted]
    assert len({choices[0][0] for choices in found}) > 1, "problems so different have different best kernels"
    for own, python in zip(found, wanted, strict=True):
        assert [us for _, us in own] == pytest.approx([us for _, us in python], rel=1e-12)


def test_a_program_gets_what_was_learned(
    artifacts: list[Artifact], program: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    pytest.importorskip("lightgbm")
    from c_ranking import random_bundle

    op = find_op("grouped_conv")
    own = sorted((kernel for kernel in KERNELS if kernel.op == op.name), key=lambda kernel: kernel.slug)
    bundle = random_bundle(op, GPU, own)
    rank = functools.partial(rankings, (bundle,))
    pack = write_pack(artifacts, toolchain, tmp_path / "pack", rankings=rank)
    found = printed(program, pack.library_path(GPU), op.name, tmp_path)
    learned, estimated = chosen(op.name, own[0].config.dtype_a, (bundle,)), chosen(op.name, own[0].config.dtype_a)

    assert [[slug for slug, _ in each] for each in found] == [[slug for slug, _ in each] for each in learned]
    assert [[slug for slug, _ in each] for each in learned] != [[slug for slug, _ in each] for each in estimated]


@pytest.mark.parametrize("op_name", ["gemm", "grouped_conv"])
def test_without_a_ranking_kernels_keep_their_order(op_name: str, plain: Pack, program: Path, tmp_path: Path) -> None:
    dtype = problems_of(op_name)[0].dtype_a
    own = sorted(kernel.slug for kernel in KERNELS if kernel.op == op_name and kernel.config.dtype_a == dtype)

    found = printed(program, plain.library_path(GPU), op_name, tmp_path)
    assert found == [[(slug, -1.0) for slug in own]] * len(problems_of(op_name))


def test_a_ranking_changes_nothing_that_is_seen_and_gives_the_same_bytes_anywhere(
    plain: Pack, ranked: Pack, artifacts: list[Artifact], toolchain: Toolchain, tmp_path: Path
) -> None:
    again = write_pack(artifacts[::-1], toolchain, tmp_path / "elsewhere", rankings=functools.partial(rankings, ()))
    names = ["tw_pack_table", *(f"{kernel.symbol}_{function}" for kernel in KERNELS for function in FUNCTIONS)]
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(ranked.library_path(GPU))], capture_output=True, text=True, check=True
    )

    assert {line.split()[-1] for line in listed.stdout.splitlines()} == set(names)
    assert again.library_path(GPU).read_bytes() == ranked.library_path(GPU).read_bytes()
    assert ranked.files == plain.files
    assert ranked.kernels == plain.kernels


# A table whose structs end before `rank`, as the first Tilewright wrote them, over the kernels of a newer one.
OLDER = """
#include <dlfcn.h>
#include <string.h>
#include <tilewright/pack.h>
#define OLD offsetof(tw_pack_kernel, rank)
static unsigned char rows[64 * OLD] __attribute__((aligned(8)));
static tw_pack table;
const tw_pack* tw_pack_table(void)
{
    const tw_pack* newer = ((tw_pack_table_fn)dlsym(dlopen("LIBRARY", RTLD_NOW | RTLD_LOCAL), "tw_pack_table"))();
    table             = *newer;
    table.kernel_size = OLD;
    table.kernels     = (const tw_pack_kernel*)(const void*)rows;
    for(uint64_t i = 0; i < newer->count; ++i)
        memcpy(rows + i * OLD, tw_pack_kernel_at(newer, i), OLD);
    return &table;
}
"""


def test_a_library_that_is_older_than_rankings_is_read(ranked: Pack, program: Path, tmp_path: Path) -> None:
    source, library = tmp_path / "older.c", tmp_path / "libolder.so"
    source.write_text(OLDER.replace("LIBRARY", str(ranked.library_path(GPU))))
    words = ["gcc", "-shared", "-fPIC", f"-I{ranked.folder}/include", str(source), "-o", str(library), "-ldl"]
    subprocess.run(words, check=True)

    found = printed(program, library, "gemm", tmp_path)
    assert all(us == -1.0 for choices in found for _, us in choices)
    assert all(choices == sorted(choices) and choices for choices in found)


def test_python_reads_the_rank_of_a_table(ranked: Pack) -> None:
    """The sixth member from the end of each kernel's entry is the ranking of its op: the same for all of them."""
    table = ctypes.CDLL(str(ranked.library_path(GPU)))["tw_pack_table"]
    table.restype = ctypes.POINTER(ctypes.c_uint32)
    head = ctypes.cast(table(), ctypes.POINTER(ctypes.c_uint64))
    kernel_size, count, kernels = table()[1], head[4], head[5]
    last = [ctypes.c_uint64.from_address(kernels + (i + 1) * kernel_size - 6 * 8).value for i in range(count)]
    ops = sorted(kernel.op for kernel in KERNELS)

    assert all(last)
    assert len(set(zip(ops, last, strict=True))) == 2
