"""`generate`: the options of CK's own generator, and writing only what changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.cli.command import repeat_flags
from tilewright.codegen.render import read_support_files
from tilewright.ops import find_op, parse_kernel

GEMM = find_op("gemm")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


def _args(folder: Path, *more: str) -> list[str]:
    return ["generate", "gemm", "--output-dir", str(folder), "--gpu-target", "gfx942", *more]


def test_the_second_run_writes_nothing(run: Callable[..., Result], run_json: Callable[..., Any], folder: Path) -> None:
    args = _args(folder, "--preselected", "fp16_rcr_essential", "--jobs", "1")
    first = run_json(*args)
    assert first["written"] == len(first["kernels"]) + len(read_support_files("gemm"))
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    second = run_json(*args)
    assert (second["written"], second["removed"]) == (0, 0)
    assert second["unchanged"] == first["written"]
    assert times == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    listed = json.loads((folder / "manifest.json").read_text())["kernels"]
    assert [entry["slug"] for entry in listed] == first["kernels"]
    fewer = run_json(*args, "--limit", "2")
    assert (fewer["written"], fewer["removed"]) == (0, len(first["kernels"]) - 2)
    shown = run(*args, "--limit", "2").stdout
    assert "kernels    2\n" in shown
    assert "written    0 files\n" in shown


@pytest.mark.parametrize(
    "variants",
    [
        ["--variants", "standard", "preshuffle"],
        ["--variants", "standard,preshuffle"],
        ["--variants", "standard", "--variants", "preshuffle"],
    ],
)
def test_several_values_in_every_form(variants: list[str], run_json: Callable[..., Any], folder: Path) -> None:
    args = _args(folder, *variants, "--datatype", "fp16", "--layout", "rcr", "--dry-run")
    configs: list[Any] = [parse_kernel(slug).config for slug in run_json(*args)["kernels"]]
    assert {config.variant for config in configs} == {"standard", "preshuffle"}
    assert {(config.dtype_a, config.dtype_c, config.layout) for config in configs} == {("fp16", "fp16", "rcr")}


def test_sets_that_gave_no_kernel_are_not_named(run_json: Callable[..., Any], folder: Path) -> None:
    document = run_json(*_args(folder, "--datatype", "bf16", "--dry-run"))
    assert document["kernels"]
    assert "bf16_rcr_essential" in document["sets"]
    assert "fp16_rcr_essential" not in document["sets"]


def test_dry_run_names_and_writes_nothing(run: Callable[..., Result], folder: Path) -> None:
    result = run(*_args(folder, "--limit", "2", "--dry-run"))
    assert len([parse_kernel(line) for line in result.stdout.splitlines()]) == 2
    assert "nothing written" in result.stderr
    assert not folder.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--variants", "standards"], "unknown variant 'standards'. Did you mean 'standard'?"),
        (["--layout", "rcc"], "unknown layout 'rcc'."),
        (["--datatype", "fp61"], "unknown dtype 'fp61'."),
        (["--datatype", "pk_fp4"], "has kernels with dtype pk_fp4. With such a change"),
        (["--preselected", "fp16_rcr_al"], "Did you mean 'fp16_rcr_all'?"),
        (["--limit", "0"], "0 is not in the range"),
    ],
)
def test_values_that_do_not_exist(more: list[str], message: str, run: Callable[..., Result], folder: Path) -> None:
    result = run(*_args(folder, *more))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not folder.exists()


def test_the_op_after_a_list_is_explained(run: Callable[..., Result], folder: Path) -> None:
    result = run("generate", "--output-dir", str(folder), "--gpu-target", "gfx942", "--layout", "rcr", "gemm")
    assert result.exit_code == 2
    assert "Missing argument 'KERNELS…'. It comes before --datatype, --layout, --variants." in result.stderr


def test_a_missing_option_has_no_fixed_position(run: Callable[..., Result], folder: Path) -> None:
    result = run("generate", "gemm", "--out", str(folder), "--datatype", "fp16")
    assert result.exit_code == 2
    assert "no GPU is given for gemm: use --gpu GPU." in result.stderr and "It comes before" not in result.stderr


def test_two_sources_of_kernels_are_one_too_many(run: Callable[..., Result], folder: Path) -> None:
    (folder.parent / "a.toml").write_text("")
    more = ["--preselected", "fp16_rcr_all", "--kernel-set", str(folder.parent / "a.toml")]
    result = run(*_args(folder, *more))
    assert "give one of them" in result.stderr


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--x", "a", "b"], ["--x", "a", "--x", "b"]),
        (["--x", "--y", "a"], ["--x", "--y", "a"]),
        (["p", "--x", "a", "-j", "2"], ["p", "--x", "a", "-j", "2"]),
        (["--x=a", "b"], ["--x=a", "b"]),
        ([], []),
    ],
)
def test_spread(args: list[str], expected: list[str]) -> None:
    assert repeat_flags(args, {"--x"}) == expected
