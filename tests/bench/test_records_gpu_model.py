"""GPUs of one architecture that are different products: their results have other keys, and no sweep mixes them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from journalled import timed
from scripted_gpu import stand_in_as_gpu

import tilewright as tw
from tilewright.base.errors import InvalidValueError
from tilewright.bench.cluster.actor import _asked_gpu
from tilewright.bench.cluster.versions import unlike
from tilewright.bench.gpu_model import gpu_of
from tilewright.bench.query import query
from tilewright.bench.record import Task
from tilewright.bench.table import export
from tilewright.bench.versions import common_versions, versions_text
from tilewright.cli.app import root
from tilewright.emulator.memory import CAPACITY
from tilewright.emulator.stand_in.interface import DeviceFacts, facts_of
from tilewright.emulator.stand_in.opened import opened

pytestmark = pytest.mark.compile

# Products and their units. The fourth is the first one divided into eight; HIP has no name for the last.
MACHINE = [
    ("AMD Instinct MI300X", 304),
    ("AMD Instinct MI300A", 228),
    ("AMD Instinct MI300X", 304),
    ("AMD Instinct MI300X", 38),
    ("", 304),
]


def _tell_stand_in(facts: list[DeviceFacts]) -> None:
    stand_in = opened()
    listed = (DeviceFacts * len(facts))(*facts)
    stand_in.library.tilewright_open(listed, len(facts), ctypes.byref(stand_in._callbacks))


@pytest.fixture
def machine() -> Iterator[None]:
    """gpu:0 to gpu:4 are those of MACHINE, all of them gfx942."""
    real = [facts_of(gpu.arch, CAPACITY) for gpu in opened().gpus]
    facts = [facts_of(tw.arch.load("gfx942"), CAPACITY) for _ in MACHINE]
    for each, (name, units) in zip(facts, MACHINE, strict=True):
        each.name, each.units = name.encode(), units
    _tell_stand_in(facts)
    try:
        with stand_in_as_gpu():
            yield
    finally:
        _tell_stand_in(real)


@pytest.mark.usefixtures("machine")
def test_a_device_says_which_product_it_is() -> None:
    assert [tw.Device(f"gpu:{index}").model for index in range(5)] == [
        "AMD Instinct MI300X, 304 units",
        "AMD Instinct MI300A, 228 units",
        "AMD Instinct MI300X, 304 units",
        "AMD Instinct MI300X, 38 units",
        "gfx942 without a name, 304 units",
    ]
    assert {tw.Device(f"gpu:{index}").arch.name for index in range(5)} == {"gfx942"}


def test_an_emulated_device_is_a_model_too() -> None:
    """The stand-in is compiled against HIP's header: it answers to the header's number of the attribute."""
    for gpu in opened().gpus:
        model = tw.Device(f"emulated:{gpu.arch.name}").model
        assert model == f"{gpu.arch.product} (emulated), {gpu.arch.compute.units} units"


@pytest.mark.usefixtures("machine")
def test_a_result_depends_on_the_model() -> None:
    texts = [versions_text(f"gpu:{index}") for index in range(5)]
    assert texts[0] == texts[2] and len(set(texts)) == 4
    assert [gpu_of(text) for text in texts[:2]] == ["AMD Instinct MI300X, 304 units", "AMD Instinct MI300A, 228 units"]
    assert gpu_of(versions_text("emulated:gfx942")) is None and gpu_of("tests 1") is None
    assert json.loads(texts[0]).keys() == {"tilewright", "compiler", "toolchain", "ck", "hip", "gpu"}
    task = Task(op="gemm", arch="gfx942", kernel="k", problem="{}", device="gpu:0", versions=texts[0])
    assert task.key == replace(task, device="gpu:2", versions=texts[2]).key
    assert task.key != replace(task, versions=texts[1]).key


@pytest.mark.usefixtures("machine")
def test_a_sweep_on_gpus_that_differ_is_refused(tmp_path: Path) -> None:
    assert common_versions(["gpu:0", "gpu:2"]) == versions_text("gpu:0")
    with pytest.raises(InvalidValueError, match=r"gpu:0 is .*MI300X, 304 units; gpu:3 is .*MI300X, 38 units"):
        common_versions(["gpu:0", "gpu:3"])
    words = ["sweep", "fp16_rcr_essential", "--problem", "m=64,n=64,k=64", "--device", "gpu:0", "--device", "gpu:1"]
    result = CliRunner().invoke(root, [*words, "--limit", "1", "--out", str(tmp_path / "out")], prog_name="tilewright")
    assert result.exit_code == 2, result.output
    said = " ".join(result.stderr.split())
    assert "gpu:0 is AMD Instinct MI300X, 304 units; gpu:1 is AMD Instinct MI300A, 228 units" in said
    assert "Run one sweep for each model" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("machine")
def test_a_node_with_another_gpu_is_told() -> None:
    found = _asked_gpu()
    assert not isinstance(found, str)
    arch, node = found
    assert arch == "gfx942"
    assert unlike(versions_text("gpu:2"), node) == ""
    assert unlike(versions_text("gpu:1"), node) == (
        "gpu AMD Instinct MI300X, 304 units instead of AMD Instinct MI300A, 228 units"
    )


@pytest.mark.usefixtures("machine")
def test_the_model_is_a_column(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    records = [timed(i, us=10.0 + i, versions=versions_text(f"gpu:{i}")) for i in range(3)]
    export([*records, timed(3, versions="tests 1")], table)
    sql = "SELECT kernel FROM records WHERE gpu LIKE '%MI300X%' ORDER BY kernel"
    assert query(sql, table).rows == [("kernel-0",), ("kernel-2",)]
    assert query("SELECT kernel FROM records WHERE gpu IS NULL", table).rows == [("kernel-3",)]
