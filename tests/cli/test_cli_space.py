"""`space`: counting, several GPUs side by side, naming kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.ops import find_op, parse_kernel
from tilewright.ops.space import Space

WIDE = {"block": "128x128x32,96x128x32,64x64x64", "waves": "2x2x1,4x1x1", "pipeline": "*"}


def test_counts_are_those_of_the_library(
    run: Callable[..., Result], run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    options = settings(**WIDE)
    document = run_json("space", "gemm", "--arch", "gfx942,gfx950", *options)
    declared = dict(option.split("=") for option in options[1::2])
    space = Space(find_op("gemm"), {n: v if v == "*" else v.split(",") for n, v in declared.items()})
    for entry in document["archs"]:
        report = space.report(entry["arch"])
        assert (entry["raw"], entry["legal"]) == (report.raw, report.legal)
        assert entry["raw"] == entry["legal"] + sum(entry["removed"].values())
    shown = run("space", "gemm", "--arch", "gfx942", "--arch", "gfx950", *options).stdout
    assert "gfx942" in shown
    assert "gfx950" in shown
    assert "counted in " in shown


def test_listed_and_sampled_kernels_are_members(
    run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    args = ["space", "gemm", "--arch", "gfx942", *settings(**WIDE)]
    (everything,) = run_json(*args, "--list", "1000")["archs"]
    names = everything["listed"]
    assert len(names) == everything["legal"]
    assert run_json(*args, "--list", "2")["archs"][0]["listed"] == names[:2]
    drawn = run_json(*args, "--sample", "3", "--seed", "7")["archs"][0]["listed"]
    assert drawn == run_json(*args, "--sample", "3", "--seed", "7")["archs"][0]["listed"]
    assert len(set(drawn)) == 3
    assert set(drawn) <= set(names)


def test_preselected_sets_and_their_fields(run_json: Callable[..., Any]) -> None:
    args = ["space", "gemm", "--arch", "gfx942", "--set", "fp16_rcr_essential"]
    (plain,) = run_json(*args)["archs"]
    members = list(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"))
    assert plain["kernels"] == len(members)
    (changed,) = run_json(*args, "-s", "dtype=bf16", "--list", "1")["archs"]
    config: Any = parse_kernel(changed["listed"][0]).config
    assert config.dtype_a == "bf16"


def test_a_kernel_set_file(run_json: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'op = "gemm"\n[[space]]\nvariant = "standard"\ndtype = "fp16"\nlayout = "rcr"\n'
        'block = ["128x128x32", "256x128x32"]\nwaves = "2x2x1"\nmma = "32x32x16"\n'
        'pipeline = "compv3"\nscheduler = "intrawave"\nepilogue = "cshuffle"\n'
    )
    (entry,) = run_json("space", "gemm", "--arch", "gfx942", "--set", str(file))["archs"]
    assert (entry["raw"], entry["kernels"]) == (2, 2)


def _tile_engine(folder: Path) -> Path:
    tiles = {"tile": (128, 128, 32), "warp": (2, 2, 1), "warp_tile": (32, 32, 16)}
    tile_config = {
        f"{name}_{x}": {"values": [value]}
        for name, values in tiles.items()
        for x, value in zip("mnk", values, strict=True)
    }
    traits = {
        "pipeline": ["compv3", "mem"],
        "scheduler": ["intrawave"],
        "epilogue": ["cshuffle"],
        **{name: [False] for name in ("pad_m", "pad_n", "pad_k", "persistent")},
    }
    trait_config = {name: {"values": values} for name, values in traits.items()}
    file = folder / "config.json"
    file.write_text(json.dumps({"tile_config": tile_config, "trait_config": trait_config}))
    return file


def test_a_tile_engine_file(run_json: Callable[..., Any], tmp_path: Path) -> None:
    file = str(_tile_engine(tmp_path))
    args = ["space", "gemm", "--arch", "gfx942", "--tile-engine", file]
    (entry,) = run_json(*args, "-s", "dtype=fp16", "-s", "layout=rcr", "-s", "split_k=true")["archs"]
    assert entry["raw"] == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-s", "dtype=fp16"], "does not give layout: add -s layout=…"),
        (["-s", "dtyp=fp16"], "unknown setting for --tile-engine 'dtyp'. Did you mean 'dtype'?"),
        (["--set", "fp16_rcr_all"], "give one of them"),
    ],
)
def test_what_a_tile_engine_file_needs(
    more: list[str], message: str, run: Callable[..., Result], tmp_path: Path
) -> None:
    file = str(_tile_engine(tmp_path))
    result = run("space", "gemm", "--arch", "gfx942", "--tile-engine", file, *more)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_shorthand_cannot_be_a_star(run: Callable[..., Result], settings: Callable[..., list[str]]) -> None:
    result = run("space", "gemm", "--arch", "gfx942", *settings(dtype="*"))
    assert result.exit_code == 2
    assert "dtype sets several fields" in result.stderr


def test_a_value_without_a_legal_kernel_is_explained(
    run: Callable[..., Result], settings: Callable[..., list[str]]
) -> None:
    """multi_d needs a D tensor, and num_d has none unless it is named."""
    options = settings(variant="standard,multi_d", block="128x128x32")
    shown = run("space", "gemm", "--arch", "gfx942", *options).stdout

    assert "variant multi_d: no combination is legal; removed by " in shown
    assert "keep their defaults: " in shown and "num_d=0" in shown
    assert "no combination is legal" not in run("space", "gemm", "--arch", "gfx942", *options, "-s", "num_d=*").stdout
