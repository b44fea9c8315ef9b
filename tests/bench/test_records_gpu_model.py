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
from tilewright.bench.cluster.actor import _probe_gpu
from tilewright.bench.cluster.session import describe_differences
from tilewright.bench.gpu_model import get_gpu_model
from tilewright.bench.record import Task
from tilewright.bench.sources import run_query
from tilewright.bench.table import export_table
from tilewright.bench.versions import format_versions, merge_versions
from tilewright.cli.app import root
from tilewright.emulator.hip_shim.interface import DeviceFacts, describe_device
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.emulator.memory import CAPACITY

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
    stand_in = open_shim()
    listed = (DeviceFacts * len(facts))(*facts)
    stand_in.library.tilewright_open(listed, len(facts), ctypes.byref(stand_in._callbacks))


@pytest.fixture
def machine() -> Iterator[None]:
    """gpu:0 to gpu:4 are those of MACHINE, all of them gfx942."""
    real = [describe_device(gpu.arch, CAPACITY) for gpu in open_shim().gpus]
    facts = [describe_device(tw.arch.load("gfx942"), CAPACITY) for _ in MACHINE]
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
    for gpu in open_shim().gpus:
        model = tw.Device(f"emulated:{gpu.arch.name}").model
        assert model == f"{gpu.arch.product} (emulated), {gpu.arch.compute.units} units"


@pytest.mark.usefixtures("machine")
def test_a_result_depends_on_the_model() -> None:
    texts = [format_versions(f"gpu:{index}") for index in range(5)]
    assert texts[0] == texts[2] and len(set(texts)) == 4
    assert [get_gpu_model(text) for text in texts[:2]] == [
        "AMD Instinct MI300X, 304 units",
        "AMD Instinct MI300A, 228 units",
    ]
    assert get_gpu_model(format_versions("emulated:gfx942")) is None and get_gpu_model("tests 1") is None
    assert json.loads(texts[0]).keys() == {"tilewright", "compiler", "toolchain", "ck", "hip", "gpu"}
    task = Task(op="gemm", arch="gfx942", kernel="k", problem="{}", device="gpu:0", versions=texts[0])
    assert task.key == replace(task, device="gpu:2", versions=texts[2]).key
    assert task.key != replace(task, versions=texts[1]).key


@pytest.mark.usefixtures("machine")
def test_a_sweep_on_gpus_that_differ_is_refused(tmp_path: Path) -> None:
    assert merge_versions(["gpu:0", "gpu:2"]) == format_versions("gpu:0")
    with pytest.raises(InvalidValueError, match=r"gpu:0 is .*MI300X, 304 units; gpu:3 is .*MI300X, 38 units"):
        merge_versions(["gpu:0", "gpu:3"])
    words = ["sweep", "fp16_rcr_essential", "--problem", "m=64,n=64,k=64", "--device", "gpu:0", "--device", "gpu:1"]
    result = CliRunner().invoke(root, [*words, "--limit", "1", "--out", str(tmp_path / "out")], prog_name="tilewright")
    assert result.exit_code == 2, result.output
    said = " ".join(result.stderr.split())
    assert "gpu:0 is AMD Instinct MI300X, 304 units; gpu:1 is AMD Instinct MI300A, 228 units" in said
    assert "Run one sweep for each model" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("machine")
def test_a_node_with_another_gpu_is_told() -> None:
    found = _probe_gpu()
    assert not isinstance(found, str)
    arch, node = found
    assert arch == "gfx942"
    assert describe_differences(format_versions("gpu:2"), node) == ""
    assert describe_differences(format_versions("gpu:1"), node) == (
        "gpu AMD Instinct MI300X, 304 units instead of AMD Instinct MI300A, 228 units"
    )


@pytest.mark.usefixtures("machine")
def test_the_model_is_a_column(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    records = [timed(i, us=10.0 + i, versions=format_versions(f"gpu:{i}")) for i in range(3)]
    export_table([*records, timed(3, versions="tests 1")], table)
    sql = "SELECT kernel FROM records WHERE gpu LIKE '%MI300X%' ORDER BY kernel"
    assert run_query(sql, table).rows == [("kernel-0",), ("kernel-2",)]
    assert run_query("SELECT kernel FROM records WHERE gpu IS NULL", table).rows == [("kernel-3",)]
