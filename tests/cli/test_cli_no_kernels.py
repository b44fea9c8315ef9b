"""Choices without a kernel: no set has it, the rules reject it, a profile omits it; and choices with too many."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.ops import find_op, parse_kernel
from tilewright.ops.gemm.tile_engine import write_tile_engine

Run = Callable[..., Result]


@pytest.fixture
def refuse(run: Run, tmp_path: Path) -> Callable[..., str]:
    """The message of a `generate` that is refused."""

    def refuse(*options: str) -> str:
        result = run("generate", options[0], "--out", str(tmp_path / "kernels"), *options[1:])
        assert (result.exit_code, result.stdout) == (2, "")
        return " ".join(result.stderr.split())

    return refuse


def test_a_set_that_could_have_it_is_named_with_the_setting(
    refuse: Callable[..., str], run_json: Callable[..., Any], tmp_path: Path
) -> None:
    said = refuse("gemm", "--gpu", "gfx942", "--datatype", "int8", "--layout", "rrr")
    assert "sets of gemm for gfx942 has kernels with dtype int8 and layout rrr" in said
    assert "The rules accept 11 of them: use --preselected int8_rcr_essential -s layout=rrr" in said
    advised = ("--preselected", "int8_rcr_essential", "-s", "layout=rrr")
    assert len(run_json("generate", "gemm", "--out", str(tmp_path), "--gpu", "gfx942", *advised)["kernels"]) == 11


def test_rules_that_reject_are_named_with_numbers(refuse: Callable[..., str]) -> None:
    said = refuse("gemm", "--gpu", "gfx90a", "--datatype", "int8")
    assert "sets of gemm for gfx90a has kernels with dtype int8" in said
    assert "the rules reject all" in said and "A101 no-matrix-instruction: gfx90a cannot multiply int8" in said
    said = refuse("gemm", "--gpu", "gfx908", "--preselected", "int8_rcr_essential")
    assert "none of these gemm kernels is legal on gfx908: the rules reject all 11 of them (A101 11)" in said


def test_a_profile_that_omits_the_kernels_is_described(refuse: Callable[..., str]) -> None:
    said = refuse("fmha", "--gpu", "gfx942", "--preselected", "training", "--profile", "fp8")
    assert "none of these fmha kernels is of profile fp8: only 8-bit operands" in said
    assert "Known receipts: 0 (ck_default)" in refuse("fmha", "--gpu", "gfx942", "--profile", "7")


def test_a_property_that_no_set_has(refuse: Callable[..., str]) -> None:
    assert "sets of fmha for gfx942 has kernels with hdim_q 96." in refuse("fmha", "--gpu", "gfx942", "--hdim-q", "96")


def test_a_built_in_space_needs_a_limit(refuse: Callable[..., str]) -> None:
    said = refuse("fmha", "--gpu", "gfx942", "--preselected", "default", "--datatype", "fp16")
    assert "default has more than 1,000 kernels: set more fields, or give --limit N" in said


def test_thousands_are_not_built_without_a_question(run: Run) -> None:
    result = run("build", "grouped_conv", "--gpu", "gfx942")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "kernels would be built, which takes about" in result.stderr
    assert "name a smaller set, filter it, or give --limit" in result.stderr


def test_a_tile_engine_file_in_every_command(run: Run, run_json: Callable[..., Any], tmp_path: Path) -> None:
    op = find_op("gemm")
    declared = {"variant": "standard", "dtype": "fp16", "layout": "rcr", "scheduler": "intrawave"}
    tiles = {"block": ["128x128x64", "128x64x64"], "waves": "2x2x1", "mma": "16x16x16", "epilogue": "cshuffle"}
    from tilewright.ops.space import Space

    document = write_tile_engine(Space(op, {**declared, **tiles, "pipeline": ["compv3", "mem"]}))
    (tmp_path / "config.json").write_text(json.dumps(document))
    file = ("--tile-engine", str(tmp_path / "config.json"))
    target = ("gemm", "--gpu", "gfx942", *file)
    layouts = ("--datatype", "fp16", "--layout", "rcr", "crr")
    found = run_json("generate", *target, *layouts, "--out", str(tmp_path / "kernels"))
    configs: list[Any] = [parse_kernel(name).config for name in found["kernels"]]
    assert sorted(config.layout for config in configs) == ["crr"] * 4 + ["rcr"] * 4
    problem = ("--problem", "m=128,n=128,k=128")
    settings = ("-s", "dtype=fp16", "-s", "layout=rrr")
    (stage,) = run_json("select", *target, *settings, *problem)["stages"]
    assert (stage["can"], stage["cannot"]) == (4, 0)
    result = run("generate", *target, "--out", str(tmp_path / "kernels"))
    assert "a tile_engine file does not give dtype, layout: add -s dtype=… -s layout=…" in result.stderr
    result = run("build", *target, "--preselected", "fp16_rcr_all")
    assert "--preselected and --tile-engine exclude each other" in result.stderr
    result = run("generate", "fmha", "--gpu", "gfx942", *file, "--out", str(tmp_path / "kernels"))
    assert "Tilewright reads tile_engine files of gemm, not of fmha" in result.stderr


def test_a_kernel_set_in_json(run_json: Callable[..., Any], tmp_path: Path) -> None:
    space = {"variant": "standard", "dtype": "fp16", "layout": "rrr", "block": ["128x128x64", [64, 64, 64]]}
    more = {"waves": "2x2x1", "mma": "16x16x16", "pipeline": "*", "scheduler": "intrawave", "epilogue": "cshuffle"}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"op": "gemm", "archs": ["gfx942"], "space": [{**space, **more}]}))
    target = ("--gpu", "gfx942", "--out", str(tmp_path / "kernels"))
    named = run_json("generate", "gemm", *target, "--kernel-set", str(path))["kernels"]
    assert named and named == run_json("generate", str(path), *target)["kernels"]
    problem = ("--problem", "m=128,n=128,k=128")
    (stage,) = run_json("select", str(path), "--gpu", "gfx942", *problem)["stages"]
    assert stage["can"] == len(named)
