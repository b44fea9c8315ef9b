"""Closed world: an unknown name is an error that names the nearest known one and lists all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.arch import arch_names, load
from tilewright.arch.dtypes import ACCUMULATORS, DTYPES, find_accumulator, find_dtype, major_name
from tilewright.base.errors import InvalidValueError, KnobError, UnknownValueError


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        ("gfx94", "gfx942"),
        ("gfx1102", "gfx1100"),
        ("gfx942:sramec+", "gfx942"),
        ("gfx942:", "gfx942"),
    ],
)
def test_unknown_arch(value: str, nearest: str) -> None:
    with pytest.raises(UnknownValueError) as caught:
        load(value)
    assert f"unknown arch {value!r}. Did you mean '{nearest}'?" in str(caught.value)
    assert caught.value.known == arch_names()


@pytest.mark.parametrize(
    "value", ["gfx942", "GFX942", "gfx942:sramecc+", "gfx942:sramecc+:xnack-", "Gfx942:XNACK+", "MI300X"]
)
def test_names_of_one_gpu(value: str) -> None:
    assert load(value).name == "gfx942"


@pytest.mark.parametrize("value", ["", "mi300z", "native", "../gfx942", "gfx942.toml"])
def test_unknown_arch_lists_the_known(value: str) -> None:
    with pytest.raises(UnknownValueError, match="Known: gfx908, gfx90a, gfx942, gfx950"):
        load(value)


@pytest.mark.parametrize(
    ("value", "nearest"),
    [("f16", "fp16"), ("float16", "fp16"), ("BF16", "bf16"), ("pkfp4", "pk_fp4")],
)
def test_unknown_dtype(value: str, nearest: str) -> None:
    with pytest.raises(UnknownValueError) as caught:
        find_dtype(value)
    assert f"unknown dtype {value!r}. Did you mean '{nearest}'?" in str(caught.value)
    assert caught.value.known == tuple(DTYPES)


def test_known_dtypes() -> None:
    assert [(find_dtype(n).packed, find_dtype(n).storage_bytes) for n in ("fp32", "fp8", "pk_fp4")] == [
        (1, 4),
        (1, 1),
        (2, 1),
    ]


def test_accumulators() -> None:
    assert find_accumulator("fp16", "fp16") == "fp32"
    assert find_accumulator("int8", "int8") == "int32"
    assert all(name in DTYPES for pair in ACCUMULATORS for name in (*pair, ACCUMULATORS[pair]))


def test_a_pair_without_a_matrix_instruction() -> None:
    with pytest.raises(InvalidValueError, match=r"multiplies fp16 by bf16\. Known pairs: .*fp8×bf8"):
        find_accumulator("fp16", "bf16")


def test_a_pair_with_an_unknown_dtype() -> None:
    with pytest.raises(UnknownValueError, match="Did you mean 'bf16'"):
        find_accumulator("fp16", "bf61")


def test_unknown_layout_letter() -> None:
    assert major_name("r") == "RowMajor"
    with pytest.raises(UnknownValueError, match=r"unknown layout letter 'R'\. Did you mean 'r'"):
        major_name("R")


def test_names_are_in_order_of_generation() -> None:
    shipped = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201")
    assert arch_names() == shipped


def test_a_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_ARCH_PATH", str(tmp_path / "nowhere"))
    with pytest.raises(KnobError, match=r"TILEWRIGHT_ARCH_PATH=.*nowhere.*the folder does not exist"):
        arch_names()
