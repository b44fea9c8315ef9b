"""Spaces: what is declared, what is legal, what each rule removed."""

from __future__ import annotations

import itertools
import random
import time
from types import SimpleNamespace

import pytest

import tilewright as tw
from config_samples import RandomSearch
from tilewright import arch as archs
from tilewright.arch.spec import Shape
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.ops import find_op
from tilewright.ops.builtin_sets import find_space
from tilewright.ops.rule import is_legal
from tilewright.ops.space import Axis, Space, merge_reports

GEMM = find_op("gemm")
SMALL = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": {"m": [64, 96, 128], "n": [64, 128], "k": [16, 64]},
    "waves": [(2, 2, 1), (4, 1, 1), (1, 1, 2)],
    "mma": [(32, 32, 8), (16, 16, 16), (32, 32, 4)],
    "pipeline": "*",
    "scheduler": "*",
    "epilogue": "*",
    "persistent": "*",
}


def test_a_search_finds_what_trying_everything_finds() -> None:
    """The depth-first search prunes and remembers; its members, counts and removals must not depend on that."""
    arch = archs.load("gfx942")
    space = Space(GEMM, SMALL)
    axes = space.list_axes(arch)
    names = [name for axis in axes for name in axis.fields]
    legal = []
    for rows in itertools.product(*(axis.values for axis in axes)):
        config = SimpleNamespace(**dict(zip(names, itertools.chain(*rows), strict=True)))
        if is_legal(GEMM.rules, config, arch):
            legal.append(GEMM.config_type(**config.__dict__))

    assert {k.config for k in space.iter("gfx942")} == set(legal)
    report = space.report("gfx942")
    assert report.legal == len(legal) > 0
    assert report.raw == space.count_raw("gfx942") == report.legal + sum(c.removed for c in report.removed)


def test_reports_by_a_field_add_up_to_the_whole() -> None:
    space = Space(GEMM, SMALL)
    whole = space.report("gfx942")
    parts = space.report_by("pipeline", "gfx942")
    assert len(parts) > 1
    assert merge_reports(list(parts.values())) == whole
    for pipeline, part in parts.items():
        alone = Space(GEMM, {**SMALL, "pipeline": pipeline}).report("gfx942")
        assert (part.raw, part.legal) == (alone.raw, alone.legal)


def test_a_jumping_search_finds_a_member_if_there_is_one() -> None:
    """In the worst order of axes: what decides comes last, and much that does not matter lies in between."""
    arch = archs.load("gfx942")
    axes = sorted(Space(GEMM, SMALL).list_axes(arch), key=lambda axis: axis.fields == ("block",))
    found = RandomSearch(GEMM, axes, arch).draw_member_backjumping(random.Random(1))
    assert found is not None
    assert is_legal(GEMM.rules, GEMM.config_type(**found), arch)
    hopeless = [axis if axis.fields != ("block",) else Axis(("block",), ((Shape(7, 7, 7),),)) for axis in axes]
    assert RandomSearch(GEMM, hopeless, arch).draw_member_backjumping(random.Random(1)) is None


def test_the_default_space_of_tile_engine_is_counted_in_under_five_seconds() -> None:
    start = time.process_time()
    report = find_space(GEMM, "tile_engine_default").report("gfx942")

    assert time.process_time() - start < 5
    assert report.raw == 622_080
    assert report.legal + sum(c.removed for c in report.removed) == 622_080


def test_a_sample_is_fixed_by_its_seed() -> None:
    space = Space(GEMM, SMALL)
    first = space.sample("gfx942", 10, seed=1)

    assert first == space.sample("gfx942", 10, seed=1)
    assert first != space.sample("gfx942", 10, seed=2)
    assert len(set(first)) == 10
    assert set(first) <= set(space.iter("gfx942"))
    assert len(space.sample("gfx942", 10**6, seed=1)) == space.count("gfx942")


def test_the_public_face() -> None:
    kernels = tw.gemm.space(dtype="fp16", layout="rcr", block=[(128, 128, 32), (256, 128, 64)], pipeline="*")

    assert kernels.count("gfx942") > 100
    text = str(kernels.report("gfx942"))
    assert "combinations are legal" in text
    assert "R401  lds-overflow" in text


@pytest.mark.parametrize(
    ("declared", "error", "what"),
    [
        ({"pipelin": "mem"}, UnknownValueError, "pipeline"),
        ({"pipeline": "compv33"}, UnknownValueError, "compv3"),
        ({"dtype": "fp61"}, UnknownValueError, "fp16"),
        ({"dtype": "fp16*int8"}, InvalidValueError, "no matrix instruction multiplies fp16 by int8"),
        ({"block": "128x128"}, InvalidValueError, "three numbers"),
        ({"block": (128, 128, 0)}, InvalidValueError, "1 to 65536"),
        ({"block": {"m": 64, "n": 64}}, InvalidValueError, "no values for k"),
        ({"block": {"m": 64, "n": 64, "q": 1}}, UnknownValueError, "dimension of block"),
        ({"pipeline": []}, InvalidValueError, "empty list"),
        ({"pad_m": "yes"}, UnknownValueError, "true, false"),
        ({"num_d": 99}, InvalidValueError, "0 to 8"),
        ({"dtype": "fp16", "dtype_a": "fp16"}, InvalidValueError, "declared twice"),
    ],
)
def test_a_wrong_declaration_is_found_when_it_is_made(declared: dict, error: type, what: str) -> None:
    with pytest.raises(error, match=what):
        tw.gemm.space(**declared)


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(UnknownValueError, match="gfx942"):
        tw.gemm.space(dtype="fp16", layout="rcr").count("gfx492")


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [["bf16"], pytest.param(["fp16", "bf16"], marks=pytest.mark.deep)])
def test_a_space_of_ten_thousands_of_kernels_for_each_type_is_walked(dtypes: list[str]) -> None:
    space = tw.gemm.space(
        variant="standard", dtype=dtypes, layout="*", pad_m="*", pad_n="*", pad_k="*", split_k="*",
        pipeline=["mem", "compv3", "compv4"], mma=[(32, 32, 16), (16, 16, 32)], waves=[(2, 2, 1), (1, 4, 1), (4, 1, 1)],
    )  # fmt: skip
    kernels = list(space.iter("gfx942"))

    assert len(kernels) == len(set(kernels)) == space.count("gfx942") > 10_000 * len(dtypes)
