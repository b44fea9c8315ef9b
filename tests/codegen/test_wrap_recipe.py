"""From a toolchain to a recipe."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tilewright import arch as archs
from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError, ToolchainError
from tilewright.building.flags import COMPAT, HIP_FORWARD
from tilewright.building.recipe import make_gpu_less_recipe, make_hipcc_recipe, make_recipe, make_rocm_recipe
from tilewright.building.toolchain import GPU_LESS, ROCM, Toolchain
from tilewright.codegen.build_files.recipe import FolderFile, Slot

GPUS = [archs.load("gfx942"), archs.load("gfx90a")]
PROGRAMS = ("bin/amdclang++", "llvm/bin/llvm-objdump", "llvm/bin/llvm-readelf")


@pytest.fixture(autouse=True)
def _clean_knobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for knob in knobs.KNOBS:
        monkeypatch.delenv(knob.name, raising=False)
    monkeypatch.setenv(knobs.CACHE_DIR.name, str(tmp_path / "cache"))


def toolchain(kind: str, folder: Path) -> Toolchain:
    """A toolchain all of whose parts lie in one folder."""
    places = {"rocm_path": folder / "rocm", "bitcode_dir": folder, "ck_include": folder / "ck", "kind": kind}
    return Toolchain(**{field.name: places.get(field.name, field.name) for field in fields(Toolchain)})


@pytest.fixture
def bitcode(tmp_path: Path) -> Path:
    for number in (940, "90a"):
        (tmp_path / f"oclc_isa_version_{number}.bc").touch()
    return tmp_path


def test_without_rocm_code_objects_are_made_apart_and_embedded(bitcode: Path) -> None:
    made = make_gpu_less_recipe(toolchain(GPU_LESS, bitcode), GPUS)
    assert [step.product for step in made.steps] == [".gfx942.co", ".gfx90a.co", ".host.o", ".fatbin.o"]
    assert [step.linked for step in made.steps] == [False, False, True, True]
    host, embed = made.steps[2:]
    assert embed.needs == (".gfx942.co", ".gfx90a.co")
    assert embed.words == ("-c", Slot.SOURCE, "-o", Slot.PRODUCT)
    assert {"--offload-arch=gfx942", "--offload-arch=gfx90a", "--cuda-host-only", "-fPIC"} < set(host.flags)
    for step in made.steps[:3]:
        assert Slot.UNIT in step.words
        assert list(step.words).count("-c") == 1
    assert host.flags[host.flags.index("-include") + 1] == FolderFile("tilewright_compat.h")
    assert made.files == {"tilewright_compat.h": COMPAT.read_text(), "hip_forward.c": HIP_FORWARD.read_text()}
    assert str(COMPAT.parent) not in made.to_json()
    assert FolderFile("hip_forward.c") in made.link_flags and "-lamdhip64" not in made.link_flags
    assert set(made.list_include_paths()) == {str(bitcode / "ck")}
    assert {each.variable: each.path for each in made.paths} == {
        "TILEWRIGHT_CK_INCLUDE": str(bitcode / "ck"),
        "TILEWRIGHT_DEVICE_LIBS": str(bitcode),
        "ROCM_PATH": str(bitcode / "rocm"),
    }


def test_rocm_compiles_in_one_call(tmp_path: Path) -> None:
    made = make_rocm_recipe(toolchain(ROCM, tmp_path), GPUS)
    (step,) = made.steps
    assert step.flags[:2] == ("--offload-arch=gfx942", "--offload-arch=gfx90a")
    assert {f"--rocm-path={tmp_path}/rocm", f"--rocm-device-lib-path={tmp_path}", "-fPIC", "-c"} < set(step.flags)
    assert not {"--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib"} & set(step.flags)
    assert {f"-Wl,-rpath,{tmp_path}/rocm/lib", FolderFile("hip_forward.c")} <= set(made.link_flags)
    assert "-lamdhip64" not in made.link_flags


def test_a_hipcc_elsewhere_is_told_nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = make_hipcc_recipe(GPUS[:1])
    text = made.to_json()
    assert made.compiler == "hipcc"
    assert not [word for word in ("<", "rocm-path", "device-lib") if word in text]
    assert list(made.list_include_paths()) == []
    (tmp_path / "checkout" / "include" / "ck_tile").mkdir(parents=True)
    monkeypatch.setenv(knobs.CK_PATH.name, str(tmp_path / "checkout"))
    assert f"-I{tmp_path}/checkout/include" in make_hipcc_recipe(GPUS[:1]).steps[0].flags


def test_further_flags(monkeypatch: pytest.MonkeyPatch, bitcode: Path) -> None:
    """Every call that compiles a kernel gets them, after the others; the one that embeds code objects does not."""
    monkeypatch.setattr("tilewright.building.recipe.find_toolchain", lambda: toolchain(GPU_LESS, bitcode))
    extra = ("-mllvm", "-enable-noalias-to-md-conversion=0")
    made = make_recipe(None, GPUS, extra)
    assert [step.flags[-2:] == extra for step in made.steps] == [True, True, True, False]
    assert made.to_json() != make_recipe(None, GPUS).to_json()
    with pytest.raises(InvalidValueError, match="a compiler flag is a line of printable characters, got ''"):
        make_recipe(None, GPUS, [""])


def test_another_toolchain_than_the_current_one_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in PROGRAMS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        command = f' "{tmp_path / name}" "-cc1" "-resource-dir" "{tmp_path}"'
        (tmp_path / name).write_text(f"#!/bin/sh\necho clang version 20.0\necho '{command}'\n")
        (tmp_path / name).chmod(0o755)
    for name in ("include/hip", "amdgcn/bitcode"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("ockl", "ocml"):
        (tmp_path / "amdgcn" / "bitcode" / f"{name}.bc").touch()
    version = "".join(f"#define HIP_VERSION_{part} 6\n" for part in ("MAJOR", "MINOR", "PATCH"))
    (tmp_path / "include" / "hip" / "hip_version.h").write_text(version)
    (tmp_path / "include" / "hip" / "hip_runtime.h").touch()
    monkeypatch.setenv(knobs.ROCM_PATH.name, str(tmp_path))
    with pytest.raises(ToolchainError, match=r"gpu-less is not the current one: ROCM_PATH=.* is set and complete"):
        make_recipe(GPU_LESS, GPUS)
