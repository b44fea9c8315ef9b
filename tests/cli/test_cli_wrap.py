"""`wrap`: the options, what it says, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

KERNELS = ["generate", "gemm", "--gpu-target", "gfx942", "--preselected", "fp16_rcr_essential", "--limit", "3"]


@pytest.fixture
def kernels(run: Callable[..., Result], tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    assert run(*KERNELS, "--output-dir", str(folder)).exit_code == 0
    return folder


@pytest.fixture
def args(kernels: Path, tmp_path: Path) -> list[str]:
    """For ROCm, which need not be there when the files are written."""
    folders = ["--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "wrappers")]
    return ["wrap", *folders, "--toolchain", "rocm"]


def test_the_second_run_writes_nothing(args: list[str], run_json: Callable[..., Any], tmp_path: Path) -> None:
    every = [*args, "--generate-cmake", "--generate-ninja", "--generate-makefile"]
    first = run_json(*every)
    assert first["gpus"] == ["gfx942"]
    assert first["compiler"] == "hipcc"
    assert first["library"] == "libtilewright_kernels.so"
    assert first["build_files"] == {"cmake": "CMakeLists.txt", "ninja": "build.ninja", "make": "Makefile"}
    assert len(first["kernels"]) == 3
    assert {kernel["wrapper"] for kernel in first["kernels"]} < set(first["written"])
    before = {path: path.lstat().st_mtime_ns for path in (tmp_path / "wrappers").iterdir()}
    second = run_json(*every)
    assert (second["written"], second["removed"]) == ([], [])
    assert sorted(second["unchanged"]) == sorted(first["written"])
    assert {path: path.lstat().st_mtime_ns for path in (tmp_path / "wrappers").iterdir()} == before
    assert run_json(*every, "--no-parallel")["written"] == []


def test_a_vanished_header_takes_its_wrapper_along(
    args: list[str], kernels: Path, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    gone = run_json(*args)["kernels"][0]
    (kernels / gone["header"]).unlink()
    shown = run(*args, "-v").stdout
    assert "removed    1 file\n" in shown
    assert f"removed    {gone['wrapper']}\n" in shown
    assert "written    objects.rsp\n" in shown


def test_what_is_said(args: list[str], run: Callable[..., Result]) -> None:
    shown = run(*args, "--generate-ninja", "--library", "mine").stdout
    assert "library     libmine.so\n" in shown
    assert "build with  ninja  # build.ninja\n" in shown
    assert ".cpp" not in shown


def test_rocm_need_not_be_here(args: list[str], run: Callable[..., Result], tmp_path: Path) -> None:
    run(*args, "--generate-ninja", "--arch", "gfx942,gfx950")
    text = (tmp_path / "wrappers" / "build.ninja").read_text()
    command = next(line for line in text.splitlines() if line.startswith("  command = "))
    expected = "$cxx --offload-arch=gfx942 --offload-arch=gfx950 -x hip -c -O3 --no-default-config -std=c++17 "
    assert command.startswith(f"  command = {expected}")
    assert "--rocm-path" not in command
    assert "--cuda-device-only" not in command
    assert not list((tmp_path / "wrappers").glob("*.s"))
    assert 'cxx = "$${TILEWRIGHT_CXX:-hipcc}"' in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--toolchain", "cuda"], "unknown toolchain 'cuda'. Known: rocm, pypi, gpu-less."),
        (["--arch", "gfx950"], "was rendered for gfx942, which is not among --arch gfx950"),
        (["--library", "a b"], "a library's name consists of letters, digits, '_' and '-', got 'a b'"),
        (["--pattern", "x*.hpp"], "headers there, 0 match, and 0 of these are support files"),
        (["--pattern", "../*.hpp"], "stay in the folder"),
    ],
)
def test_what_cannot_be_meant(
    more: list[str], message: str, args: list[str], run: Callable[..., Result], tmp_path: Path
) -> None:
    result = run(*args, *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not (tmp_path / "wrappers").exists()


def test_headers_of_other_generators_need_a_gpu(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "a.hpp").write_text("template <int> struct A;\n")
    folders = ["--kernel-dir", str(tmp_path / "k"), "--output-dir", str(tmp_path / "w")]
    args = ["wrap", *folders, "--toolchain", "rocm"]
    result = run(*args)
    assert result.exit_code == 2
    assert "choose the GPU to compile for with --arch GPU: no manifest names a GPU" in result.stderr
    assert "unknown arch 'gfx999'" in run(*args, "--arch", "gfx999").stderr
    assert run(*args, "--arch", "gfx90a").exit_code == 0
    assert (tmp_path / "w" / "a.cpp").exists()


def test_a_folder_that_is_not_there(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("wrap", "--kernel-dir", str(tmp_path / "none"), "--output-dir", str(tmp_path / "w"))
    assert result.exit_code == 2
    assert f"the folder of kernels {tmp_path / 'none'} does not exist" in result.stderr


def test_relative_folders(
    run: Callable[..., Result], kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("wrap", "--kernel-dir", "kernels", "--output-dir", "deep/er", "--toolchain", "rocm")
    assert result.exit_code == 0
    assert (tmp_path / "deep" / "er" / "headers").readlink() == Path("../../kernels")
