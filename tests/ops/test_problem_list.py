"""Lists of problems in files: what is read, what is written, and what is said about bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.base.errors import FileFormatError, InvalidValueError, UnknownValueError
from tilewright.ops import find_op
from tilewright.ops.grouped_conv.config import DIRECTIONS
from tilewright.ops.grouped_conv.problem import Problem as Convolution
from tilewright.ops.op import Op
from tilewright.ops.problem_list import read_problems, to_csv, to_json

GEMM = find_op("gemm")
# Only the name and the problems of an op take part here.
CONVOLUTION = replace(GEMM, name="convolution", problem_type=Convolution)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def faults(op: Op, path: Path, format: str | None = None) -> list[str]:
    with pytest.raises(FileFormatError) as caught:
        read_problems(op, path, format)
    assert str(caught.value).startswith(f"{path}: ")
    return [str(problem) for problem in caught.value.problems]


def gemm(**values: Any) -> Any:
    return tw.gemm.Problem(**{"m": 8, "n": 16, "k": 32, "dtype": "fp16", "layout": "rcr", **values})


def test_csv_with_defaults_blanks_and_the_mark_of_a_spreadsheet(file: Callable[[str, str], Path]) -> None:
    header = "\ufeffm, n,k ,dtype,layout,batch,elementwise"
    lines = [header, "8,16,32,fp16,rcr,,", ",,,,,,", "", "8,16,32,fp8*bf8,rrr, 3 ,Relu", ""]
    path = file("a.CSV", "\r\n".join(lines))
    expected = [gemm(), gemm(dtype="fp8*bf8", layout="rrr", batch=3, elementwise="Relu")]
    assert tw.read_problems("gemm", str(path)) == expected
    assert read_problems(GEMM, path, "csv") == expected


def test_extents_and_shorthands(file: Callable[[str, str], Path]) -> None:
    path = file(
        "a.csv",
        "direction,n,g,c,k,input_size,filter_size,stride,pad,left_pad,dtype\n"
        "forward,2,,8,16,28x30,3x1,2,1x0,,bf16\n"
        "backward_weight,2,4,8,16,9,3,,,2,fp32\n",
    )
    first, second = read_problems(CONVOLUTION, path)
    assert (first.input_size, first.filter_size, first.stride) == ((28, 30), (3, 1), (2, 2))
    assert (first.left_pad, first.right_pad, first.dtype_c) == ((1, 0), (1, 0), "bf16")
    assert (second.input_size, second.left_pad, second.right_pad, second.g) == ((9,), (2,), (0,), 4)


@pytest.mark.parametrize("form", ["[{}]", '{{"problems": [{}]}}', '{{"op": "gemm", "problems": [{}]}}'])
def test_forms_of_json(form: str, file: Callable[[str, str], Path]) -> None:
    entry = '{"m": 8, "n": 16, "k": 32, "dtype": "fp16", "layout": "rcr", "batch": null}'
    path = file("a.json", form.replace("{}", entry).replace("{{", "{").replace("}}", "}"))
    assert read_problems(GEMM, path) == [gemm()]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "a.csv",
            "m,n,k,dtype,layout\n0,1,1,fp16,rcr\n1,1,1,fp16,rcr\n1,,1,fp16,rcr\n1,1,1,bf61,rcr\n1,1\n1,x,1,fp16,rcr\n",
            [
                "line 2: m is 0, must be at least 1",
                "line 4: has no n",
                "line 5: unknown dtype 'bf61'. Did you mean 'bf16'? Known: fp64,",
                "line 6: has 2 cells, the header has 5",
                "line 7: n must be an integer, got 'x'",
            ],
        ),
        (
            "a.csv",
            "\nm,kk,n,m\n0,0,0,0\n",
            [
                "line 2: has the column 'm' 2 times",
                "line 2: has no column for k, layout",
                "line 2: unknown field of a gemm problem 'kk'. Did you mean 'k'? Known: m, n, k, dtype,",
            ],
        ),
        ("a.csv", 'm,n\n1,"2\n', ["line 2: is not CSV: unexpected end of data"]),
        ("a.csv", "", ["is empty: its first line must name columns. Known: m, n, k,"]),
        ("a.csv", "m,n,k,dtype,layout\n", ["contains no gemm problem"]),
        ("a.csv", f"m,n,k,dtype,layout\n{'9' * 5000},1,1,fp16,rcr\n", ["line 2: m must be an integer, got '9999"]),
        (
            "a.json",
            '[{"m": 1, "q": 2}, 7, {"m": {}, "n": 1, "k": 1, "layout": "rcr"}, {"m": 1}]',
            [
                "entry 1: unknown field of a gemm problem 'q'. Known: m,",
                "entry 2: must be an object, got 7",
                "entry 3: m must be a value or a list of numbers, got {}",
                "entry 4: has no n, k, layout",
            ],
        ),
        ("a.json", "[{]", ["is not JSON: Expecting property name"]),
        ("a.json", '[{"m": 1, "m": 2}]', ["is not JSON: an object has the key 'm' twice"]),
        ("a.json", "7", ["must be a list of objects"]),
        ("a.json", '{"problem": []}', ["unknown key 'problem'. Did you mean 'problems'?"]),
        ("a.json", '{"op": "conv", "problems": []}', ["is a list of 'conv' problems, not of gemm"]),
        ("a.json", "[]", ["contains no gemm problem"]),
        ("a.json", "[" * 100_000, ["is not JSON: is nested too deeply"]),
    ],
)
def test_every_fault_is_named(name: str, text: str, expected: list[str], file: Callable[[str, str], Path]) -> None:
    found = faults(GEMM, file(name, text))
    assert len(found) == len(expected)
    for said, wanted in zip(found, expected, strict=True):
        assert said.startswith(wanted)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert faults(GEMM, tmp_path / "none.csv") == ["cannot be read: No such file or directory"]
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    assert faults(GEMM, tmp_path / "a.json")[0].startswith("is not UTF-8: ")


def test_formats(file: Callable[[str, str], Path]) -> None:
    path = file("a.list", "8 16 32\n")

    def read(path: Path) -> list[Any]:
        m, n, k = path.read_text().split()
        return [gemm(m=int(m), n=int(n), k=int(k))]

    op = replace(GEMM, problem_readers={"sizes": read})
    assert read_problems(op, path, "sizes") == [gemm()]
    with pytest.raises(InvalidValueError, match=r"does not end in \.csv or \.json.* Known: csv, json, sizes\."):
        read_problems(op, path)
    with pytest.raises(UnknownValueError, match=r"Did you mean 'sizes'\? Known: csv, json, sizes\."):
        read_problems(op, path, "size")
    with pytest.raises(UnknownValueError, match=r"'sizes'\. Known: csv, json, aiter, "):
        read_problems(GEMM, path, "sizes")


COUNTS = st.integers(1, 2**40)
GEMMS = st.builds(
    lambda m, n, k, gap, **other: tw.gemm.Problem(m=m, n=n, k=k, stride_a=gap and max(m, k) + gap, **other),
    COUNTS,
    COUNTS,
    COUNTS,
    st.integers(0, 3),
    dtype=st.sampled_from(["fp16", "bf16", "fp8*bf8", "int8"]),
    layout=st.sampled_from(["rcr", "rrr", "crr", "ccr"]),
    batch=st.integers(1, 3),
    k_batch=st.integers(1, 3),
    num_d=st.integers(0, 2),
    elementwise=st.sampled_from(["PassThrough", "Relu"]),
)


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    ndim = draw(st.integers(1, 3))

    def extents(least: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(*[st.integers(least, most)] * ndim)

    g = draw(st.integers(1, 4))
    return Convolution(
        direction=draw(st.sampled_from(DIRECTIONS)),
        n=draw(COUNTS),
        g=g,
        c=g * draw(COUNTS),
        k=g * draw(COUNTS),
        input_size=draw(extents(9, 99)),
        filter_size=draw(extents(1, 3)),
        stride=draw(extents(1, 2)),
        dilation=draw(extents(1, 3)),
        left_pad=draw(extents(0, 2)),
        right_pad=draw(extents(0, 2)),
        dtype=draw(st.sampled_from(["fp16", "bf16", "fp32", "fp8"])),
        k_batch=draw(st.integers(1, 2)),
    )


LISTS = st.lists(GEMMS, min_size=1, max_size=4).map(lambda problems: (GEMM, problems)) | st.lists(
    convolutions(), min_size=1, max_size=4
).map(lambda problems: (CONVOLUTION, problems))


@given(LISTS)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, listed: tuple[Op, list[Any]]) -> None:
    op, problems = listed
    folder = tmp_path_factory.mktemp("lists")
    for name, write in (("a.csv", to_csv), ("a.json", to_json)):
        path = folder / name
        path.write_text(write(op, problems), encoding="utf-8")
        assert read_problems(op, path) == problems


def test_columns_that_are_written() -> None:
    text = to_csv(GEMM, [gemm(), gemm(batch=2)])
    assert text == (
        "m,n,k,dtype_a,dtype_b,dtype_c,layout,batch\n8,16,32,fp16,fp16,fp16,rcr,\n8,16,32,fp16,fp16,fp16,rcr,2\n"
    )
    assert json.loads(to_json(GEMM, [])) == {"op": "gemm", "problems": []}
    assert to_csv(GEMM, []) == "m,n,k,layout\n"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from([GEMM, CONVOLUTION]), st.data())
def test_rubbish_raises_only_our_errors(tmp_path_factory: pytest.TempPathFactory, op: Op, data: st.DataObject) -> None:
    good = {"direction": "forward", "n": 1, "c": 8, "k": 8, "input_size": 9, "filter_size": 3, "dtype": "fp16"}
    if op is GEMM:
        good = {"m": 1, "n": 1, "k": 1, "dtype": "fp16", "layout": "rcr"}
    names = st.sampled_from([*good, "pad", "stride", "dtype_a", "num_d", "k_batch"])
    entry = {**good, **data.draw(st.dictionaries(names, VALUES, min_size=1, max_size=2))}
    path = tmp_path_factory.mktemp("rubbish") / "a.json"
    path.write_text(json.dumps([entry]), encoding="utf-8")
    try:
        (problem,) = read_problems(op, path)
    except FileFormatError as error:
        assert error.problems
    else:
        assert isinstance(problem, op.problem_type)
