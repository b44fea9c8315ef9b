"""`generate grouped_conv`: the command lines of CK's own generator, `--variant … --ndim-spatial … --datatype …`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.ops import parse_kernel

VARIANTS = ("forward", "backward_data", "backward_weight")


def _args(folder: Path, *more: str, gpu: str = "gfx942") -> list[str]:
    return ["generate", "grouped_conv", "--output-dir", str(folder / "kernels"), "--gpu-target", gpu, *more]


def _configs(document: dict[str, Any]) -> list[Any]:
    return [parse_kernel(slug).config for slug in document["kernels"]]


def list_cases() -> list[object]:
    """All combinations. CI has each pair of values once: a Latin square."""
    numbered = itertools.product(enumerate(VARIANTS), enumerate(("fp16", "bf16", "fp32")), enumerate(("1", "2", "3")))
    return [
        pytest.param(variant, datatype, ndim, marks=[] if (i + j + k) % 3 == 0 else [pytest.mark.deep])
        for (i, variant), (j, datatype), (k, ndim) in numbered
    ]


@pytest.mark.parametrize(("variant", "datatype", "ndim"), list_cases())
def test_every_variant_type_and_dimension(
    variant: str, datatype: str, ndim: str, run_json: Callable[..., Any], tmp_path: Path
) -> None:
    words = ["--variant", variant, "--ndim-spatial", ndim, "--datatype", datatype, "--dry-run"]
    document = run_json(*_args(tmp_path, *words))
    found = {(config.direction, config.ndim, config.dtype_a, config.dtype_c) for config in _configs(document)}
    assert found == {(variant, int(ndim), datatype, datatype)}
    assert all(variant in name for name in document["sets"])


@pytest.mark.parametrize("gpu", ["gfx90a", "gfx950", "gfx1100", "gfx1200", "gfx1201"])
def test_other_gpus(gpu: str, run_json: Callable[..., Any], tmp_path: Path) -> None:
    words = ["--ndim-spatial", "2", "--datatype", "fp16", "bf16", "--dry-run"]
    configs = _configs(run_json(*_args(tmp_path, *words, gpu=gpu)))
    assert {config.direction for config in configs} == set(VARIANTS)
    assert {config.dtype_a for config in configs} == {"fp16", "bf16"}


def test_a_layout_says_the_number_of_dimensions(run_json: Callable[..., Any], tmp_path: Path) -> None:
    configs = _configs(run_json(*_args(tmp_path, "--layout", "ndhwgc", "--variant", "forward", "--dry-run")))
    assert {config.ndim for config in configs} == {3}


def test_sources_are_written(run_json: Callable[..., Any], tmp_path: Path) -> None:
    words = ["--variant", "backward_weight", "--ndim-spatial", "3", "--datatype", "bf16"]
    document = run_json(*_args(tmp_path, *words, "--preselected", "backward_weight_small", "--jobs", "1"))
    assert document["sets"] == ["backward_weight_small"]
    for slug in document["kernels"]:
        (path,) = (tmp_path / "kernels").glob(f"{slug}*")
        assert "Direction::backward_weight" in path.read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--ndim-spatial", "4"], "ndim is 4, must be 1 to 3"),
        (["--variant", "bwd_data"], "unknown direction 'bwd_data'."),
        (["--variant", "forwards"], "Did you mean 'forward'?"),
        (["--layout", "ngchw"], "unknown layout of grouped_conv 'ngchw'."),
        (["--datatype", "int8"], "has kernels with dtype int8. The rules accept"),
        (["--preselected", "forward_smal"], "Did you mean 'forward_small'?"),
    ],
)
def test_values_that_do_not_exist(more: list[str], message: str, run: Callable[..., Result], tmp_path: Path) -> None:
    result = run(*_args(tmp_path, *more))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not (tmp_path / "kernels").exists()
