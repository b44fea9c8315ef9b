"""The JSON of CK's tile_engine: read, written, and refused with everything that is wrong."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.base.errors import (
    FileFormatError,
    InvalidValueError,
    TilewrightError,
    ToolchainError,
    UnknownValueError,
)
from tilewright.building.ck_headers import find_ck_tools
from tilewright.ops import find_op
from tilewright.ops.block_gemm.config_fields import EPILOGUES
from tilewright.ops.builtin_sets import find_space
from tilewright.ops.gemm.config import LAYOUTS, PIPELINES, SCHEDULERS
from tilewright.ops.gemm.tile_engine import read_tile_engine, write_tile_engine
from tilewright.ops.space import Space

GEMM = find_op("gemm")
GOOD: dict[str, Any] = {
    "tile_config": {
        "tile_m": {"min": 64, "max": 256, "step": 64},
        "tile_n": {"min": 64, "max": 200, "step": 64},
        "tile_k": {"values": [32]},
        "warp_m": {"values": [2]},
        "warp_n": {"values": [2, 4]},
        "warp_k": {"values": [1]},
        "warp_tile_m": {"values": [32]},
        "warp_tile_n": {"values": [32]},
        "warp_tile_k": {"values": [8, 16]},
    },
    "trait_config": {
        "pipeline": {"values": ["compv3", "mem"]},
        "scheduler": {"values": ["intrawave"]},
        "epilogue": {"values": ["cshuffle"]},
        "pad_m": {"values": [False, True]},
        "pad_n": {"values": [False]},
        "pad_k": {"values": [False]},
        "persistent": {"values": [False]},
    },
    "k_block_per_cu": 2,
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good configuration with the value at a dotted path replaced, or removed (…)."""
    data = copy.deepcopy(GOOD)
    *above, last = path.split(".")
    table = data
    for key in above:
        table = table[key]
    if value is ...:
        del table[last]
    else:
        table[last] = value
    return data


def problems(data: Any, **arguments: Any) -> dict[str, str]:
    with pytest.raises(FileFormatError) as caught:
        read_tile_engine(data, **{"dtype": "fp16", "layout": "rcr", **arguments})
    return {problem.where: problem.what for problem in caught.value.problems}


def test_ranges_and_lists_are_read() -> None:
    space = read_tile_engine(GOOD, dtype="fp16", layout="rcr")
    declared = space.declared
    assert [b[:2] for b in declared["block"][:4]] == [(64, 64), (64, 128), (64, 192), (128, 64)]
    assert len(declared["block"]) == 4 * 3
    assert declared["waves"] == ((2, 2, 1), (2, 4, 1))
    assert declared["pad_m"] == (False, True)
    assert declared["blocks_per_cu"] == (2,)
    assert space.count_raw("gfx942") == 12 * 2 * 2 * 2 * 2


def test_a_file_is_read_like_its_data(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD), encoding="utf-8")
    of_file = read_tile_engine(path, dtype="fp16", layout="rcr")
    assert of_file == read_tile_engine(GOOD, dtype="fp16", layout="rcr")


def test_every_problem_is_reported_at_once() -> None:
    data = changed("tile_config.tile_m.step", 0)
    data["tile_config"]["warp_tiles_n"] = data["tile_config"].pop("warp_tile_n")
    data["tile_config"]["warp_k"] = {"values": []}
    data["tile_config"]["warp_m"] = {"values": [2, "2", True]}
    data["trait_config"]["pipeline"]["values"].append("compv33")
    data["trait_config"]["epilogue"] = {"value": ["cshuffle"]}
    data["k_blocks_per_cu"] = 1
    data["k_block_per_cu"] = 99
    found = problems(data)
    assert set(found) == {
        "tile_config.tile_m.step",
        "tile_config.warp_tiles_n",
        "tile_config.warp_tile_n",
        "tile_config.warp_k.values",
        "tile_config.warp_m.values.1",
        "tile_config.warp_m.values.2",
        "trait_config.pipeline.values.2",
        "trait_config.epilogue.value",
        "trait_config.epilogue.values",
        "k_blocks_per_cu",
        "k_block_per_cu",
    }
    assert "Did you mean 'warp_tile_n'?" in found["tile_config.warp_tiles_n"]
    assert found["tile_config.warp_tile_n"] == "missing"
    assert "Did you mean 'compv3'?" in found["trait_config.pipeline.values.2"]
    assert "Did you mean 'k_block_per_cu'?" in found["k_blocks_per_cu"]


@pytest.mark.parametrize(
    ("path", "value", "where", "what"),
    [
        ("tile_config", ..., "tile_config", "missing"),
        ("trait_config", [], "trait_config", "must be an object"),
        ("tile_config.tile_m", {"min": 2, "max": 1, "step": 1}, "tile_config.tile_m", "above max"),
        ("tile_config.tile_m", {"min": 2, "max": 4}, "tile_config.tile_m.step", "missing"),
        ("tile_config.tile_m.values", [64], "tile_config.tile_m.min", "unknown key"),
        ("tile_config.tile_m.max", 10**9, "tile_config.tile_m.max", "1 to 65536"),
        (
            "tile_config.tile_m",
            {"min": 1, "max": 60000, "step": 1},
            "tile_config.tile_m",
            "at most",
        ),
        ("permute_n", True, "permute_n", "unknown key"),
    ],
)
def test_a_wrong_value_has_its_place(path: str, value: Any, where: str, what: str) -> None:
    assert what in problems(changed(path, value))[where]


def test_permute_n_belongs_to_preshuffle() -> None:
    data = changed("permute_n", True)
    space = read_tile_engine(data, dtype="fp16", layout="rcr", variant="preshuffle")
    assert space.declared["permute_n"] == (True,)
    assert "unknown permute_n" in problems(changed("permute_n", 1), variant="preshuffle")["permute_n"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not JSON"),
        ('{"k_block_per_cu": 1, "k_block_per_cu": 2}', "has the key 'k_block_per_cu' twice"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must be an object"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError, match=what):
        read_tile_engine(path, dtype="fp16", layout="rcr")
    with pytest.raises(FileFormatError, match="No such file"):
        read_tile_engine(tmp_path / "none.json", dtype="fp16", layout="rcr")


@pytest.mark.parametrize(
    "arguments",
    [{"dtype": "fp17"}, {"layout": "rcx"}, {"variant": "batched"}, {"elementwise": "Rel"}],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, str]) -> None:
    with pytest.raises(UnknownValueError):
        read_tile_engine(GOOD, **{"dtype": "fp16", "layout": "rcr", **arguments})  # type: ignore[arg-type]


def test_multi_d_needs_its_operation() -> None:
    with pytest.raises(InvalidValueError, match="num_d"):
        read_tile_engine(GOOD, dtype="fp16", layout="rcr", variant="multi_d")
    arguments: dict[str, Any] = {"variant": "multi_d", "elementwise": "MultiDAdd", "num_d": 2}
    space = read_tile_engine(GOOD, dtype="fp16", layout="rcr", **arguments)
    assert space.declared["num_d"] == (2,)


def test_the_named_space_is_what_its_json_says() -> None:
    space = find_space(GEMM, "tile_engine_default")
    assert read_tile_engine(write_tile_engine(space), dtype="fp16", layout="rcr") == space


def test_what_the_json_cannot_express_is_all_told() -> None:
    space = Space(
        GEMM,
        {
            "variant": "batched",
            "dtype": ["fp16", "bf16"],
            "layout": "rcr",
            "block": ["128x128x32", "256x256x32"],
            "waves": "*",
            "pipeline": "*",
            "scheduler": "intrawave",
            "epilogue": "cshuffle",
            "vector": ["8x8x8"],
            "blocks_per_cu": [1, 2],
            "split_k": [False, True],
            "permute_n": True,
        },
    )
    with pytest.raises(InvalidValueError) as caught:
        write_tile_engine(space)
    told = {line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]}
    assert told == {
        "variant",
        "dtype",
        "block",
        "waves",
        "mma",
        "pipeline",
        "vector",
        "blocks_per_cu",
        "split_k",
        "permute_n",
    }


def some(values: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)


def grids(most: int) -> st.SearchStrategy[Any]:
    column = st.lists(st.integers(1, most), min_size=1, max_size=3, unique=True)
    return st.fixed_dictionaries(dict.fromkeys("mnk", column))


FLAGS = ("pad_m", "pad_n", "pad_k", "persistent")
GRID_SPACES = st.fixed_dictionaries(
    {
        "variant": st.sampled_from(["standard", "preshuffle", "multi_d"]),
        "dtype": st.sampled_from(["fp16", "bf16", "fp8*bf8"]),
        "layout": st.sampled_from(LAYOUTS),
        "block": grids(65536),
        "waves": grids(64),
        "mma": grids(256),
        "pipeline": some(PIPELINES),
        "scheduler": some(SCHEDULERS),
        "epilogue": some(EPILOGUES),
        **dict.fromkeys(FLAGS, some([False, True])),
        "blocks_per_cu": st.integers(1, 8),
        "split_k": st.booleans(),
        "permute_n": st.booleans(),
    }
)


@settings(max_examples=200, deadline=None)
@given(GRID_SPACES)
def test_a_written_grid_is_read_back_equal(declared: dict[str, Any]) -> None:
    arguments = {n: declared[n] for n in ("variant", "dtype", "layout", "split_k")}
    if declared["variant"] != "preshuffle":
        del declared["permute_n"]
    if declared["variant"] == "multi_d":
        arguments |= {"elementwise": "MultiDAdd", "num_d": 2}
    space = Space(GEMM, {**declared, **arguments})
    written = json.loads(json.dumps(write_tile_engine(space)))
    assert read_tile_engine(written, **arguments) == space


def ck_configurations() -> list[Path]:
    if folder := os.environ.get("TILEWRIGHT_TEST_TILE_ENGINE"):
        return sorted(Path(folder).glob("ops/*/configs/*.json"))
    try:
        return sorted(find_ck_tools().glob("ops/*/configs/*.json"))
    except ToolchainError as error:
        pytest.skip(f"CK's tile_engine is not here: {error}")


def test_every_configuration_of_ck_is_read() -> None:
    arguments: dict[str, dict[str, Any]] = {
        "gemm": {},
        "gemm_preshuffle": {"variant": "preshuffle"},
        "gemm_multi_d": {"variant": "multi_d", "elementwise": "MultiDAdd", "num_d": 2},
    }
    paths = [path for path in ck_configurations() if path.parent.parent.name in arguments]
    assert len(paths) >= 6, f"only {len(paths)} configurations found"
    for path in paths:
        more = arguments[path.parent.parent.name]
        space = read_tile_engine(path, dtype="fp16", layout="rcr", **more)
        assert space.count_raw("gfx942") > 0
        again = read_tile_engine(write_tile_engine(space), dtype="fp16", layout="rcr", **more)
        assert again == space, path


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda v: (
        st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["values", "min", "max", "step", "tile_m", ""]), v)
    ),
    max_leaves=8,
)
PLACES = [
    *GOOD,
    *(f"{s}.{k}" for s in ("tile_config", "trait_config") for k in GOOD[s]),
    *(f"{s}.{k}.values" for s in ("tile_config", "trait_config") for k in GOOD[s]),
    "tile_config.tile_m.step",
    "nonsense",
]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), JUNK)
def test_junk_anywhere_raises_only_our_errors(place: str, junk: Any) -> None:
    try:
        read_tile_engine(changed(place, junk), dtype="fp16", layout="rcr")
    except FileFormatError as error:
        assert error.problems


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_mangled_file_raises_only_our_errors(tmp_path_factory: Any, data: st.DataObject) -> None:
    text = json.dumps(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        cut = data.draw(st.integers(0, 5))
        text = text[:at] + data.draw(st.text('"[]{}:,019eE-.x\\\0é', max_size=4)) + text[at + cut :]
    path = tmp_path_factory.mktemp("mangled") / "config.json"
    path.write_text(text, encoding="utf-8")
    try:
        read_tile_engine(path, dtype="fp16", layout="rcr")
    except TilewrightError:
        return
