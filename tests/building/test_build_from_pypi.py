"""The toolchain from PyPI without a network: its wheels, what is unpacked of them, and when it is used."""

from __future__ import annotations

import json
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright import arch as archs
from tilewright.base import knobs
from tilewright.base.errors import ToolchainError
from tilewright.building import discover
from tilewright.building.components import Component
from tilewright.building.from_pypi import find, install, sysroot, unpack, wheels
from tilewright.building.from_pypi.manifest import get_toolchain_folder, read_toolchain_manifest

X86 = wheels.MACHINES["x86_64"]
TRITON = next(wheel for wheel in wheels.list_wheels(X86) if wheel.package == "triton")
MEMBERS = {
    "triton/backends/amd/include/hip/hip_version.h": b"version",
    "triton/backends/amd/lib/ockl.bc": b"ockl",
    "triton/backends/amd/lib/ocml.bc": b"ocml",
    "triton/backends/amd/lib/asanrtl.bc": b"not needed",
    "triton/_C/libtriton.so": b"not needed",
}


def write_wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("machine", wheels.MACHINES.values(), ids=lambda machine: machine.name)
def test_every_machine_has_the_same_packages(machine: wheels.Machine) -> None:
    listed = wheels.list_wheels(machine)
    assert [(wheel.package, wheel.version) for wheel in listed] == list(wheels.PINNED)
    for wheel in listed:
        assert wheel.file.startswith(f"{wheel.package}-{wheel.version}-")
        assert machine.name in wheel.file
        assert len(wheel.sha256) == 64


def test_the_extra_names_the_same_versions() -> None:
    project = Path(wheels.__file__).parents[4] / "pyproject.toml"
    for package, version in wheels.PINNED:
        assert f'"{package}=={version}' in project.read_text("utf-8")


def test_only_needed_members_are_unpacked(tmp_path: Path) -> None:
    archive = write_wheel(tmp_path / TRITON.file, MEMBERS)
    assert unpack.extract_members(archive, TRITON, tmp_path / "root") == 3
    found = {str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert found == {"hip/include/hip/hip_version.h", "hip/amdgcn/bitcode/ockl.bc", "hip/amdgcn/bitcode/ocml.bc"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"triton/backends/amd/include/hip/../../../../x.h": b""}, "leads out of its folder"),
        ({"triton/backends/amd/lib/ockl.bc": None}, "has 2 of the needed files, at least 3"),
    ],
)
def test_a_wheel_with_other_members_is_refused(tmp_path: Path, change: dict[str, bytes | None], message: str) -> None:
    members = {name: content for name, content in {**MEMBERS, **change}.items() if content is not None}
    archive = write_wheel(tmp_path / TRITON.file, members)
    with pytest.raises(ToolchainError, match=message):
        unpack.extract_members(archive, TRITON, tmp_path / "root")


def test_an_installed_package_is_used_in_the_pinned_version_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in MEMBERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    facts = tmp_path / "triton-3.9.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 3.9.0\n")
    (facts / "RECORD").write_text("".join(f"{name},,\n" for name in MEMBERS))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = unpack.find_installed_package(TRITON)
    assert found is not None
    assert unpack.copy_installed_members(found, TRITON, tmp_path / "root") == 3
    assert (tmp_path / "root/hip/amdgcn/bitcode/ockl.bc").read_bytes() == b"ockl"
    assert unpack.find_installed_package(replace(TRITON, version="3.8.0")) is None


def test_scripts_contain_no_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    sysroot.write_scripts(tmp_path, X86)
    for name in ("clang++", "lld", "ld.lld"):
        program = tmp_path / "bin" / name
        assert program.stat().st_mode & stat.S_IXUSR
        assert str(tmp_path) not in program.read_text()
    assert "--target=x86_64-linux-gnu" in (tmp_path / "bin/clang++").read_text()
    assert wheels.VERSION in (tmp_path / "bin/clang++").read_text()


@pytest.mark.parametrize(
    ("gpu", "version"), [("gfx90a", 9010), ("gfx942", 9402), ("gfx1100", 11000), ("gfx1201", 12001)]
)
def test_the_number_of_an_isa(gpu: str, version: int) -> None:
    assert sysroot.compute_isa_version(archs.load(gpu)) == version


def test_an_installed_toolchain_is_not_installed_again(
    clean_knobs: pytest.MonkeyPatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_knobs.setenv(knobs.CACHE_DIR.name, str(tmp_path))
    assert read_toolchain_manifest(get_toolchain_folder()) is None
    assert [part.fix for part in find.find_pypi_parts(())] == ["tilewright toolchain install"]
    monkeypatch.setattr(install, "_install", lambda *_: pytest.fail("it is installed again"))
    home = tmp_path / "toolchain" / wheels.VERSION
    home.mkdir(parents=True)
    (home / "manifest.json").write_text(json.dumps({"version": wheels.VERSION, "wheels": {}}))
    assert install.install_toolchain() == home
    (home / "manifest.json").write_text("{")
    assert "delete the folder" in find.find_pypi_parts(())[0].problem


def test_another_compiler_excludes_the_toolchain(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_knobs.setenv(knobs.CACHE_DIR.name, str(tmp_path))
    clean_knobs.setenv(knobs.CXX.name, "clang++-22")
    home = get_toolchain_folder()
    home.mkdir(parents=True)
    (home / "manifest.json").write_text(json.dumps({"version": wheels.VERSION, "wheels": {}}))
    compiler = next(part for part in find.find_pypi_parts(()) if part.name == "compiler")
    assert (compiler.ok, compiler.fix) == (False, "unset TILEWRIGHT_CXX")


def make_part(problem: str = "") -> tuple[Component, ...]:
    return (Component("compiler", "compiler", None, "", problem, "install it"),)


@pytest.mark.parametrize(
    ("complete", "wanted", "chosen"),
    [
        ({"rocm", "pypi", "gpu-less"}, "", "rocm"),
        ({"pypi", "gpu-less"}, "", "pypi"),
        ({"gpu-less"}, "", "gpu-less"),
        (set(), "", None),
        ({"rocm", "pypi", "gpu-less"}, "gpu-less", "gpu-less"),
        ({"rocm", "gpu-less"}, "pypi", None),
    ],
)
def test_the_order_of_toolchains(
    *,
    complete: set[str],
    wanted: str,
    chosen: str | None,
    clean_knobs: pytest.MonkeyPatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clean_knobs.setenv(knobs.TOOLCHAIN.name, wanted)
    found = {kind: make_part("" if kind in complete else "absent") for kind in knobs.TOOLCHAINS}
    monkeypatch.setattr(discover, "find_rocm_parts", lambda _: found["rocm"])
    monkeypatch.setattr(discover, "find_pypi_parts", lambda _: found["pypi"])
    monkeypatch.setattr(discover, "find_gpu_less_parts", lambda: found["gpu-less"])
    made = discover.discover()
    assert made.chosen == chosen
    assert made.parts == found[chosen or wanted or "gpu-less"]
    if chosen is None:
        assert "lacks compiler" in made.reason


def test_wheels_of_rocm_are_found_like_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_knobs: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discover, "DEFAULT_ROCM", tmp_path / "absent")
    assert discover.find_rocm_root() == tmp_path / "absent"
    for package in ("_rocm_sdk_core", "_rocm_sdk_devel"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert discover.find_rocm_root() == tmp_path / package
