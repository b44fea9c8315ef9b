"""Importers: the public sets, each taken or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.sources import DATA
from tilewright.base.errors import FileFormatError, InvalidValueError, UnknownValueError
from tilewright.bench.sources import NOT_OURS, list_formats, read_foreign
from tilewright.bench.table import export_table, read_table
from tilewright.learn.from_records import to_measurements
from tilewright.ops import parse_kernel
from tilewright.ops.grouped_conv.gfx950_times import COLUMNS

CONV = DATA / "ck_tile_conv_gfx950" / "conv_fwd_bf16_gfx950.csv"
needs_data = pytest.mark.skipif(not CONV.is_file(), reason=f"{CONV} is not there")


@needs_data
def test_the_public_sets_that_cannot_be_imported_exist() -> None:
    """More may be added next to the checkout at any time; a name here that nobody has would be a mistake."""
    folders = {path.name for path in DATA.iterdir() if path.is_dir()}
    assert folders >= {*NOT_OURS, "ck_tile_conv_gfx950"}


@needs_data
def test_the_public_convolutions_are_those_of_our_evaluation(tmp_path: Path) -> None:
    """The same kernels, problems and times as the evaluation of selection has, from the other way."""
    from research import conv_data

    found = read_foreign("conv_gfx950", CONV)
    data = conv_data.load().data
    assert not found.refused and "64 of 231 problems" in found.notes[0]
    assert len(found.records) == len(data) == 2990
    assert {parse_kernel(record.task.kernel) for record in found.records} == set(data.kernels)
    table = to_measurements(found.records)
    assert sorted(table.us.tolist()) == sorted(data.us.tolist())
    export_table(found.records, tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet")) == list(found.records)
    first = found.records[0].times
    assert first is not None and first.us_min <= first.us <= first.us_max and first.runs == 2


def test_rows_that_are_none_of_ours(tmp_path: Path) -> None:
    good = "0,1,64,64,1,8,8,3,3,1,1,1,1,0.99,16,64,64,compv3,10"
    rows = [good, good.replace("compv3,10", "compv3,30"), good.replace("compv3", "compv9"), good.replace(",10", ",-1")]
    (tmp_path / "t.csv").write_text("\n".join([",".join(COLUMNS), *rows, good.replace("0.99", "")]) + "\n")
    found = read_foreign("conv_gfx950", tmp_path / "t.csv")
    (record,) = found.records
    assert record.times is not None and (record.times.us, record.times.us_min, record.times.runs) == (20, 10, 2)
    assert [problem.where for problem in found.refused] == ["line 4", "line 5", "line 6"]
    assert "none of the sweep's labels" in found.refused[0].what and "must be above 0" in found.refused[1].what


@pytest.mark.parametrize("direction", ["forward", "bwd_data", "bwd_weight"])
def test_the_benchmark_of_convolutions_in_each_direction(tmp_path: Path, direction: str) -> None:
    from tilewright.ops.grouped_conv import benchmark_times

    results = {"forward": 64 * 49, "bwd_data": 48 * 64, "bwd_weight": 64 * 48 * 4}[direction]
    sizes = "0,1,48,64,1,8,8,2,2,1,1,0,0"
    rows = [
        f"grouped_conv_{direction}_bf16_2d_64x64x64_compv3,{sizes},0.01,{results}",
        f"grouped_conv_{direction}_bf16_2d_64x64x64_compv3,{sizes.replace('0', '1', 1)},0.02,{results // 2}",
        f"grouped_conv_{direction}_bf16_2d_64x64x64_compv9,{sizes},0.01,{results}",
        f"{direction}_bf16,{sizes},0.01,{results}",
    ]
    (tmp_path / "t.csv").write_text("\n".join([",".join(benchmark_times.COLUMNS), *rows]) + "\n")
    found = read_foreign("conv_benchmark", tmp_path / "t.csv", arch="gfx950")
    wanted = direction.replace("bwd", "backward")
    (record,) = found.records  # of one problem: the two rows differ in its number only
    assert record.task.kernel.startswith(f"grouped_conv-gfx950-{wanted}-nd2-bf16-bf16-fp32-bf16-b64x64x64-")
    assert record.times is not None and (record.times.us_min, record.times.runs) == (10, 2)
    assert "for 1 of 2 problems" in found.notes[0]
    assert [problem.where for problem in found.refused] == ["line 4", "line 5"]
    assert "none of the sweep's labels" in found.refused[0].what and "is not named" in found.refused[1].what


def test_the_benchmark_of_convolutions_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="give it with --gpu"):
        read_foreign("conv_benchmark", tmp_path / "t.csv")


def test_a_row_that_is_cut_short_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",".join(COLUMNS) + "\n0,1,64\n")
    (refused,) = read_foreign("conv_gfx950", tmp_path / "t.csv").refused
    assert str(refused) == "line 2: has 3 cells, the header has 19"


@pytest.mark.parametrize("name", ["conv_gfx950", "tile_engine"])
def test_files_that_are_no_text(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_bytes(b"name,m\n\xff\xfe,1\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "folder.csv" / "t.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"t\.csv.*(?s:.)*is not UTF-8: invalid start byte at byte 7"):
        read_foreign(name, tmp_path / "t.csv")
    with pytest.raises(FileFormatError, match=r"cannot be read: Is a directory|is not JSON"):
        read_foreign(name, tmp_path / "folder.csv")


def test_what_cannot_be_imported(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(FileFormatError, match="has no column for problem_idx, N"):
        read_foreign("conv_gfx950", file)
    with pytest.raises(UnknownValueError, match="Known: conv_benchmark, conv_gfx950, tile_engine"):
        read_foreign("conv", file)
    with pytest.raises(InvalidValueError, match="assembly with other parameters"):
        read_foreign("hipblaslt_mi250x_fp16_sweep", file)
    with pytest.raises(UnknownValueError, match="option of the format conv_gfx950 'arch'"):
        read_foreign("conv_gfx950", file, arch="gfx942")
    assert list_formats()["tile_engine"].options == ("arch", "elementwise", "permute_n")
