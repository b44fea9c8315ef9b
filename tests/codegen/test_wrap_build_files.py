"""The three build files: letter by letter, and run with a compiler that only writes files."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest
from wrap_stand_ins import (
    BUILDS,
    ODD_WORD,
    build,
    headers,
    products_folder,
    recipe,
    stamps,
    stand_in_compiler,
    tool,
    wrap_all,
)

from tilewright.base.errors import UnknownValueError
from tilewright.codegen.build_files import BUILD_SYSTEMS, BuildSystem, find_build_system
from tilewright.codegen.build_files.recipe import BuildStep, CompileRecipe, FolderFile, LibraryTarget, MachinePath

GOLDEN = Path(__file__).parent / "golden_wrap"
NAMES = ["a.hpp", "b c.hpp", "d-e.hpp"]


def golden_recipe() -> CompileRecipe:
    plain = recipe(Path("/opt/rocm tools/bin/clang++"), "-O3", "-DTEXT=$a b#c", "-I/home/b ob/ck")
    link = ("-x", "c", FolderFile("front.c"), *plain.link_flags)
    paths = (MachinePath("TILEWRIGHT_CK_INCLUDE", "/home/b ob/ck"),)
    return dataclasses.replace(plain, link_flags=link, paths=paths, files={"front.c": ""})


@pytest.mark.parametrize("system", BUILD_SYSTEMS, ids=lambda s: s.name)
def test_golden_build_file(system: BuildSystem, request: pytest.FixtureRequest) -> None:
    text = system.render(LibraryTarget("kernels", ["first", "second"], golden_recipe()))
    path = GOLDEN / f"{system.file}.golden"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_an_unknown_build_system() -> None:
    with pytest.raises(UnknownValueError, match=r"unknown build system 'bazel'\. Known: cmake, ninja, make"):
        find_build_system("bazel")


def test_no_two_kernels_share_a_file_whatever_they_are_called() -> None:
    suffixes = recipe(Path("x")).suffixes()
    assert [(a, b) for a in suffixes for b in suffixes if a != b and a.endswith(b)] == []


@pytest.fixture(params=BUILDS)
def how(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def built(how: str, tmp_path: Path) -> Path:
    """A folder of wrappers, built once."""
    kernels = headers(tmp_path / "kernels", NAMES)
    out = tmp_path / "out"
    wrap_all(kernels, out, recipe(stand_in_compiler(tmp_path), ODD_WORD), how.partition("-")[0])
    build(how, out, tmp_path / "log")
    return out


def test_everything_is_compiled_and_linked_with_the_words_of_the_recipe(how: str, built: Path, tmp_path: Path) -> None:
    library = (products_folder(how, built) / "libk.so").read_text()
    for name in NAMES:
        assert library.count(f"content of {name}\n") == 2  # host code, and the device code that was embedded
    words = (tmp_path / "log").read_text().splitlines()
    assert words.count(ODD_WORD) == 3 + 3 + 1
    assert words.count("--host") == words.count("--device") == 3
    assert words.count("-cuid=d-e") == 2


def test_what_is_built_again(how: str, built: Path, tmp_path: Path) -> None:
    log, kernels, products = tmp_path / "log", tmp_path / "kernels", products_folder(how, built)

    def changed() -> set[str]:
        before = stamps(products)
        build(how, built, log)
        after = stamps(products)
        return {name for name in after if after[name] != before.get(name)}

    assert changed() == set()
    (kernels / "d-e.hpp").write_text("another content")
    assert changed() == {"d-e.gfx942.co", "d-e.host.o", "d-e.fatbin.o", "libk.so"}
    assert "another content" in (products / "libk.so").read_text()
    (kernels / "shared.h").touch()
    assert len(changed()) == 3 * 3 + 1


def test_changed_kernels_and_flags_are_noticed(how: str, built: Path, tmp_path: Path) -> None:
    log, kernels, products = tmp_path / "log", tmp_path / "kernels", products_folder(how, built)
    compiler = tmp_path / "compiler"
    headers(kernels, ["new.hpp"])
    (kernels / "a.hpp").unlink()
    before = stamps(products)
    wrap_all(kernels, built, recipe(compiler, ODD_WORD))
    build(how, built, log)
    after = stamps(products)
    new = {"new.gfx942.co", "new.host.o", "new.fatbin.o"}
    assert {name for name in after if after[name] != before.get(name)} == {*new, "libk.so"}
    assert "content of a.hpp" not in (products / "libk.so").read_text()
    wrap_all(kernels, built, recipe(compiler, "-O2"))
    log.unlink()
    build(how, built, log)
    assert log.read_text().splitlines().count("-O2") == 3 + 3 + 1


def test_progress_counts_kernels(how: str, built: Path, tmp_path: Path) -> None:
    (tmp_path / "kernels" / "shared.h").touch()
    # One job at a time: lines of two jobs may come in any order.
    printed = build(how, built, tmp_path / "log", "-j1")
    for label in ("device code", "host code"):
        lines = re.findall(rf"\[(\d)/3\] (\S+) \({label}\)", printed)
        assert {int(number) for number, _ in lines} == {1, 2, 3}
        assert len({name for _, name in lines}) == 3
        if how == "make":
            assert [int(number) for number, _ in lines] == [1, 2, 3]


def test_make_clean_and_ninja_clean(how: str, built: Path, tmp_path: Path) -> None:
    before = {path.name for path in built.iterdir()}
    build(how, built, tmp_path / "log", *{"make": ["clean"], "ninja": ["-t", "clean"]}.get(how, ["--target", "clean"]))
    assert not (products_folder(how, built) / "libk.so").exists()
    assert not list(products_folder(how, built).glob("kernel_objects/*o"))
    assert before - {path.name for path in built.iterdir()} <= {"kernel_objects", "libk.so"}


def test_another_compiler_can_be_put_in(how: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = stand_in_compiler(tmp_path, "other")
    other.write_text(other.read_text().replace("$extra", "$0"))  # its products hold its own text
    (tmp_path / "kernels" / "shared.h").touch()
    if how == "ninja":
        monkeypatch.setenv("TILEWRIGHT_CXX", str(other))
    more = [f"CXX={other}"] if how == "make" else []
    if how.startswith("cmake"):
        subprocess.run([tool("cmake"), "-B", "build", f"-DTILEWRIGHT_CXX={other}"], cwd=built, check=True)
    build(how, built, tmp_path / "log", *more)
    assert "#!/bin/sh" in (products_folder(how, built) / "libk.so").read_text()


def test_the_paths_of_the_machine_that_wrote_the_file_can_be_replaced(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("-I/opt/my ck/include", "-ffile-prefix-map=/opt/my ck/include=ck", "--rocm-path=/opt", "-I/optional x")
    paths = (MachinePath("ROCM_PATH", "/opt"), MachinePath("TILEWRIGHT_CK_INCLUDE", "/opt/my ck/include"))
    recipes = dataclasses.replace(recipe(stand_in_compiler(tmp_path), *flags), paths=paths)
    out, log = tmp_path / "out", tmp_path / "log"
    wrap_all(headers(tmp_path / "kernels", ["a.hpp"]), out, recipes, how.partition("-")[0])
    build(how, out, log)
    assert set(flags) < set(log.read_text().splitlines())
    log.unlink()
    (tmp_path / "kernels" / "shared.h").touch()
    if how.startswith("cmake"):
        more = ["-DTILEWRIGHT_CK_INCLUDE=/ck", "-DROCM_PATH=/r"]
        subprocess.run([tool("cmake"), "-B", "build", *more], cwd=out, check=True)
    elif how == "ninja":
        monkeypatch.setenv("TILEWRIGHT_CK_INCLUDE", "/ck")
        monkeypatch.setenv("ROCM_PATH", "/r")
    build(how, out, log, *(["TILEWRIGHT_CK_INCLUDE=/ck", "ROCM_PATH=/r"] if how == "make" else []))
    found = set(log.read_text().splitlines())
    assert {"-I/ck", "-ffile-prefix-map=/ck=ck", "--rocm-path=/r", "-I/optional x"} < found
    assert not {"-I/opt/my ck/include", "--rocm-path=/opt"} & found


def test_files_of_the_recipe_are_in_the_folder(how: str, tmp_path: Path) -> None:
    plain = recipe(stand_in_compiler(tmp_path))
    words = ("-include", FolderFile("front.h"))
    steps = tuple(dataclasses.replace(step, flags=(*step.flags, *words)) for step in plain.steps[:2])
    recipes = dataclasses.replace(plain, steps=(*steps, plain.steps[2]), files={"front.h": "first"})
    out, log = tmp_path / "out", tmp_path / "log"
    kernels = headers(tmp_path / "kernels", ["a.hpp"])
    wrap_all(kernels, out, recipes, how.partition("-")[0])
    build(how, out, log)
    lines = log.read_text().splitlines()
    named = {lines[i + 1] for i, word in enumerate(lines) if word == "-include"}
    assert {(products_folder(how, out) / name).read_text() for name in named} == {"first"}
    assert wrap_all(kernels, out, plain).removed == ("front.h",)


def test_as_a_part_of_another_cmake_project(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    wrap_all(headers(tmp_path / "kernels", NAMES), parent / "sub", recipe(stand_in_compiler(tmp_path)), "cmake")
    (parent / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(parent LANGUAGES NONE)\nadd_subdirectory(sub)\n"
        "add_custom_target(app ALL COMMAND cp $<TARGET_FILE:k> ${CMAKE_BINARY_DIR}/copy)\nadd_dependencies(app k)\n"
    )
    build("cmake-make", parent, tmp_path / "log")
    assert (parent / "build" / "copy").read_bytes() == (parent / "build" / "sub" / "libk.so").read_bytes()


def test_thousands_of_kernels_fit_into_the_commands(tmp_path: Path) -> None:
    """Linux takes shell commands of up to 128 KiB; the list of objects is longer."""
    step = BuildStep("compile", "", (), ".cpp", ".o", linked=True)
    library = LibraryTarget("k", [f"kernel-{'x' * 100}-{i}" for i in range(2000)], CompileRecipe("cc", (), (step,), ()))
    assert len(library.format_object_list()) > 128 * 1024
    for system in BUILD_SYSTEMS:
        (tmp_path / system.file).write_text(system.render(library))
    for kernel in library.kernels:
        (tmp_path / f"{kernel}.cpp").touch()
    for name in ("objects.rsp", "recipe.json"):
        (tmp_path / name).touch()
    for command in ([tool("ninja"), "-n", "-v"], [tool("make"), "-n"]):
        done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True)
        lines = [line for line in done.stdout.splitlines() if " -o " in line]
        assert len(lines) == 2001
        assert max(map(len, lines)) < 1024
