"""Folders of wrappers: only what changed is written, and only what is ours is removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from wrap_stand_ins import headers, recipe, stand_in_compiler, wrap_all

from tilewright.base import events
from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.codegen.build_files.recipe import CompileRecipe
from tilewright.codegen.wrapper_folder import WRAPPERS_NAME

ALL = ("cmake", "ninja", "make")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return headers(tmp_path / "kernels", ["a.hpp", "b.hpp", "c.hpp"])


@pytest.fixture
def how(tmp_path: Path) -> CompileRecipe:
    return recipe(stand_in_compiler(tmp_path))


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_a_second_run_writes_nothing(kernels: Path, how: CompileRecipe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = wrap_all(kernels, out, how, *ALL)
    expected = {"a.cpp", "b.cpp", "c.cpp", "a.fatbin.s", "b.fatbin.s", "c.fatbin.s", "headers", "objects.rsp"}
    expected |= {"recipe.json", "wrappers.json", "CMakeLists.txt", "build.ninja", "Makefile"}
    assert set(first.written) == {path.name for path in out.iterdir()} == expected
    before = stamps(out)
    second = wrap_all(kernels, out, how, *ALL)
    assert (second.written, second.removed) == ((), ())
    assert set(second.unchanged) == expected
    assert stamps(out) == before


def test_only_what_changed_is_written(kernels: Path, how: CompileRecipe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    wrap_all(kernels, out, how, "ninja")
    (out / "b.cpp").write_text("edited by hand")
    assert wrap_all(kernels, out, how).written == ("b.cpp",)
    headers(kernels, ["d.hpp"])
    added = set(wrap_all(kernels, out, how).written)
    assert added == {"d.cpp", "d.fatbin.s", "build.ninja", "objects.rsp", WRAPPERS_NAME}


def test_what_vanished_is_removed_with_its_products_and_nothing_else_is(
    kernels: Path, how: CompileRecipe, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    wrap_all(kernels, out, how, "make")
    (out / "kernel_objects").mkdir()
    ours = ["a.gfx942.co", "a.gfx942.co.d", "a.host.o", "a.host.o.d", "a.fatbin.o", "b.host.o"]
    for name in (*ours, "a.mine"):
        (out / "kernel_objects" / name).write_text("")
    (out / "mine.cpp").write_text("left alone")
    (kernels / "a.hpp").unlink()
    done = wrap_all(kernels, out, how)
    assert set(done.removed) == {"a.cpp", "a.fatbin.s", *(f"kernel_objects/{name}" for name in ours[:5])}
    assert {p.name for p in (out / "kernel_objects").iterdir()} == {"b.host.o", "a.mine"}
    assert (out / "mine.cpp").read_text() == "left alone"
    assert "a" not in json.loads((out / WRAPPERS_NAME).read_text())["kernels"][0].values()


def test_build_files_of_earlier_runs_stay_true_unless_they_were_deleted(
    kernels: Path, how: CompileRecipe, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    wrap_all(kernels, out, how, "make", "ninja")
    (out / "build.ninja").unlink()
    (kernels / "c.hpp").unlink()
    done = wrap_all(kernels, out, how, "cmake")
    assert [system.name for system in done.systems] == ["cmake", "make"]
    assert "  b\n" in (out / "Makefile").read_text()
    assert "  c\n" not in (out / "Makefile").read_text()
    assert not (out / "build.ninja").exists()


@pytest.mark.parametrize("name", ["a.cpp", "Makefile", "headers", "recipe.json"])
def test_a_file_that_is_not_ours_is_not_overwritten(
    name: str, kernels: Path, how: CompileRecipe, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    with pytest.raises(InvalidValueError, match=f"{name} (exists, and no earlier run|is in the way)"):
        wrap_all(kernels, out, how, "make")
    assert (out / name).read_text() == "mine"


@pytest.mark.parametrize("text", ["[]", "{", '{"files": 3, "products": [], "kernels": []}'])
def test_a_list_that_is_none_is_an_error(text: str, kernels: Path, how: CompileRecipe, tmp_path: Path) -> None:
    (tmp_path / WRAPPERS_NAME).write_text(text)
    with pytest.raises(FileFormatError, match="not a list of wrappers"):
        wrap_all(kernels, tmp_path, how, "make")


def test_a_list_cannot_reach_outside_of_its_folder(kernels: Path, how: CompileRecipe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    wrap_all(kernels, out, how)
    victim = tmp_path / "victim.txt"
    victim.write_text("")
    listed = json.loads((out / WRAPPERS_NAME).read_text())
    listed["files"] += ["../victim.txt", str(victim)]
    listed["kernels"].append({"name": "../../victim"})
    listed["products"].append(".txt")
    (out / WRAPPERS_NAME).write_text(json.dumps(listed))
    assert wrap_all(kernels, out, how).removed == ()
    assert victim.exists()


def test_kernels_that_moved_are_followed(kernels: Path, how: CompileRecipe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    wrap_all(kernels, out, how)
    moved = kernels.rename(tmp_path / "elsewhere")
    done = wrap_all(moved, out, how)
    assert done.written == ("headers",)
    assert (out / "headers").resolve() == moved
    assert not (out / "headers").readlink().is_absolute()


def test_wrappers_may_lie_beside_their_headers(kernels: Path, how: CompileRecipe) -> None:
    wrap_all(kernels, kernels, how, "make")
    assert (kernels / "headers" / "a.hpp").exists()
    assert wrap_all(kernels, kernels, how, "make").written == ()


def test_progress_is_told(kernels: Path, how: CompileRecipe, tmp_path: Path) -> None:
    heard: list[events.Event] = []
    with events.add_listener(heard.append):
        wrap_all(kernels, tmp_path / "out", how)
    assert heard[0] == events.Started("wrap", 8)
    assert sum(isinstance(event, events.Advanced) for event in heard) == 8
