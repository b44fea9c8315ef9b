"""Builds in odd folders, and that a folder leaves no trace in what is built."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine import all_load, answer, build, environment, scale, sound, start

from tilewright.building.compile_job import PRODUCTS

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]

ODD = "a b'c\"d $HOME ${x} `y` #é%20&(;)|*[z]"


def test_odd_names_of_folders(ck: Path, tmp_path: Path) -> None:
    store, temporary = tmp_path / ODD / "store", tmp_path / f"tmp {ODD}"
    temporary.mkdir()
    found = answer(start(environment(ck, store, TMPDIR=str(temporary)), [1, 666]))
    good, bad = found["results"].values()
    assert good["name"] == scale(1).slug
    assert bad["errors"] == ["static assertion failed: this kernel is meant to be refused"]
    assert found["notices"] == []
    sound(store)
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([ODD, temporary.name])


def test_the_same_bytes_in_every_folder(tmp_path: Path) -> None:
    stores = [tmp_path / "one", tmp_path / "a longer name" / "two"]
    first, second = (build(store, [1, 2]) for store in stores)
    assert list(first.units) == list(second.units)
    for kernel, artifact in first.artifacts.items():
        other = second.artifacts[kernel]
        for name in PRODUCTS:
            assert artifact.verify_file(name).read_bytes() == other.verify_file(name).read_bytes(), name
            assert str(tmp_path).encode() not in artifact.verify_file(name).read_bytes()
        assert {**artifact.facts, "cost": 0} == {**other.facts, "cost": 0}
    assert all_load(second)
