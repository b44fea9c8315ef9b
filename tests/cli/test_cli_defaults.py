"""The defaults of a project: which file counts, which values it may have, and what wins over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.base.defaults import Defaults, find_defaults
from tilewright.base.errors import FileFormatError

TABLE = '[project]\nname = "x"\n\n[tool.tilewright]\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write the [tool.tilewright] table of a project, and go to a folder in it."""

    def write(text: str) -> Path:
        path = tmp_path / "pyproject.toml"
        path.write_text(TABLE + text)
        inner = tmp_path / "src" / "inner"
        inner.mkdir(parents=True)
        monkeypatch.chdir(inner)
        return path

    return write


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = tmp_path / "pyproject.toml"
    outer.write_text(f'{TABLE}gpu = "gfx942"\njobs = 2\n')
    (inner / "pyproject.toml").write_text('[project]\nname = "other"\n')  # no table: skipped
    assert find_defaults(inner) == Defaults({"gpu": "gfx942", "jobs": 2}, outer)
    nearer = tmp_path / "a" / "tilewright.toml"
    nearer.write_text('gpu = "gfx950"\n')
    assert find_defaults(inner) == Defaults({"gpu": "gfx950"}, nearer)
    assert find_defaults(tmp_path) == Defaults({"gpu": "gfx942", "jobs": 2}, outer)


def test_the_own_file_wins_over_the_table_in_the_same_folder(
    project: Callable[[str], Path], tmp_path: Path, run: Callable[..., Result]
) -> None:
    table = project('gpu = "gfx942"\n')
    own = tmp_path / "tilewright.toml"
    own.write_text('gpu = "gfx950"\n')
    assert find_defaults(tmp_path) == Defaults({"gpu": "gfx950"}, own, table)
    shown = " ".join(run("knobs").stdout.split())
    assert f"[tool.tilewright] in {table} is not used: tilewright.toml in the same folder wins." in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus = 1\n", "tool.tilewright.gpus: unknown key 'gpus'. Did you mean 'gpu'? Known: gpu, device, jobs, "),
        ("jobs = 0\n", "tool.tilewright.jobs: must be an integer of at least 1, got 0"),
        ("jobs = true\n", "tool.tilewright.jobs: must be an integer of at least 1, got"),
        ("gpu = 942\n", "tool.tilewright.gpu: must be a text, got 942"),
        ('dtype = ["fp16"]\n', "tool.tilewright.dtype: must be a text, got"),
        ("gpu = gfx942\n", "is not TOML"),
    ],
)
def test_a_bad_file_is_an_error_that_names_it(
    text: str, message: str, project: Callable[[str], Path], run: Callable[..., Result]
) -> None:
    path = project(text)
    result = run("space", "fp16_rcr_essential")
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(path) in result.stderr and message in result.stderr
    assert run("--help").exit_code == 0  # needs no defaults


def test_a_table_must_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\ntilewright = 3\n")
    with pytest.raises(FileFormatError, match=r"tool.tilewright: must be a table, got 3"):
        find_defaults(tmp_path)


def test_files_of_other_tools_are_not_checked(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[broken\n")
    assert "broken" not in str(find_defaults(tmp_path).path)


def test_help_shows_the_value_and_its_file(project: Callable[[str], Path], run: Callable[..., Result]) -> None:
    path = project('gpu = "MI300X"\ndevice = "emulated:gfx942"\njobs = 3\ndtype = "fp16"\n')
    # The path may be folded over several lines.
    shown = "".join(run("build", "--help").stdout.split())
    assert f"[default:MI300X,from{path}]" in shown
    assert f"[default:fp16,from{path}]" in shown
    assert f"[default:3,from{path};x>=1]" in shown
    assert f"[default:emulated:gfx942,from{path}]" in "".join(run("verify", "--help").stdout.split())
    assert "required" not in run("space", "--help").stdout


def test_the_command_line_wins(project: Callable[[str], Path], run_json: Callable[..., Any]) -> None:
    project('gpu = "MI300X"\n')
    counted = run_json("space", "fp16_rcr_essential")
    assert [each["arch"] for each in counted["archs"]] == ["gfx942"]
    counted = run_json("space", "fp16_rcr_essential", "--gpu", "gfx950")
    assert [each["arch"] for each in counted["archs"]] == ["gfx950"]


def test_variables_win_over_the_file(
    project: Callable[[str], Path], run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    project('device = "emulated:gfx950"\njobs = 7\n')
    args = ("verify", "fp16_rcr_essential", "--problem", "m=0,n=1,k=1")
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "emulated:gfx000")
    monkeypatch.setenv("TILEWRIGHT_JOBS", "2")
    assert "gfx000" in run(*args).stderr
    shown = run("knobs").stdout
    assert "7 (overridden by TILEWRIGHT_JOBS)" in shown
    assert "[default: TILEWRIGHT_JOBS, or one per core" in " ".join(run("build", "--help").stdout.split())
    assert "emulated:gfx942: unknown" not in run(*args, "--device", "emulated:gfx942").stderr


def test_the_gpu_of_a_kernel_name_is_not_replaced(
    project: Callable[[str], Path], run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    project('gpu = "gfx942"\n')
    name = run_json("check", "gemm", "--gpu", "gfx90a", *settings(mma="32x32x8"))["kernel"]
    assert run_json("check", name)["arch"] == "gfx90a"
    assert run_json("check", "gemm", *settings())["arch"] == "gfx942"
    assert run_json("select", name, "--problem", "m=256,n=256,k=256")["arch"] == "gfx90a"


def test_types_and_layouts_that_are_left_open(
    project: Callable[[str], Path],
    run: Callable[..., Result],
    run_json: Callable[..., Any],
    settings: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    project('gpu = "gfx942"\ndtype = "bf16"\nlayout = "rcr"\n')
    open_ = settings(dtype=None, layout=None)
    assert "-bf16-bf16-fp32-bf16-rcr-" in run_json("check", "gemm", *open_)["kernel"]
    assert "-fp16-fp16-fp32-fp16-rrr-" in run_json("check", "gemm", *settings(layout="rrr"))["kernel"]
    counted = run_json("space", "gemm", *open_)
    assert counted["archs"][0]["kernels"] == 1
    kernels = run_json("generate", "gemm", "--out", str(tmp_path / "out"), "--dry-run")["kernels"]
    assert kernels and all("-bf16-bf16-fp32-bf16-rcr-" in name for name in kernels)
    # A named set is not filtered, and a problem may have another type.
    named = run_json("generate", "fp16_rcr_essential", "--out", str(tmp_path / "out"), "--dry-run")["kernels"]
    assert len(named) == 10
    assert "-bf16-" in run("select", "gemm", "--problem", "m=64,n=64,k=64").stdout
    assert "-fp16-" in run("select", "gemm", "--problem", "m=64,n=64,k=64,dtype=fp16").stdout


def test_a_layout_of_another_op_is_not_used(project: Callable[[str], Path], run: Callable[..., Result]) -> None:
    project('gpu = "gfx942"\nlayout = "rcr"\n')
    result = run("check", "fmha")
    assert "fmha needs" in result.stderr and "rcr" not in result.stderr


def test_a_failed_command_lists_the_defaults_that_it_used(
    project: Callable[[str], Path], run: Callable[..., Result]
) -> None:
    path = project('gpu = "gfx924"\ndevice = "emulated:gfx942"\njobs = 2\n')
    result = run("space", "fp16_rcr_essential")
    assert result.exit_code == 2
    assert "unknown arch 'gfx924'. Did you mean 'gfx942'?" in result.stderr
    assert f"\n       Defaults from {path}: gpu = gfx924.\n" in result.stderr


def test_records_are_not_measured_or_filtered_by_default(
    project: Callable[[str], Path], run: Callable[..., Result]
) -> None:
    """`tune` measures only if --device is given, and `tune`, `train` and `evaluate` read records of all GPUs."""
    project('gpu = "gfx942"\ndevice = "emulated:gfx942"\n')
    result = run("tune", "nothing", "--out", "winners.json")
    assert "needs times" not in result.stderr and "nothing" in result.stderr
    assert "from" not in run("train", "--help").stdout.partition("--gpu GPU")[2].partition("--")[0]


def test_knobs_and_doctor_show_them(
    project: Callable[[str], Path], run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    path = project('gpu = "gfx942"\njobs = 2\n')
    found = {entry["name"]: entry for entry in run_json("knobs") if entry["kind"] == "default"}
    assert {name: entry["value"] for name, entry in found.items()} == {"gpu": "gfx942", "jobs": 2}
    assert {entry["file"] for entry in found.values()} == {str(path)}
    assert f"Defaults from {path}" in run("knobs").stdout
    assert f"  defaults from {path}: gpu = gfx942, jobs = 2\n" in run("doctor").stdout


def test_unknown_variables_are_found(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_JBOS", "3")
    monkeypatch.setenv("TILEWRIGHT_TEST_BROWSER", "no")
    message = "the environment variable TILEWRIGHT_JBOS is not read. Did you mean TILEWRIGHT_JOBS?"
    shown = run("knobs")
    assert shown.exit_code == 1 and f"unknown: {message}" in shown.stdout
    assert "TEST_BROWSER" not in shown.stdout
    assert f"warning: {message}" in run("doctor").stderr
