"""The reader of GPU files: what it refuses, and that it tells everything at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arch import load_file
from tilewright.arch.load import DATA
from tilewright.base.errors import FileFormatError

GOOD = (DATA / "gfx942.toml").read_text(encoding="utf-8")

MFMA_4X4 = "matrix_share.v_mfma_f32_4x4x4_16b_f16"


def problems(tmp_path: Path, text: str | bytes, *, name: str = "gfx942.toml") -> dict[str, str]:
    """Where → what of all problems that reading this text reports."""
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(FileFormatError) as caught:
        load_file(path)
    assert str(path) in str(caught.value)
    return {problem.where: problem.what for problem in caught.value.problems}


def changed(pattern: str, replacement: str, text: str = GOOD) -> str:
    """The good file with the one line that matches the pattern replaced."""
    result, count = re.subn(rf"(?m)^{pattern}.*$", replacement, text, count=1)
    assert count == 1, pattern
    return result


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    text = changed("units =", 'units = "many"')
    text = changed("vgprs =", "vgpr = 512", text)
    text = changed("family =", 'family = "cdna9"', text)
    text = changed("l2_bytes =", "", text)
    text = changed("fp64 =", "fp46 = 1.0", text)
    text = changed("waves =", 'waves = ["2x2x1", "8x8x1"]', text)
    text = changed("unit_bytes =", "unit_bytes = 1024", text)
    text = changed(r"\[mma.fp16_fp16_fp32\]", "[mma.fp16_fp16_fp16]", text)
    text = changed("16x16x4 =", '16x16x4 = "v_wmma_f32_16x16x16_f16"', text)
    found = problems(tmp_path, text)
    assert set(found) == {
        "compute.units",
        "registers.vgpr",
        "registers.vgprs",
        "family",
        "memory.l2_bytes",
        "peak_tflops.fp46",
        "waves.1",
        "lds.bytes",
        "mma.fp16_fp16_fp16",
        "mma.fp32_fp32_fp32.16x16x4",
    }
    assert "got 'many'" in found["compute.units"]
    assert found["registers.vgprs"] == "missing"
    assert found["memory.l2_bytes"] == "missing"
    assert "4096 threads, more than compute.max_block_threads = 1024" in found["waves.1"]
    assert "Did you mean 'cdna4'?" in found["family"]
    assert "v_mfma_" in found["mma.fp32_fp32_fp32.16x16x4"]
    assert "65536 is more than lds.unit_bytes = 1024" in found["lds.bytes"]


@pytest.mark.parametrize(
    ("line", "instead", "where", "hint"),
    [
        ("simds_per_unit", "simd_per_unit", "compute.simd_per_unit", "simds_per_unit"),
        ("wave_size", "wavesize", "wavesize", "wave_size"),
        ("bandwidth_gbs", "bandwith_gbs", "memory.bandwith_gbs", "bandwidth_gbs"),
        ("banks", "Banks", "lds.Banks", "banks"),
    ],
)
def test_an_unknown_key_names_the_nearest(tmp_path: Path, line: str, instead: str, where: str, hint: str) -> None:
    found = problems(tmp_path, re.sub(rf"(?m)^{line} =", f"{instead} =", GOOD))
    assert f"unknown key. Did you mean '{hint}'?" in found[where]
    assert "Known:" in found[where]
    assert found[where.replace(instead, hint)] == "missing"


@pytest.mark.parametrize(
    ("pattern", "replacement", "where", "what"),
    [
        ("fp64 =", "float = 163.4", "peak_tflops.float", "unknown dtype 'float'"),
        ("fp64 =", 'fp64 = "163.4"', "peak_tflops.fp64", "valid number"),
        ("fp64 =", "fp64 = inf", "peak_tflops.fp64", "finite"),
        ("fp64 =", "fp64 = -1.0", "peak_tflops.fp64", "greater than 0"),
        ("fp64 =", "fp64 = true", "peak_tflops.fp64", "valid number"),
        (r"\[mma.bf16_bf16_fp32\]", "[mma.bf16_fp32]", "mma.bf16_fp32", "bf16_bf16_fp32"),
        ("16x16x4 =", '16x16 = "v_mfma_x"', "mma.fp32_fp32_fp32.16x16", "pattern"),
        ("16x16x4 =", '0x16x4 = "v_mfma_x"', "mma.fp32_fp32_fp32.0x16x4", "pattern"),
        ("16x16x4 =", '16x16x4 = "mfma"', "mma.fp32_fp32_fp32.16x16x4", "pattern"),
        ("16x16x4 =", "16x16x4 = 4", "mma.fp32_fp32_fp32.16x16x4", "string"),
        ("16x16x4 =", '16x16x4 = "v_wmma_x"', "mma.fp32_fp32_fp32.16x16x4", "not a mfma"),
        ("waves =", 'waves = ["2x2"]', "waves.0", "pattern"),
        ("waves =", "waves = []", "waves", "at least 1"),
        ("wave_size =", "wave_size = 48", "wave_size", "32 or 64"),
        ("wave_size =", 'wave_size = "64"', "wave_size", "32 or 64"),
        ("matrix =", 'matrix = "mma"', "matrix", "'mfma' or 'wmma'"),
        ("agprs =", 'agprs = "some"', "registers.agprs", "'unified', 'separate' or 'none'"),
        ('fp8 = "', 'fp8 = "e4m3"', "numbers.fp8", "'fnuz' or 'ocp'"),
        ("halves_flushed =", "halves_flushed = 0", "numbers.halves_flushed", "valid boolean"),
        ("bf16_add =", "bf16_add = 1", "numbers.bf16_add", "valid boolean"),
        ("units =", "units = 304.0", "compute.units", "valid integer"),
        ("units =", "units = 0", "compute.units", "greater than or equal to 1"),
        ("lanes_per_simd =", "lanes_per_simd = 0", "compute.lanes_per_simd", "greater than or equal to 1"),
        ("launch_us =", "launch_us = 0.0", "compute.launch_us", "greater than 0"),
        ("l2_channels =", "l2_channels = 1.5", "memory.l2_channels", "valid integer"),
        (r"\[matrix_share\]", "[matrix_share]\nv_mfma_x = 0.5", "matrix_share.v_mfma_x", "unknown instruction"),
        ("v_mfma_f32_4x4x4_16b_f16 =", "v_mfma_f32_4x4x4_16b_f16 = 1.5", MFMA_4X4, "less than 1"),
        ("vgpr_granule =", "vgpr_granule = 7", "registers.vgpr_granule", "does not divide"),
        ("max_vgprs =", "max_vgprs = 1024", "registers.max_vgprs", "1024 is more than registers.vgprs = "),
        ("name =", 'name = "gfx941"', "name", "the file is called gfx942.toml"),
        ("name =", 'name = "mi300"', "name", "pattern"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, pattern: str, replacement: str, where: str, what: str) -> None:
    found = problems(tmp_path, changed(pattern, replacement))
    assert set(found) == {where}
    assert what in found[where]


@pytest.mark.parametrize(
    "text",
    [
        b"name = gfx942",
        b"\xff\xfe\x00",
        b"[compute\n",
        b"a = 1\na = 2",
        b"x = " + b"1" * 5000,
        b"x = " + b"[" * 20000,
    ],
    ids=["bare word", "not UTF-8", "open bracket", "key twice", "endless number", "deep nesting"],
)
def test_text_that_is_not_toml(tmp_path: Path, text: bytes) -> None:
    found = problems(tmp_path, text)
    assert set(found) == {""}
    assert found[""].startswith(("is not TOML:", "is not UTF-8:"))


def test_an_empty_file_misses_everything(tmp_path: Path) -> None:
    found = problems(tmp_path, "")
    assert {"name", "family", "waves", "compute", "registers", "lds", "memory", "mma"} <= set(found)
    assert set(found.values()) == {"missing"}


LINES = GOOD.splitlines()
JUNK = st.sampled_from(
    [
        "true",
        "[]",
        "{}",
        '""',
        "-1",
        "0",
        "1.5",
        "nan",
        "inf",
        "1979-05-27",
        '"x"',
        "[[1]]",
        "9" * 40,
    ]
)


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """The good file with some lines dropped, doubled, retyped, or overwritten with junk."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, len(lines) - 1))
        key, equals, _ = lines[index].partition(" = ")
        match draw(st.sampled_from(["drop", "value", "key", "double", "text", "insert"])):
            case "drop":
                lines[index] = ""
            case "value" if equals:
                lines[index] = f"{key} = {draw(JUNK)}"
            case "key" if equals:
                lines[index] = lines[index][draw(st.integers(1, 3)) :]
            case "double":
                lines.insert(index, lines[index])
            case "insert":
                lines.insert(index, f"[{draw(st.text('abm.op_[]x1', max_size=8))}]")
            case _:
                lines[index] = draw(st.text(max_size=20))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def scratch_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mangled") / "gfx942.toml"


@settings(max_examples=500, deadline=None)
@given(text=mangled())
def test_mangled_files_raise_only_file_format_errors(scratch_file: Path, text: str) -> None:
    scratch_file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    try:
        load_file(scratch_file)
    except FileFormatError as error:
        assert error.problems
        assert all(problem.what for problem in error.problems)


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(max_size=200))
def test_random_bytes_raise_only_file_format_errors(scratch_file: Path, junk: bytes) -> None:
    scratch_file.write_bytes(junk)
    with pytest.raises(FileFormatError):
        load_file(scratch_file)
