"""A new GPU is one file: nothing else changes for it to be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.arch import Shape, arch_names, load
from tilewright.arch.load import DATA
from tilewright.arch.occupancy import compute_occupancy
from tilewright.base.errors import FileFormatError, UnknownValueError

MADE_UP = """
name = "gfx999"
family = "cdna4"
product = "Made Up 1"
wave_size = 64
matrix = "mfma"
waves = ["2x2x1"]

[compute]
units = 10
simds_per_unit = 4
max_waves_per_simd = 8
max_blocks_per_unit = 16
max_block_threads = 1024
clock_mhz = 1000
dies = 1
lanes_per_simd = 16
launch_us = 2

[registers]
vgprs = 512
vgpr_granule = 8
max_vgprs = 256
agprs = "unified"
sgprs = 800
sgpr_granule = 16
max_sgprs = 102

[lds]
bytes = 65536
unit_bytes = 65536
granule = 512
banks = 32
async_copy_bytes = 0
transpose_read_bytes = 0
bytes_per_clock = 128
latency_clocks = 128

[memory]
bandwidth_gbs = 100.5
capacity_gib = 1
l2_bytes = 1048576
mall_bytes = 0
line_bytes = 128
l1_bytes_per_clock = 64
l2_channels = 16
l2_bytes_per_clock = 64
latency_clocks = 700
store_cost = 2

[numbers]
fp8 = "ocp"
halves_flushed = false
bf16_add = true

[peak_tflops]
fp16 = 1

[mma.fp16_fp16_fp32]
16x16x16 = "v_mfma_f32_16x16x16_f16"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "gfx999.toml").write_text(MADE_UP, encoding="utf-8")
    monkeypatch.setenv("TILEWRIGHT_ARCH_PATH", str(tmp_path))
    return tmp_path


def test_a_file_makes_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arch = load("gfx999")
    assert arch.source == str(folder / "gfx999.toml")
    assert arch.mma_shapes("fp16", "fp16", "fp32") == {Shape(16, 16, 16): "v_mfma_f32_16x16x16_f16"}
    got = compute_occupancy(arch, vgprs=64, agprs=0, sgprs=32, lds_bytes=0, block_threads=256)
    assert got.waves_per_simd == 8
    known = arch_names()
    monkeypatch.delenv("TILEWRIGHT_ARCH_PATH")
    assert set(known) == {*arch_names(), "gfx999"}
    with pytest.raises(UnknownValueError, match="unknown arch 'gfx999'"):
        load("gfx999")


@pytest.mark.usefixtures("folder")
def test_the_others_are_as_before() -> None:
    assert load("gfx942").source == str(DATA / "gfx942.toml")


def test_a_changed_file_is_read_again(folder: Path) -> None:
    assert load("gfx999").compute.units == 10
    path = folder / "gfx999.toml"
    path.write_text(MADE_UP.replace("units = 10", "units = 1234"), encoding="utf-8")
    assert load("gfx999").compute.units == 1234


def test_a_file_of_the_folder_replaces_a_shipped_one(folder: Path) -> None:
    text = (DATA / "gfx942.toml").read_text(encoding="utf-8")
    own = folder / "gfx942.toml"
    own.write_text(text.replace("units = 304", "units = 228"), encoding="utf-8")
    assert (load("gfx942").compute.units, load("gfx942").source) == (228, str(own))


def test_a_broken_file_breaks_only_itself(folder: Path) -> None:
    (folder / "gfx998.toml").write_text("name = 1", encoding="utf-8")
    assert "gfx998" in arch_names()
    assert load("gfx999").name == "gfx999"
    with pytest.raises(FileFormatError, match=r"gfx998\.toml: \d+ problems"):
        load("gfx998")
