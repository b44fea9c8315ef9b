"""Options have the same names in all commands, and the names they had before still work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from tilewright.cli.app import root
from tilewright.cli.command import Option, list_main_names

GPU_NAMES = ("--gpu", "--arch", "--gpu-target")


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*words, name))
        else:
            yield " ".join((*words, name)), found


ALL = dict(commands(root))
# Command → the parameter that gets the value of --gpu.
GPU_PARAMETERS = {
    "check": "arch",
    "space": "archs",
    "generate": "gpu_target",
    "build": "gpu_target",
    "wrap": "arch",
    "inspect": "arch",
    "select": "gpu_target",
    "portfolio": "arch_name",
    "tune": "arch",
    "train": "arch",
    "evaluate": "arch",
    "data import": "arch",
    "toolchain show": "arch",
}


def test_every_gpu_is_given_with_gpu() -> None:
    """`data export --gpu` is another option: a part of the name of a GPU's model."""
    found = {
        name: option
        for name, command in ALL.items()
        for option in command.params
        if set(option.opts) & set(GPU_NAMES) and name != "data export"
    }
    assert {name: option.name for name, option in found.items()} == GPU_PARAMETERS
    for option in found.values():
        assert isinstance(option, Option)
        assert (option.opts[0], sorted(option.opts)) == ("--gpu", sorted(GPU_NAMES))
        assert list_main_names(option) == ["--gpu"]


@pytest.mark.parametrize("name", GPU_PARAMETERS)
def test_other_names_of_gpu_are_not_in_the_help(name: str, run: Callable[..., Result]) -> None:
    shown = run(*name.split(), "--help").stdout
    assert "\n  --gpu GPU" in shown
    assert "--arch" not in shown and "--gpu-target" not in shown


@pytest.mark.parametrize("option", GPU_NAMES)
def test_all_names_of_gpu_mean_the_same(
    option: str, run_json: Callable[..., Any], settings: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert run_json("check", "gemm", option, "gfx942", *settings())["arch"] == "gfx942"
    counted = run_json("space", "gemm", f"{option}=gfx942,gfx950", "--set", "fp16_rcr_essential")
    assert [each["arch"] for each in counted["archs"]] == ["gfx942", "gfx950"]
    words = ("--output-dir", str(tmp_path / "kernels"), "--preselected", "fp16_rcr_essential", "--dry-run")
    kernels = run_json("generate", "gemm", option, "gfx942", *words)["kernels"]
    assert kernels and all(kernel.startswith("gemm-gfx942-") for kernel in kernels)


@pytest.mark.parametrize("name", ["", "arch", "cache", "data", "toolchain", *ALL])
def test_h_is_help(name: str, run: Callable[..., Result]) -> None:
    short, long = run(*name.split(), "-h"), run(*name.split(), "--help")
    assert (short.exit_code, short.stderr) == (0, "")
    assert short.stdout == long.stdout
    assert "-h, --help" in short.stdout


# Command → other names of --out.
OUTPUTS = {
    "generate": ["--output-dir"],
    "build": ["--pack"],
    "wrap": ["--output-dir"],
    "portfolio": [],
    "sweep": [],
    "tune": [],
    "train": [],
    "evaluate": ["--report"],
    "report": [],
    "data export": [],
    "data merge": [],
    "data import": [],
}


def test_outputs_are_given_with_out() -> None:
    found = {name: option.opts for name, command in ALL.items() for option in command.params if "--out" in option.opts}
    assert found == {name: ["--out", *others] for name, others in OUTPUTS.items()}
    every = {name for command in ALL.values() for option in command.params for name in option.opts}
    assert not {name for name in every if name.startswith("--out") and name not in ("--out", "--output-dir")}


@pytest.mark.parametrize("option", ["--out", "--output-dir"])
def test_both_names_of_out_mean_the_same(option: str, run_json: Callable[..., Any], tmp_path: Path) -> None:
    kernels, wrappers = tmp_path / "kernels", tmp_path / "wrappers"
    words = ("--gpu", "gfx942", "--preselected", "fp16_rcr_essential", "--limit", "1")
    assert run_json("generate", "gemm", option, str(kernels), *words)["folder"] == str(kernels)
    found = run_json("wrap", "--kernel-dir", str(kernels), option, str(wrappers), "--toolchain", "rocm")
    assert found["folder"] == str(wrappers) and any(wrappers.glob("*.cpp"))


def test_the_older_name_of_out_is_not_in_the_help(run: Callable[..., Result]) -> None:
    for name in ("generate", "wrap"):
        shown = run(name, "--help").stdout
        assert "\n  --out DIR" in shown and "--output-dir" not in shown


def test_an_error_names_an_option_by_its_main_name(run: Callable[..., Result]) -> None:
    result = run("select", "gemm", "--problem", "m=1")
    assert result.exit_code == 2
    assert "Missing option '--gpu'." in result.stderr
