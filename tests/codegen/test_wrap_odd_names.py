"""Every printable character in names of headers and folders: each build system copes with it, or says so."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from wrap_stand_ins import BUILDS, build, headers, products_folder, recipe, stamps, stand_in_compiler, wrap_all

from tilewright.base.errors import InvalidValueError
from tilewright.codegen.build_files import find_build_system

CHARACTERS = [*(c for c in string.punctuation if c not in '/"'), " ", "\t", "é"]


@pytest.mark.parametrize("how", BUILDS)
def test_headers(how: str, tmp_path: Path) -> None:
    system = find_build_system(how.partition("-")[0])
    names = [f"a{character}b.hpp" for character in CHARACTERS if character not in system.refused]
    kernels = headers(tmp_path / "kernels", names)
    compiler = recipe(stand_in_compiler(tmp_path))
    done = wrap_all(kernels, tmp_path / "out", compiler, system.name)
    products = products_folder(how, tmp_path / "out")
    build(how, tmp_path / "out", tmp_path / "log")
    before = stamps(products)
    build(how, tmp_path / "out", tmp_path / "log")
    assert stamps(products) == before, "a second build does nothing"
    for name in names:
        (kernels / name).write_text("changed")
    build(how, tmp_path / "out", tmp_path / "log")
    after = stamps(products)
    assert [name for name in after if after[name] == before[name]] == []
    assert len(done.library.kernels) == len(names)


@pytest.mark.parametrize("how", BUILDS)
def test_folders(how: str, tmp_path: Path) -> None:
    """All characters at once; the folder of kernels may have any."""
    system = find_build_system(how.partition("-")[0])
    allowed = "".join(c for c in CHARACTERS if c not in system.refused_folders)
    kernels = headers(tmp_path / f'k{"".join(CHARACTERS)}"', ["a.hpp", "b c.hpp"])
    out = tmp_path / f"o{allowed}"
    tools = tmp_path / f"t{allowed}"
    wrap_all(kernels, out, recipe(stand_in_compiler(tools)), system.name)
    build(how, out, tmp_path / "log")
    products = products_folder(how, out)
    before = stamps(products)
    build(how, out, tmp_path / "log")
    assert stamps(products) == before, "a second build does nothing"
    (kernels / "a.hpp").write_text("changed")
    build(how, out, tmp_path / "log")
    after = stamps(products)
    changed = {"a.gfx942.co", "a.host.o", "a.fatbin.o", "libk.so"}
    assert {name for name in after if after[name] != before[name]} == changed


@pytest.mark.parametrize(
    ("name", "header", "character"),
    [("make", "a:b.hpp", ":"), ("ninja", "a;b.hpp", ";"), ("cmake", "a$b.hpp", "$")],
)
def test_what_cannot_work_is_refused_by_name(name: str, header: str, character: str, tmp_path: Path) -> None:
    kernels = headers(tmp_path / "kernels", [header])
    with pytest.raises(InvalidValueError) as raised:
        wrap_all(kernels, tmp_path / "out", recipe(tmp_path), name)
    assert str(raised.value).startswith(f"{name} does not support {character!r} in the name of the header {header!r}.")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cmake_cannot_cope_with(tmp_path: Path) -> None:
    kernels = headers(tmp_path / "kernels", ["a.hpp"])
    with pytest.raises(InvalidValueError, match="cmake does not support '#' in the name of the folder"):
        wrap_all(kernels, tmp_path / "o#ut", recipe(tmp_path), "cmake")


def test_an_include_folder_that_make_cannot_cope_with(tmp_path: Path) -> None:
    kernels = headers(tmp_path / "kernels", ["a.hpp"])
    with pytest.raises(InvalidValueError, match="make does not support ':' in the name of the header '/ck:1/include'"):
        wrap_all(kernels, tmp_path / "out", recipe(tmp_path, "-I/ck:1/include"), "make")
