"""-s of `generate`, `build` and `select`: the same words that `check` and `inspect` take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.ops import parse_kernel

GPU = ("--gpu", "gfx942")


@pytest.fixture
def generate(tmp_path: Path) -> tuple[str, ...]:
    return ("generate", "gemm", "--out", str(tmp_path / "kernels"), *GPU, "--dry-run")


def test_the_kernel_that_was_checked_is_generated_and_selected(
    generate: tuple[str, ...], run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    checked = run_json("check", "gemm", *GPU, *settings())["kernel"]
    found = run_json(*generate, *settings())
    assert (found["kernels"], found["sets"]) == ([checked], ["declared"])
    problem = ("--problem", "m=4096,n=4096,k=4096,dtype=fp16,layout=rcr")
    (stage,) = run_json("select", "gemm", *GPU, *settings(), *problem)["stages"]
    assert [choice["kernel"] for choice in stage["choices"]] == [checked]


def test_fields_of_a_set_are_changed(generate: tuple[str, ...], run_json: Callable[..., Any]) -> None:
    found = run_json(*generate, "--preselected", "fp16_rcr_essential", "-s", "layout=rrr")
    configs: list[Any] = [parse_kernel(slug).config for slug in found["kernels"]]
    assert configs and {config.layout for config in configs} == {"rrr"}


def test_a_forgotten_field_is_an_error(
    generate: tuple[str, ...],
    run: Callable[..., Result],
    run_json: Callable[..., Any],
    settings: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tilewright.ops.space.MOST_KERNELS", 2)
    words = settings(block=None, waves=None)
    result = run(*generate, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-s declares more than 2 kernels: set more fields, or give --limit N" in result.stderr
    assert len(run_json(*generate, *words, "--limit", "3")["kernels"]) == 3
    assert len(run_json(*generate, "--preselected", "fp16_rcr_essential")["kernels"]) > 2


def test_build_takes_it_too(run: Callable[..., Result], settings: Callable[..., list[str]]) -> None:
    illegal = run("build", "gemm", *GPU, *settings(block="96x128x32"))
    assert illegal.exit_code == 2
    assert "none of these gemm kernels is legal on gfx942" in illegal.stderr
    both = run("build", "gemm", *GPU, "--kernel", "gemm-gfx942-x", *settings())
    assert both.exit_code == 2
    assert "cannot be combined with sets, profiles, -s and filters" in both.stderr
