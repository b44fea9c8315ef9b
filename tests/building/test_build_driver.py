"""What a compiler really runs decides the key, and nothing decides the code that the key does not know."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright import arch as archs
from tilewright.base.errors import ToolchainError
from tilewright.base.knobs import ROCM
from tilewright.building import ninja_run, process
from tilewright.building.compile import compile_device, compile_host_syntax
from tilewright.building.components import check_program
from tilewright.building.driver import inspect_driver
from tilewright.building.toolchain import Toolchain


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def behind(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Writes a compiler with one header and one linker, anew with other facts; all of it in a folder of its name."""

    def write(name: str = "llvm", version: str = "22.1.8", remark: str = "", header: str = "", flags: str = "") -> Path:
        root = tmp_path / name
        (root / "resources" / "include").mkdir(parents=True, exist_ok=True)
        (root / "resources" / "include" / "stddef.h").write_text(header)
        (root / "c++" / "12").mkdir(parents=True, exist_ok=True)
        script(root / "bin" / "lld", "exit 1")
        folders = f'"-resource-dir" "{root}/resources" "-isysroot" "{root}" "-internal-isystem" "{root}/c++/12"'
        command = f'"{root}/bin/clang" "-cc1" {flags} {folders}'
        link = f'"{root}/bin/lld" "-shared"'
        says = f"clang version {version}\n {command}\n {link}"
        return script(root / "bin" / "clang", f"# {remark}\ncat <<'END'\n{says}\nEND")

    return write


def test_a_driver_names_what_it_runs(behind: Callable[..., Path], tmp_path: Path) -> None:
    real = behind()
    wrapper = script(tmp_path / "wrapper", f'exec {real} "$@"')
    found = inspect_driver(wrapper)
    assert (found.version, found.program, found.compiler) == ("clang version 22.1.8", wrapper, real)
    assert found.linker == tmp_path / "llvm" / "bin" / "lld"
    assert found.resources == tmp_path / "llvm" / "resources" / "include"
    assert found.system == (tmp_path / "llvm" / "c++" / "12",)


@pytest.mark.parametrize(
    "change",
    [{"version": "22.1.9"}, {"remark": "another program"}, {"header": "#define X"}, {"flags": '"-DX"'}],
)
def test_what_changes_behind_a_wrapper(behind: Callable[..., Path], tmp_path: Path, change: dict[str, str]) -> None:
    wrapper = script(tmp_path / "wrapper", f'exec {behind()} "$@"')
    before = inspect_driver(wrapper)
    digest = before.compute_digest()
    behind(**change)
    after = inspect_driver(wrapper)
    assert after.compute_digest() != digest
    assert (after.version != before.version) == ("version" in change)


def test_the_linker_and_the_library_behind_a_wrapper(behind: Callable[..., Path], tmp_path: Path) -> None:
    wrapper = script(tmp_path / "wrapper", f'exec {behind()} "$@"')
    driver = inspect_driver(wrapper)
    digest, system = driver.compute_digest(), driver.compute_system_digest()
    script(tmp_path / "llvm" / "bin" / "lld", "exit 2")
    assert (driver.compute_digest() != digest, driver.compute_system_digest() == system) == (True, True)
    digest = driver.compute_digest()
    (tmp_path / "llvm" / "c++" / "12" / "tuple").write_text("")
    assert (driver.compute_digest() == digest, driver.compute_system_digest() != system) == (True, True)


def test_a_compiler_in_another_folder_is_the_same(behind: Callable[..., Path], tmp_path: Path) -> None:
    """But for what names its folder: a script that prints it is another script."""
    here, there = (inspect_driver(behind(name)) for name in ("here", "a-there"))
    assert here.arguments == there.arguments
    assert here.compute_system_digest() == there.compute_system_digest()
    assert str(tmp_path) not in " ".join(here.arguments)


def test_a_script_is_asked_for_its_version_each_time(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stated = tmp_path / "version"
    tool = script(tmp_path / "objdump", f"cat {stated}")
    for version in ("LLVM version 22.1.8", "LLVM version 22.1.9"):
        stated.write_text(version)
        assert check_program("objdump", "disassembler", tool, missing="", fix="").version == version


@pytest.mark.parametrize("text", ["echo g++ 12", "exit 1", "exec sleep 0"])
def test_what_prints_no_command_is_no_compiler(tmp_path: Path, text: str) -> None:
    with pytest.raises(ToolchainError, match=f"{tmp_path}/cxx"):
        inspect_driver(script(tmp_path / "cxx", text))


@pytest.mark.parametrize("name", process.HIDDEN_INPUTS)
def test_a_hidden_input_reaches_no_tool(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "seen")
    tool = str(script(tmp_path / "tool", f'echo "[${name}]"'))
    assert process.read_tool_output([tool]) == "[]\n"
    assert process.read_all_output([tool]) == "[]\n"
    assert process.run_command([tool], folder=tmp_path, timeout_s=60).output == "[]\n"
    assert process.read_tool_output([*ninja_run._make_command_prefix(), tool]) == "[]\n"


def test_the_hidden_inputs_that_changed_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to change code objects or the programs that make them."""
    known = {
        "CPATH",
        "COMPILER_PATH",
        "LIBRARY_PATH",
        "GCC_EXEC_PREFIX",
        "HIP_PATH",
        "SOURCE_DATE_EPOCH",
        "LD_RUN_PATH",
    }
    assert known <= set(process.HIDDEN_INPUTS)
    assert "ROCM_PATH" not in process.HIDDEN_INPUTS


def test_libraries_know_no_folder_of_rocm() -> None:
    toolchain = SimpleNamespace(kind=ROCM, rocm_path=Path("/home/alice/rocm"))
    words = Toolchain.link_flags(toolchain)
    assert not [word for word in words if "rpath" in word or "amdhip64" in word or "/home/alice" in word]


PLAIN = "#include <hip/hip_runtime.h>\n#ifdef EVIL\n#error EVIL\n#endif\n__global__ void k() {}\n"


@pytest.fixture
def own_clang(toolchain: Toolchain, tmp_path: Path) -> Toolchain:
    """The toolchain with a copy of its driver in a folder of ours, where a config file may be put beside it."""
    real = inspect_driver(toolchain.cxx).compiler
    copy = tmp_path / "llvm" / "bin" / "clang++"
    copy.parent.mkdir(parents=True)
    shutil.copy(real, copy)
    (tmp_path / "llvm" / "lib").symlink_to(real.parent.parent / "lib")
    for name in ("lld", "ld.lld"):
        (copy.parent / name).symlink_to(real.parent / name)
    return replace(toolchain, cxx=copy)


@pytest.mark.compile
def test_a_config_file_beside_the_compiler_is_not_read(own_clang: Toolchain, tmp_path: Path) -> None:
    before = inspect_driver(own_clang.cxx).arguments
    for name in ("clang++.cfg", "clang.cfg"):
        own_clang.cxx.with_name(name).write_text("-DEVIL\n")
    plain = script(tmp_path / "plain", f"exec {own_clang.cxx} -x c++ -dM -E - </dev/null")
    assert "#define EVIL" in process.read_tool_output([str(plain)]), "the file has no effect at all"
    arch = archs.load("gfx942")
    outcome = compile_device(PLAIN, arch, own_clang, tmp_path / "k.co")
    assert outcome.ok, outcome.log
    assert compile_host_syntax(PLAIN, arch, own_clang).ok
    assert inspect_driver(own_clang.cxx).arguments == before


@pytest.mark.compile
def test_a_linker_in_the_environment_is_not_used(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linker = inspect_driver(toolchain.cxx).linker
    for name in ("lld", "ld.lld"):
        script(tmp_path / "evil" / name, "exit 7")
    for name in ("COMPILER_PATH", "GCC_EXEC_PREFIX"):
        monkeypatch.setenv(name, f"{tmp_path}/evil/")
    outcome = compile_device(PLAIN, archs.load("gfx942"), toolchain, tmp_path / "k.co")
    assert outcome.ok, outcome.log
    assert inspect_driver(toolchain.cxx).linker == linker


@pytest.mark.compile
def test_asking_makes_no_files(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/100%/nowhere")
    monkeypatch.chdir(tmp_path)
    found = inspect_driver(toolchain.cxx)
    assert found.linker is not None
    assert str(tmp_path) not in " ".join(found.arguments)
    assert list(tmp_path.iterdir()) == []
