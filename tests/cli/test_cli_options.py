"""Options have the same names in all commands, and the names they had before still work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from tilewright import arch as gpus
from tilewright.arch.load import DATA
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.cli.app import root
from tilewright.cli.command import Option, list_main_names
from tilewright.cli.gpu_option import GpuOption, SeveralGpus, resolve_gpu

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
    "registry show": "gpu_target",
    "wrap": "arch",
    "inspect": "arch",
    "select": "gpu_target",
    "portfolio": "arch_name",
    "coverage": "arch_name",
    "emulate": "gpu",
    "trace": "gpu",
    "tune": "arch",
    "train": "arch",
    "evaluate": "arch",
    "compare": "gpu_target",
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
    "acceptance": [],
    "trace": [],
    "generate": ["--output-dir"],
    "build": ["--pack"],
    "registry show": [],
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
    "new-op": [],
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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gfx942", "gfx942"),
        ("gfx000", "gfx000"),  # the commands check it
        ("MI300X", "gfx942"),
        ("mi300x", "gfx942"),
        ("Instinct MI300X", "gfx942"),
        ("AMD Instinct MI300X", "gfx942"),
        ("MI250X", "gfx90a"),
        ("MI250X (one GCD)", "gfx90a"),
        ("RX 7900 XTX", "gfx1100"),
        ("rx7900xtx", "gfx1100"),
        ("rx-7900-xtx", "gfx1100"),
        ("radeon_rx_7900_xtx", "gfx1100"),
    ],
)
def test_products(text: str, name: str) -> None:
    assert resolve_gpu(text) == name


def test_every_product_resolves_to_its_gpu() -> None:
    for name in gpus.arch_names():
        assert resolve_gpu(gpus.load(name).product) == name


@pytest.mark.parametrize(("text", "nearest"), [("MI300", "MI300X"), ("RX 7900", "RX 7900 XTX"), ("gf942", "gfx942")])
def test_an_unknown_gpu_is_an_error_with_all_known_names(text: str, nearest: str, run: Callable[..., Result]) -> None:
    result = run("space", "gemm", "--gpu", text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"unknown GPU {text!r}. Did you mean '{nearest}'? Known: " in result.stderr
    known = result.stderr.partition("Known: ")[2].rstrip(".\n").split(", ")
    assert {*gpus.arch_names(), "MI100", "MI250X", "MI300X", "RX 7900 XTX"} <= set(known)


@pytest.mark.parametrize("text", ["", "Instinct", "-"])
def test_a_brand_alone_is_not_a_gpu(text: str) -> None:
    with pytest.raises(UnknownValueError):
        resolve_gpu(text)


def test_commands_take_products(run_json: Callable[..., Any], settings: Callable[..., list[str]]) -> None:
    assert run_json("arch", "show", "MI300X")["name"] == "gfx942"
    assert run_json("check", "gemm", "--gpu", "MI300X", *settings())["arch"] == "gfx942"
    counted = run_json("space", "gemm", "--gpu", "MI300X,gfx950", "--set", "fp16_rcr_essential")
    assert [each["arch"] for each in counted["archs"]] == ["gfx942", "gfx950"]


def test_records_are_not_selected_by_product() -> None:
    """MI300A and MI300X are both gfx942, and records contain only that."""
    takes = {
        name: isinstance(option, GpuOption | SeveralGpus)
        for name, command in ALL.items()
        for option in command.params
        if option.name == GPU_PARAMETERS.get(name)
    }
    assert {name for name, products in takes.items() if not products} == {"tune", "train", "evaluate"}
    assert len(takes) == len(GPU_PARAMETERS)


def test_a_product_of_two_gpus_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DATA / "gfx942.toml").read_text(encoding="utf-8")
    (tmp_path / "gfx999.toml").write_text(text.replace('name = "gfx942"', 'name = "gfx999"', 1), encoding="utf-8")
    monkeypatch.setenv("TILEWRIGHT_ARCH_PATH", str(tmp_path))
    with pytest.raises(InvalidValueError, match="MI300X is the product name of gfx942 and gfx999"):
        resolve_gpu("MI300X")


def test_sets_are_given_with_either_name(run_json: Callable[..., Any], tmp_path: Path) -> None:
    found = {
        name: sorted(option.opts)
        for name, command in ALL.items()
        for option in command.params
        if set(option.opts) & {"--set", "--preselected"}
    }
    named = ("space", "generate", "build", "registry show", "select", "portfolio", "compare")
    assert found == {key: ["--preselected", "--set"] for key in named}
    folder, gpu, name = ("--out", str(tmp_path / "kernels")), ("--gpu", "gfx942"), "fp16_rcr_essential"
    generated = [run_json("generate", "gemm", *folder, *gpu, o, name, "--dry-run") for o in ("--set", "--preselected")]
    assert generated[0] == generated[1] and generated[0]["sets"] == [name]
    counted = [run_json("space", "gemm", *gpu, o, name)["archs"] for o in ("--set", "--preselected")]
    assert counted[0] == counted[1]


def test_an_error_names_an_option_by_its_main_name(run: Callable[..., Result]) -> None:
    result = run("space", "gemm")
    assert result.exit_code == 2
    assert "Missing option '--gpu'." in result.stderr
