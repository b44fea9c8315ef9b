"""Kernel sets: what they contain, and the reading and writing of their files."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from illegal_members import find_illegal_members
from tilewright.arch import arch_names
from tilewright.base.errors import FileFormatError, InvalidValueError, TilewrightError
from tilewright.ops import find_op
from tilewright.ops.declaration import MOST_TILES
from tilewright.ops.fields import ChoiceType, CountType, FlagType, OptionalTileType, TileType, list_fields
from tilewright.ops.kernel_set import (
    KernelSet,
    dump_kernel_set,
    load_kernel_set,
)
from tilewright.ops.space import Space

GEMM = find_op("gemm")
SPACE = """
[[space]]
variant = "standard"
dtype = "fp16"
layout = "rcr"
block = ["128x128x32", [256, 128, 32]]
waves = [2, 2, 1]
mma = { m = 32, n = [32], k = [8, 16] }
pipeline = "compv3"
scheduler = "intrawave"
epilogue = "cshuffle"
pad_m = [true, false]
vector = "native"
"""
GOOD = f'op = "gemm"\ndoc = "what it is for"\narchs = ["gfx942", "gfx950"]\n{SPACE}'


def loaded(tmp_path: Path, text: str, name: str = "some_set.toml") -> KernelSet:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load_kernel_set(path)


def problems(tmp_path: Path, text: str, name: str = "some_set.toml") -> dict[str, str]:
    """Where → what of all problems that loading this text reports."""
    with pytest.raises(FileFormatError) as caught:
        loaded(tmp_path, text, name)
    assert name in str(caught.value)
    return {problem.where: problem.what for problem in caught.value.problems}


def test_json_is_the_same_set(tmp_path: Path) -> None:
    text = json.dumps(tomllib.loads(GOOD))
    assert loaded(tmp_path, text, "some_set.json") == loaded(tmp_path, GOOD)
    assert "space.0.pipeline" in problems(tmp_path, text.replace("compv3", "compv33"), "some_set.json")
    assert problems(tmp_path, "[]", "some_set.json") == {"": "a kernel set must be an object, got []"}


def test_a_file_is_read(tmp_path: Path) -> None:
    found = loaded(tmp_path, GOOD)
    assert (found.name, found.op, found.archs) == ("some_set", "gemm", ("gfx942", "gfx950"))
    assert found.doc == "what it is for"
    declared = found.spaces[0].declared
    assert declared["block"] == ((128, 128, 32), (256, 128, 32))
    assert declared["waves"] == ((2, 2, 1),)
    assert declared["mma"] == ((32, 32, 8), (32, 32, 16))
    assert declared["pad_m"] == (True, False)
    assert "vector" not in declared, "what is declared as its default is left out"
    assert len(list(found.kernels("gfx942"))) == 8


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('vector = "native"', None),
        ('vector = "8x8x8"', ((8, 8, 8),)),
        ("vector = [8, 8, 8]", ((8, 8, 8),)),
        ('vector = ["native", [8, 8, 4]]', (None, (8, 8, 4))),
        ("vector = { a = [4, 8], b = 8, c = 8 }", ((4, 8, 8), (8, 8, 8))),
        ("num_d = [0, 1, 2]", (0, 1, 2)),
        ('num_d = "*"', "*"),
    ],
)
def test_forms_of_a_declaration(tmp_path: Path, line: str, expected: Any) -> None:
    found = loaded(tmp_path, GOOD.replace('vector = "native"', line))
    assert found.spaces[0].declared.get(line.split(maxsplit=1)[0]) == expected


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    bad = SPACE.replace("compv3", "compv33").replace("layout", "lay_out").replace("[2, 2, 1]", "[2, 2]")
    worse = SPACE.replace("fp16", "fp17").replace("m = 32, n", "q = 32, n").replace("true", "1")
    top = 'op = "gemm"\nnames = "x"\ndoc = 3\narchs = ["gfx942", "gfx94", "gfx942"]\n'
    text = f"{top}{SPACE}{worse}{bad}"
    found = problems(tmp_path, text)
    assert set(found) == {
        "names",
        "doc",
        "archs.1",
        "archs.2",
        "space.1.dtype",
        "space.1.mma",
        "space.1.pad_m",
        "space.2.lay_out",
        "space.2.layout",
        "space.2.pipeline",
        "space.2.waves",
    }
    assert "Did you mean 'name'?" in found["names"]
    assert "Did you mean 'layout'?" in found["space.2.lay_out"]
    assert "missing" in found["space.2.layout"]
    assert "Did you mean 'compv3'?" in found["space.2.pipeline"]
    assert "listed twice" in found["archs.2"]
    assert "Did you mean 'gfx942'?" in found["archs.1"]


@pytest.mark.parametrize(
    ("was", "becomes", "where", "what"),
    [
        ('op = "gemm"', 'op = "gem"', "op", "Did you mean 'gemm'?"),
        ('op = "gemm"', "", "op", "missing"),
        (SPACE, "", "space", "missing"),
        (SPACE, "space = [3]", "space.0", "must be a table"),
        ('dtype = "fp16"', "", "space.0.dtype_a", "missing"),
        ('dtype = "fp16"', 'dtype = "fp16"\ndtype_a = "fp16"', "space.0.dtype_a", "already bound"),
        ('dtype = "fp16"', "dtype = []", "space.0.dtype", "empty list"),
        ('dtype = "fp16"', 'dtype = [["fp16"]]', "space.0.dtype", "list of values"),
        ('pipeline = "compv3"', "pipeline = []", "space.0.pipeline", "empty list"),
        ('pipeline = "compv3"', "pipeline = 2024-01-01", "space.0.pipeline", "unknown pipeline"),
        ("waves = [2, 2, 1]", 'waves = "2x2"', "space.0.waves", "three numbers"),
        ("waves = [2, 2, 1]", "waves = { m = 2, n = 2 }", "space.0.waves", "no values for k"),
        ("waves = [2, 2, 1]", "waves = [2, 2, 0]", "space.0.waves", "1 to 64"),
        ("waves = [2, 2, 1]", f'waves = "{"9" * 5000}x1x1"', "space.0.waves", "(5,006 characters)"),
    ],
)
def test_a_wrong_value_has_its_place(tmp_path: Path, was: str, becomes: str, where: str, what: str) -> None:
    assert was in GOOD
    found = problems(tmp_path, GOOD.replace(was, becomes, 1))
    assert what in found[where], found


def test_all_wrong_values_of_a_list_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(GOOD.replace('"compv3"', '["compv8", "compv3", "compv9"]'), encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        load_kernel_set(path)
    assert [p.where for p in caught.value.problems] == ["space.0.pipeline"] * 2


def test_tiles_that_multiply_without_end_are_refused(tmp_path: Path) -> None:
    numbers = str(list(range(1, 101)))
    text = GOOD.replace("m = 32, n = [32], k = [8, 16]", f"m = {numbers}, n = {numbers}, k = {numbers}")
    assert f"at most {MOST_TILES:,}" in problems(tmp_path, text)["space.0.mma"]


def test_a_file_name_that_is_no_set_name(tmp_path: Path) -> None:
    assert "a set's name consists of" in problems(tmp_path, GOOD, "my set.toml")["name"]
    assert loaded(tmp_path, 'name = "mine"\n' + GOOD, "my set.toml").name == "mine"


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="No such file"):
        load_kernel_set(tmp_path / "none.toml")


def test_kernels_come_once_and_in_order(tmp_path: Path) -> None:
    found = loaded(tmp_path, GOOD + SPACE.replace('"compv3"', '["mem", "compv3"]'))
    kernels = list(found.kernels("gfx942"))
    assert len(kernels) == len(set(kernels)) == 16
    assert kernels == list(found.kernels("gfx942"))
    report = found.report("gfx942")
    assert (report.kernels, report.legal, report.raw) == (16, 24, 24)
    assert "16 kernels; 24 of 24" in str(report)
    assert report.to_json()["kernels"] == 16


def test_illegal_members_say_why(tmp_path: Path) -> None:
    assert find_illegal_members(loaded(tmp_path, GOOD)) == []
    found = find_illegal_members(loaded(tmp_path, GOOD.replace("256, 128, 32", "256, 100, 32")))
    assert {(m.arch, m.space) for m in found} == {("gfx942", 0), ("gfx950", 0)}
    assert len(found) == 8
    assert "block n = 100 is not a multiple" in str(found[0])


def test_illegal_members_needs_gpus(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="lists no GPUs"):
        find_illegal_members(loaded(tmp_path, f'op = "gemm"\n{SPACE}'))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"name": "a b"}, "a set's name consists of"),
        ({"archs": ("gfx1",)}, "unknown arch"),
        ({"archs": ("gfx942", "gfx942")}, "listed twice"),
        ({"spaces": ()}, "no spaces"),
        ({"op": "other"}, "cannot contain a space of gemm"),
    ],
)
def test_a_set_is_checked_when_made(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    good = loaded(tmp_path, GOOD)
    values = {n: getattr(good, n) for n in ("name", "doc", "op", "archs", "spaces")}
    with pytest.raises(InvalidValueError, match=what):
        KernelSet(**{**values, **changes})


def test_equal_meaning_is_equality() -> None:
    common = {"dtype": "fp16", "layout": "rcr", "variant": "standard"}
    a = Space(GEMM, {**common, "block": "128x128x32", "pad_m": False, "pipeline": ["mem", "mem"]})
    b = Space(GEMM, {"block": [(128, 128, 32)], "pipeline": "mem", **common})
    assert a == b


def tiles(tile: TileType) -> st.SearchStrategy[Any]:
    number = st.integers(1, tile.most)
    columns = [st.lists(number, min_size=1, max_size=3) for _ in tile.labels]
    grid = st.fixed_dictionaries(dict(zip(tile.labels, columns, strict=True)))
    return st.lists(st.tuples(number, number, number), min_size=1, max_size=5) | grid


def declarations(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, (ChoiceType, FlagType)):
        return st.lists(st.sampled_from(kind.values), min_size=1, max_size=4) | st.just("*")
    if isinstance(kind, CountType):
        return st.lists(st.integers(kind.least, kind.most), min_size=1, max_size=4)
    if isinstance(kind, OptionalTileType):
        number = st.integers(1, kind.tile.most)
        return st.lists(st.none() | st.tuples(number, number, number), min_size=1, max_size=5)
    return tiles(kind)


FIELDS = list_fields(GEMM.config_type)
TYPE_FIELDS = {"dtype_a", "dtype_b", "dtype_acc", "dtype_c"}
PAIRS = st.lists(st.sampled_from(["fp16", "bf16", "fp8*bf8", "int8"]), min_size=1, max_size=3)


@st.composite
def kernel_sets(draw: st.DrawFn) -> KernelSet:
    def space() -> Space:
        named = {n: f for n, f in FIELDS.items() if n not in TYPE_FIELDS}
        needed = {n: declarations(f.kind) for n, f in named.items() if f.required}
        optional = {n: declarations(f.kind) for n, f in named.items() if not f.required}
        return Space(GEMM, draw(st.fixed_dictionaries({**needed, "dtype": PAIRS}, optional=optional)))

    return KernelSet(
        name=draw(st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,20}", fullmatch=True)),
        doc=draw(st.text(max_size=40)),
        op="gemm",
        archs=tuple(draw(st.lists(st.sampled_from(arch_names()), unique=True))),
        spaces=tuple(space() for _ in range(draw(st.integers(1, 3)))),
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernel_sets())
def test_a_dumped_set_loads_back_equal(tmp_path_factory: Any, kernel_set: KernelSet) -> None:
    path = tmp_path_factory.mktemp("set") / "other_name.toml"
    path.write_text(dump_kernel_set(kernel_set), encoding="utf-8")
    assert load_kernel_set(path) == kernel_set, path.read_text(encoding="utf-8")


def test_a_text_that_toml_cannot_hold() -> None:
    space = Space(GEMM, {name: "*" for name, f in FIELDS.items() if f.required})
    with pytest.raises(InvalidValueError, match="not valid Unicode"):
        dump_kernel_set(KernelSet("x", "\ud800", "gemm", (), (space,)))


MANGLED = st.lists(
    st.tuples(
        st.integers(0, len(GOOD) - 1),
        st.integers(0, 6),
        st.text(st.sampled_from('"[]{}=,.x*\n#019mnk-_é\0'), max_size=5),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(MANGLED)
def test_a_mangled_file_raises_only_our_errors(tmp_path_factory: Any, cuts: list[tuple[int, int, str]]) -> None:
    text = GOOD
    for at, length, instead in cuts:
        text = text[:at] + instead + text[at + length :]
    path = tmp_path_factory.mktemp("mangled") / "set.toml"
    path.write_text(text, encoding="utf-8")
    try:
        found = load_kernel_set(path)
    except TilewrightError:
        return
    assert found == load_kernel_set(path)


SCALARS = (
    st.booleans() | st.integers() | st.sampled_from(["*", "native", "fp16", "128x128x32", "1x1", "x", "", "9" * 5000])
)
VALUES = st.recursive(
    SCALARS,
    lambda v: st.lists(v, max_size=4) | st.dictionaries(st.sampled_from("mnkabc"), v, max_size=3),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*FIELDS, "dtype", "nonsense"]), VALUES)
def test_any_value_of_any_key_raises_only_our_errors(tmp_path_factory: Any, key: str, value: Any) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key} =")]
    path = tmp_path_factory.mktemp("values") / "set.toml"
    path.write_text("\n".join([*lines, f"{key} = {toml(value)}"]), encoding="utf-8")
    try:
        load_kernel_set(path)
    except FileFormatError as error:
        assert all(problem.where.startswith("space.0.") for problem in error.problems), error


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)
