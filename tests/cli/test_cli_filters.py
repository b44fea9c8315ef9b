"""Filters of `generate` and `build`: fields of the op as options, and words that an op adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.base.errors import UnknownValueError
from tilewright.cli.filters import COMMON, resolve_filters, split_options
from tilewright.cli.generate import command
from tilewright.cli.kernel_choice import choose_kernels
from tilewright.ops import OPS, find_op, parse_kernel
from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, config_field
from tilewright.ops.op import Op

GEMM = find_op("gemm")


def _args(folder: Path, *more: str) -> list[str]:
    return ["generate", "gemm", "--output-dir", str(folder / "kernels"), "--gpu-target", "gfx942", *more, "--dry-run"]


@pytest.mark.parametrize(
    "words", [["--variant", "standard", "multi_d"], ["--variant=standard", "--variants", "multi_d"]]
)
def test_variant_is_another_word_for_variants(words: list[str], run_json: Callable[..., Any], tmp_path: Path) -> None:
    configs: list[Any] = [parse_kernel(slug).config for slug in run_json(*_args(tmp_path, *words))["kernels"]]
    assert {config.variant for config in configs} == {"standard", "multi_d"}


@pytest.mark.parametrize(
    "words", [["--pipeline", "compv3", "mem"], ["--pipeline=compv3,mem"], ["--pipeline", "mem,compv3"]]
)
def test_every_field_is_an_option(words: list[str], run_json: Callable[..., Any], tmp_path: Path) -> None:
    args = _args(tmp_path, *words, "--datatype", "fp16", "--layout", "rcr")
    configs: list[Any] = [parse_kernel(slug).config for slug in run_json(*args)["kernels"]]
    assert {config.pipeline for config in configs} == {"compv3", "mem"}
    assert {config.dtype_a for config in configs} == {"fp16"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--ndim-spatial", "2"], "unknown option for gemm '--ndim-spatial'."),
        (["--pipelin", "mem"], "Did you mean '--pipeline'? Known: --out,"),
        (["--pipeline", "mems"], "unknown pipeline 'mems'. Did you mean 'mem'?"),
        (["--pipeline"], "Option '--pipeline' requires a value."),
        (["--pipeline", "--limit", "2"], "Option '--pipeline' requires a value."),
        (["--wave-groups", "2", "--pipeline", "mem"], "has kernels with wave_groups 2 and pipeline mem. With such"),
        (["-z", "3"], "No such option"),
        (["--hlp"], "no option '--hlp', and as a filter it requires a value. Did you mean '--help'?"),
        (["--limt"], "no option '--limt', and as a filter it requires a value. Did you mean '--limit'?"),
    ],
)
def test_options_that_do_not_exist(more: list[str], message: str, run: Callable[..., Result], tmp_path: Path) -> None:
    result = run(*_args(tmp_path, *more))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_build_has_them_too(run: Callable[..., Result]) -> None:
    result = run("build", "gemm", "--gpu-target", "gfx942", "--ndim-spatial", "2")
    assert result.exit_code == 2
    assert "unknown option for gemm '--ndim-spatial'." in result.stderr


def test_the_op_after_a_field_is_explained(run: Callable[..., Result], tmp_path: Path) -> None:
    args = ["generate", "--output-dir", str(tmp_path), "--gpu-target", "gfx942"]
    assert "Missing argument 'KERNELS…'. It comes before --pipeline." in run(*args, "--pipeline", "mem", "gemm").stderr
    assert "Missing argument 'KERNELS…'" in run(*args).stderr


def test_a_misspelt_option_that_is_needed_is_named(run: Callable[..., Result]) -> None:
    result = run("select", "gemm", "--gpu-targt", "gfx942", "--problem", "m=1")
    assert result.exit_code == 2
    assert "unknown option for gemm '--gpu-targt'. Did you mean '--gpu'?" in result.stderr


def test_words_of_an_op() -> None:
    op = replace(GEMM, filters={"how_many": "num_d", "variants": "pipeline"})
    selected = resolve_filters(op, command, {"--variants": ("mem",), "--how-many": ("0",), "--pipeline": ("compv3",)})
    assert selected == {"pipeline": ("mem", "compv3"), "num_d": ("0",)}
    sets = [op.sets()["fp16_rcr_all"]]
    everything: list[Any] = [k.config for k in choose_kernels(op, "gfx942", sets, {}, None)]
    chosen: list[Any] = [k.config for k in choose_kernels(op, "gfx942", sets, selected, None)]
    assert chosen == [config for config in everything if config.pipeline in ("mem", "compv3") and config.num_d == 0]
    assert 0 < len(chosen) < len(everything)
    with pytest.raises(UnknownValueError, match=r"Known: .*--how-many"):
        resolve_filters(op, command, {"--how-few": ("1",)})


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_ops_declare_filters_and_report_fields_that_exist(op: Op) -> None:
    for target in op.filters.values():
        is_property = isinstance(getattr(op.config_type, target, None), property)
        assert is_property or target in (*op.field_names, *op.shorthands)
    assert set(op.report_fields.values()) <= set(op.field_names)
    # All have options in help texts. Rows of norms and top-k have no layout: they are contiguous. Grouped GEMM has one
    # kind, and sorting neither kinds nor types nor layouts.
    rows = {"norm": {"layout"}, "topk": {"layout"}, "moe_sorting": set(COMMON)}
    lacking = {**rows, "grouped_gemm": {"variants"}}
    assert set(COMMON) - {*op.filters, *op.field_names, *op.shorthands} == lacking.get(op.name, set())


@dataclass(frozen=True, kw_only=True)
class PlainConfig(ConfigBase):
    """A config without data types, layouts and variants."""

    kind: str = config_field(ChoiceType(("a", "b")), "kind of the kernel")
    width: int = config_field(CountType(1, 8), "width of the kernel")


@pytest.mark.parametrize("option", [f"--{word}" for word in COMMON])
def test_an_op_lacks_a_filter_that_the_command_has(option: str) -> None:
    op = replace(GEMM, config_type=PlainConfig, shorthands={}, filters={})
    with pytest.raises(UnknownValueError) as caught:
        resolve_filters(op, command, {option: ("fp16",)})
    assert str(caught.value) == f"unknown filter of gemm '{option}'. Known: --kind, --width."
    # A misspelt option is not taken for one that the op lacks.
    with pytest.raises(UnknownValueError) as caught:
        resolve_filters(op, command, {f"{option}s": ("fp16",)})
    assert option not in caught.value.known
    declared = replace(op, filters={option.removeprefix("--"): "kind"})
    assert resolve_filters(declared, command, {option: ("a",)}) == {"kind": ("a",)}


@pytest.mark.parametrize(
    ("args", "own", "others"),
    [
        (["op", "--x", "1", "--y", "a", "b", "--x", "2"], ["op", "--x", "1", "--x", "2"], {"--y": ("a", "b")}),
        (["--y=a,b", "--y", "c", "-s", "d"], ["-s", "d"], {"--y": ("a", "b", "c")}),
        (["--y", "--", "--z"], ["--", "--z"], {"--y": ()}),
        (["--x=1", "p"], ["--x=1", "p"], {}),
    ],
)
def test_split_options(args: list[str], own: list[str], others: dict[str, tuple[str, ...]]) -> None:
    assert split_options(args, {"--x"}) == (own, others)
