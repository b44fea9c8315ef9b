"""`problems`: what a file lists; `verify --problems`: which of it a kernel gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import tilewright as tw
from tilewright.base.errors import FileFormatError, InvalidValueError, UnknownValueError
from tilewright.cli.problems import (
    assign_problems,
    assign_texts,
    read_kernel_problems,
    read_listed_problems,
    read_open_problem,
    read_problem,
)
from tilewright.ops import OPS, find_op, kernel_of
from tilewright.ops.problem_field import list_declared_fields

LIST = "m,n,k,dtype,layout,batch\n1024,2048,512,fp16,rcr,\n1,4096,4096,fp16,rrr,2\n"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.csv"
    path.write_text(LIST)
    return path


def test_the_table(run: Callable[..., Result], shapes: Path) -> None:
    result = run("problems", "gemm", str(shapes))
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["m=1024", "n=2048", "k=512", "layout=rcr", "2.147", "7.34", "292.6"] in rows
    assert ["m=1", "n=4096", "k=4096", "layout=rrr", "batch=2", "0.067", "67.14", "1.0"] in rows
    assert "all of them: dtype_a=fp16 dtype_b=fp16 dtype_c=fp16\n" in result.stdout
    assert result.stdout.endswith("2 gemm problems: 2.215 GFLOP, 74.48 MB\n")


def test_fields_without_a_file(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    lines = run("problems", "fmha").stdout.splitlines()
    (row,) = (line for line in lines if line.startswith("kv_heads"))
    assert "0: the same as heads" in row and row.endswith("keys and values")
    fields = {field["field"]: field for field in run_json("problems", "gemm")["fields"]}
    assert fields["m"] == {
        "field": "m",
        "takes": "integer, at least 1",
        "default": "required",
        "meaning": "rows of A and C",
    }
    result = run("problems", "gemm", "--to", "csv")
    assert result.exit_code == 2 and "give FILE" in result.stderr


@pytest.mark.parametrize("command", ["select", "verify", "bench", "sweep", "tune"])
def test_the_help_of_a_problem_names_its_fields(command: str, run: Callable[..., Result]) -> None:
    text = " ".join(run(command, "--help").stdout.split())
    for op in OPS:
        assert f"{op.name} {', '.join(list_declared_fields(op.problem_type))}" in text
    assert "`tilewright problems OP`" in text


def test_json(run_json: Callable[..., Any], shapes: Path) -> None:
    first, second = run_json("problems", "gemm", str(shapes))["problems"]
    problem = tw.gemm.Problem(m=1024, n=2048, k=512, dtype="fp16", layout="rcr")
    assert tw.gemm.Problem(**first["problem"]) == problem
    assert (first["flops"], first["bytes_moved"]) == (problem.flops, problem.bytes_moved)
    assert first["intensity"] == round(problem.flops / problem.bytes_moved, 3)
    assert second["problem"]["batch"] == 2


@pytest.mark.parametrize("target", ["csv", "json"])
def test_other_formats(target: str, run: Callable[..., Result], shapes: Path) -> None:
    text = run("problems", "gemm", str(shapes), "--to", target).stdout
    path = shapes.with_name("other")
    path.write_text(text)
    assert tw.read_problems("gemm", path, target) == tw.read_problems("gemm", shapes)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--format", "jason"],
            "unknown format of a list of gemm problems 'jason'. Did you mean 'json'? Known: csv, json, aiter, ",
        ),
        (["--format", "json"], "is not JSON"),
        (["--to", "csv", "--json"], "give one of them"),
        (["--to", "xml"], "'xml' is not one of"),
    ],
)
def test_what_cannot_be_meant(more: list[str], message: str, run: Callable[..., Result], shapes: Path) -> None:
    result = run("problems", "gemm", str(shapes), *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_bad_files_are_one_error(run: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(f"{LIST}0,1,1,fp16,rcr,\n1,1,1,fp16,rc,\n")
    result = run("problems", "gemm", str(path))
    assert result.exit_code == 2
    assert "2 problems\n  line 4: m is 0" in result.stderr
    assert "line 5: unknown layout 'rc'" in result.stderr
    (tmp_path / "shapes.txt").write_text(LIST)
    result = run("problems", "gemm", str(tmp_path / "shapes.txt"))
    assert "so its format must be given. Known: csv, json, aiter, " in result.stderr


def test_a_problem_on_the_command_line_is_made_of_what_problems_are_made_of() -> None:
    """Words for several fields as well. Fields that the kernel fixes may be repeated, but not changed."""
    conv = find_op("grouped_conv")
    config: Any = conv.make_example()
    sizes = "n=2,c=16,k=16,input_size=8x8,filter_size=3"
    padded = read_problem(conv, config, f"{sizes},pad=1")
    assert (padded.left_pad, padded.right_pad, padded.dtype_a) == ((1, 1), (1, 1), "fp16")
    assert padded == read_problem(conv, config, f"{sizes},left_pad=1,right_pad=1")
    for fixed in ("dtype=fp16", "dtype_a=fp16", f"direction={config.direction}"):
        assert read_problem(conv, config, f"{sizes},{fixed}") == read_problem(conv, config, sizes)
    for changed in ("dtype", "dtype_a"):
        message = f"--problem gives {changed}=bf16, but the kernel has dtype_a=fp16"
        with pytest.raises(InvalidValueError, match=message):
            read_problem(conv, config, f"{sizes},{changed}=bf16")
    with pytest.raises(UnknownValueError, match="unknown direction 'fp16'"):
        read_problem(conv, config, f"{sizes},direction=fp16")
    with pytest.raises(UnknownValueError, match=r"'dtyp'.* Known: direction, n, g, c, k, input_size"):
        read_problem(conv, config, f"{sizes},dtyp=fp16")
    with pytest.raises(InvalidValueError, match="gives dtype twice"):
        read_problem(conv, config, f"{sizes},dtype=fp16,dtype=fp16")
    with pytest.raises(InvalidValueError, match="does not give c, filter_size"):
        read_problem(conv, config, "n=2,k=16,input_size=8x8")


def _kernels(**changes: list[Any]) -> list[Any]:
    """A kernel for each value of a field."""
    config = find_op("gemm").make_example()
    ((name, values),) = changes.items()
    return [kernel_of(replace(config, **{name: value}), "gfx942") for value in values]


def test_select_takes_open_fields_from_the_kernels() -> None:
    gemm = find_op("gemm")
    problem = tw.gemm.Problem(m=64, n=64, k=64, dtype="fp16", layout="rcr")
    sizes = "m=64,n=64,k=64"
    for text in (sizes, f"{sizes},dtype=fp16", f"{sizes},layout=rcr", f"{sizes},dtype=fp16,layout=rcr"):
        assert read_open_problem(gemm, _kernels(layout=["rcr"]), text) == problem
    both = _kernels(layout=["rcr", "rrr"])
    assert read_open_problem(gemm, both, f"{sizes},layout=rcr") == problem
    message = "m=64,n=64,k=64 does not give layout, and the kernels differ: layout rcr or rrr"
    with pytest.raises(InvalidValueError, match=message):
        read_open_problem(gemm, both, sizes)
    with pytest.raises(InvalidValueError, match="--problem gives dtype=bf16, but the kernel has dtype_a=fp16"):
        read_open_problem(gemm, both, f"{sizes},dtype=bf16")
    with pytest.raises(InvalidValueError, match="does not give k"):
        read_open_problem(gemm, both, "m=64,n=64")
    # A problem that no kernel is for is complete: selection explains why none of them supports it.
    other = read_open_problem(gemm, both, f"{sizes},dtype=bf16,layout=rcr")
    assert other == tw.gemm.Problem(m=64, n=64, k=64, dtype="bf16", layout="rcr")


def test_a_default_of_problems_comes_before_the_kernels() -> None:
    """Kernels with additional inputs, num_d, are among the kernels, and a plain GEMM is meant."""
    gemm = find_op("gemm")
    assert read_open_problem(gemm, _kernels(num_d=[0, 1, 2]), "m=64,n=64,k=64").num_d == 0


def test_fields_that_some_kernels_fix_otherwise_leave_these_out() -> None:
    both = _kernels(layout=["rcr", "rrr"])
    assert {p.layout for p in read_kernel_problems(both, ["m=1,n=2,k=3"])} == {"rcr", "rrr"}
    (problem,) = read_kernel_problems(both, ["m=1,n=2,k=3,layout=rrr"])
    assert problem.layout == "rrr"
    assigned = assign_texts(both, ["m=1,n=2,k=3,layout=rrr"])
    assert (assigned.tried, assigned.idle) == ({both[1]: [problem]}, [both[0]])
    with pytest.raises(InvalidValueError, match="--problem gives layout=ccr, but the kernel has layout=rcr"):
        read_kernel_problems(both, ["m=1,n=2,k=3,layout=ccr"])


@pytest.mark.parametrize("name", ["shapes.csv", "shapes.json"])
def test_files_may_omit_fields_that_the_kernels_fix(name: str, tmp_path: Path) -> None:
    path, gemm = tmp_path / name, find_op("gemm")
    path.write_text("m,n,k\n1,2,3\n1,2,3\n" if name.endswith("csv") else '[{"m": 1, "n": 2, "k": 3}]')
    one = _kernels(layout=["rcr"])
    expected = tw.gemm.Problem(m=1, n=2, k=3, dtype="fp16", layout="rcr")
    assert set(read_listed_problems(gemm, one, path, None)) == {expected}
    both = _kernels(layout=["rcr", "rrr"])
    assert {p.layout for p in read_listed_problems(gemm, both, path, None)} == {"rcr", "rrr"}
    with pytest.raises(FileFormatError, match="layout"):
        tw.read_problems("gemm", path)


def test_complete_lines_are_not_changed(tmp_path: Path) -> None:
    path, gemm = tmp_path / "shapes.csv", find_op("gemm")
    path.write_text("m,n,k,dtype,layout\n1,2,3,fp16,rcr\n1,2,3,bf16,\n4,5,6,,rrr\n")
    with pytest.raises(FileFormatError, match="line 3: has no layout"):
        read_listed_problems(gemm, _kernels(layout=["rcr"]), path, None)
    path.write_text("m,n,k,dtype,layout\n1,2,3,fp16,rcr\n1,2,3,bf16,rrr\n4,5,6,,rrr\n")
    found = read_listed_problems(gemm, _kernels(layout=["rcr", "rrr"]), path, None)
    assert [(p.m, p.dtype_a, p.layout) for p in found] == [(1, "fp16", "rcr"), (1, "bf16", "rrr"), (4, "fp16", "rrr")]


def test_commands_take_a_list_of_sizes(run_json: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text("m,n,k\n64,64,64\n128,128,64\n")
    out = ("--out", str(tmp_path / "sweep"), "--device", "emulated:gfx942", "--dry-run")
    assert run_json("sweep", "fp16_rcr_essential", "--problems", str(path), *out)["tasks"] == 20
    found = run_json("portfolio", "fp16_rcr_essential", "--gpu", "gfx942", "--problems", str(path), "--keep", "1")
    assert found["problems"] == 2


def test_kernels_get_the_problems_of_their_kind() -> None:
    config = find_op("gemm").make_example()
    columns = kernel_of(config, "gfx942")
    rows = kernel_of(replace(config, layout="rrr"), "gfx942")
    halves = kernel_of(replace(config, dtype_a="bf16", dtype_b="bf16", dtype_c="bf16"), "gfx942")
    problems = [
        tw.gemm.Problem(m=1, n=1, k=1, dtype=dtype, layout=layout)
        for dtype, layout in (("fp16", "rcr"), ("fp16", "rrr"), ("fp16", "rrr"), ("fp8", "rcr"))
    ]
    listed = assign_problems(problems, [columns, rows, halves])
    assert listed.tried == {columns: problems[:1], rows: problems[1:3]}
    assert (listed.idle, listed.left) == ([halves], problems[3:])


def test_verify_refuses_before_it_builds(run: Callable[..., Result], shapes: Path) -> None:
    slug = kernel_of(replace(find_op("gemm").make_example(), layout="crr"), "gfx942").slug
    args = ["verify", slug, "--device", "emulated:gfx942"]
    result = run(*args, "--problems", str(shapes))
    assert result.exit_code == 2
    assert "shapes.csv has 2 problems, none for these kernels; the first kernel is for dtype_a fp16" in result.stderr
    assert "layout crr" in result.stderr
    for other in (["--problem", "m=1,n=2,k=3"], ["--trials", "2"]):
        both = run(*args, "--problems", str(shapes), *other)
        assert "--problem, --problems and --trials exclude each other" in both.stderr
    alone = run(*args, "--format", "csv")
    assert "--format applies to files only" in alone.stderr


def test_one_problem_is_written_out(run: Callable[..., Result], shapes: Path) -> None:
    path = shapes.with_name("one.json")
    path.write_text(json.dumps([{"m": 1, "n": 2, "k": 3, "dtype": "fp16", "layout": "rcr"}]))
    shown = run("problems", "gemm", str(path)).stdout
    assert "m=1 n=2 k=3 dtype_a=fp16" in shown
    assert "all of them" not in shown
