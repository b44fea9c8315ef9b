from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from ck_samples import write_ck_tree
from tilewright.base.errors import ToolchainError
from tilewright.building import ck_cache, ck_headers, discover, flags, toolchain
from tilewright.building.driver import find_version_line

CLANG_VERSION = """\
Debian clang version 22.1.8 (1~deb12u1)
Target: x86_64-pc-linux-gnu
Thread model: posix
InstalledDir: /usr/lib/llvm-22/bin
"""
LIBRARIES = (*discover.LIBRARIES, "oclc_wavefrontsize64_on", "oclc_wavefrontsize64_off")


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def driver(path: Path, says: str) -> Path:
    """A program that prints its commands as clang does when it is asked with -###; its headers lie beside it."""
    resources = path.parent / "resources"
    (resources / "include").mkdir(parents=True, exist_ok=True)
    return program(path, f'{says}\n "{path}" "-cc1" "-resource-dir" "{resources}" "/dev/null"')


def headers(include: Path) -> None:
    (include / "hip").mkdir(parents=True)
    (include / "hip" / "hip_runtime.h").write_text("")
    (include / "hip" / "hip_version.h").write_text(
        "#define HIP_VERSION_MAJOR 5\n#define HIP_VERSION_MINOR 2\n#define HIP_VERSION_PATCH 7\n"
    )


def bitcode(folder: Path, *stems: str) -> Path:
    folder.mkdir(parents=True)
    for stem in (*LIBRARIES, *stems):
        (folder / f"{stem}.bc").write_bytes(stem.encode())
    return folder


def rocm(root: Path) -> Path:
    llvm = root / "llvm" / "bin"
    driver(root / "bin" / "amdclang++", "AMD clang version 20.0.0git (roc-7.1)\nInstalledDir: /x")
    for tool in ("llvm-objdump", "llvm-readelf", "clang-offload-bundler"):
        program(llvm / tool, "AMD LLVM version 20.0.0git")
    headers(root / "include")
    bitcode(root / "amdgcn" / "bitcode")
    return root


@pytest.fixture
def empty_machine(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine with nothing on PATH, no ROCm and no HIP."""
    clean_knobs.setenv("PATH", str(tmp_path / "no-programs"))
    clean_knobs.setattr(discover, "DEFAULT_ROCM", tmp_path / "no-rocm")
    clean_knobs.setattr(discover, "DISTRIBUTION", tmp_path / "usr")
    return clean_knobs


@pytest.fixture
def fetched_ck(tmp_path: Path) -> Path:
    ck = tmp_path / "checkout"
    (ck / "include" / "ck_tile").mkdir(parents=True)
    return ck


def test_an_empty_machine_lists_every_part_with_its_command(
    empty_machine: pytest.MonkeyPatch,
) -> None:
    survey = toolchain.survey_toolchains()
    assert survey.chosen is None
    with pytest.raises(ToolchainError) as raised:
        toolchain.find_toolchain()
    text = str(raised.value)
    for fact in (
        "7 parts missing",
        "no clang++-22 or newer on PATH",
        "apt-get install clang-22",
        "apt-get install lld-22",
        "apt-get install llvm-22",
        "libamdhip64-dev",
        "rocm-device-libs",
        "tilewright toolchain fetch-ck",
    ):
        assert fact in text
    missing = {part.name for part in (*survey.kinds[toolchain.GPU_LESS], survey.ck) if part.blocks}
    assert missing == {
        "compiler", "linker", "objdump", "readelf", "hip-headers", "device-libraries", "ck",
    }  # fmt: skip
    assert all(part.fix for part in survey.components)


def test_rocm_path_to_an_empty_folder_is_an_error_that_names_it(
    clean_knobs: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    clean_knobs.setenv("ROCM_PATH", str(tmp_path / "empty"))
    survey = toolchain.survey_toolchains()
    assert survey.chosen is None
    with pytest.raises(ToolchainError, match=f"ROCM_PATH={tmp_path}/empty is set") as raised:
        toolchain.find_toolchain()
    assert "rocm-llvm" in str(raised.value)
    assert "clang-22" not in str(raised.value), "the other toolchain is no part of this error"


def test_rocm_path_to_nowhere_is_an_error_that_names_it(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_knobs.setenv("ROCM_PATH", str(tmp_path / "nowhere"))
    with pytest.raises(ToolchainError, match=f"{tmp_path}/nowhere does not exist"):
        toolchain.find_toolchain()


def test_a_whole_rocm_is_used(empty_machine: pytest.MonkeyPatch, tmp_path: Path, cdna3: SimpleNamespace) -> None:
    root = rocm(tmp_path / "opt-rocm")
    write_ck_tree(root / "include")
    empty_machine.setenv("PATH", "/usr/bin:/bin")
    empty_machine.setenv("ROCM_PATH", str(root))
    found = toolchain.find_toolchain()
    assert (found.kind, found.rocm_path, found.ck_include) == ("rocm", root, root / "include")
    assert found.compiler == "AMD clang version 20.0.0git (roc-7.1)"
    assert found.bundler == root / "llvm" / "bin" / "clang-offload-bundler"
    given = found.device_flags(cdna3)
    assert f"--rocm-path={root}" in given
    assert f"--rocm-device-lib-path={root}/amdgcn/bitcode" in given
    assert not {"-include", "-nogpulib"} & set(given), "its headers and libraries fit its compiler"


def test_a_broken_default_rocm_leaves_the_reason(empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "no-rocm").mkdir()
    reason = toolchain.survey_toolchains().reason
    assert f"{tmp_path}/no-rocm lacks compiler" in reason
    assert "the GPU-less toolchain lacks compiler" in reason


def test_the_newest_clang_counts_and_an_old_one_is_refused(empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    driver(folder / "clang++-9", "clang version 9.0.1")
    old = driver(folder / "clang++-19", "clang version 19.1.7")
    empty_machine.setenv("PATH", f"{folder}:/usr/bin:/bin")
    empty_machine.setattr(discover.knobs, "search_path", lambda: str(folder))
    compiler = discover.find_gpu_less_parts()[0]
    assert compiler.problem == f"{old} is clang 19, and 22 or newer is needed"
    new = driver(folder / "clang++-23", "clang version 23.0.0")
    compiler, _, objdump, *_ = discover.find_gpu_less_parts()
    assert (compiler.ok, compiler.path, compiler.version) == (True, new, "clang version 23.0.0")
    assert objdump.fix == "apt-get install llvm-23"


def test_the_compiler_knob_overrides(empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty_machine.setenv("TILEWRIGHT_CXX", str(tmp_path / "my" / "clang++"))
    compiler = discover.find_gpu_less_parts()[0]
    assert compiler.problem == f"TILEWRIGHT_CXX={tmp_path}/my/clang++ is not a program"
    empty_machine.setenv("PATH", "/usr/bin:/bin")
    mine = driver(tmp_path / "my" / "clang++", CLANG_VERSION)
    compiler = discover.find_gpu_less_parts()[0]
    assert (compiler.ok, compiler.path) == (True, mine)
    program(mine, "g++ (Debian) 12.2.0")
    assert "is not clang" in discover.find_gpu_less_parts()[0].problem


def test_version_line_has_no_folders() -> None:
    assert find_version_line(CLANG_VERSION) == "Debian clang version 22.1.8 (1~deb12u1)"
    assert find_version_line("ROCm tool 7\n") == "ROCm tool 7"
    assert find_version_line("") == ""


def gpu_less(libraries: Path, ck: Path, compiler: str = "clang version 22.1.8") -> toolchain.Toolchain:
    return toolchain.Toolchain(
        kind="gpu-less", cxx=Path("/b/clang++-22"), compiler=compiler, objdump=Path("/b/objdump"),
        readelf=Path("/b/readelf"), bundler=None, rocm_path=Path("/usr"), bitcode_dir=libraries,
        bitcode_digest="d", compiler_digest="e", system_digest="s", ck_include=ck, ck_digest="f",
        hip_version="5.2.21153", hip_digest="h",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wave_size", "isa", "wide"),
    [
        ("gfx90a", 64, "90a", "on"),
        ("gfx942", 64, "940", "on"),
        ("gfx950", 64, "940", "on"),
        ("gfx1100", 32, "1036", "off"),
        ("gfx1201", 32, "1036", "off"),
    ],
)
def test_device_flags_link_the_libraries_of_the_gpu(
    tmp_path: Path, name: str, wave_size: int, isa: str, wide: str
) -> None:
    folder = bitcode(tmp_path / "bitcode", "oclc_isa_version_90a", "oclc_isa_version_940", "hip")
    arch = SimpleNamespace(name=name, wave_size=wave_size)
    given = gpu_less(folder, Path("/ck")).device_flags(arch)
    linked = [Path(flag).stem for flag in given if flag.endswith(".bc")]
    assert linked == [
        "hip", *discover.LIBRARIES, f"oclc_wavefrontsize64_{wide}", f"oclc_isa_version_{isa}",
    ]  # fmt: skip
    assert given[:6] == (
        "-x", "hip", f"--offload-arch={name}", "--cuda-device-only", "--no-gpu-bundle-output", "-c",
    )  # fmt: skip
    assert str(flags.COMPAT) in given
    assert flags.COMPAT.is_file()


def test_a_gpu_without_library_is_an_error(tmp_path: Path) -> None:
    folder = bitcode(tmp_path / "bitcode")
    arch = SimpleNamespace(name="gfx1300", wave_size=32)
    with pytest.raises(ToolchainError, match=r"no oclc_isa_version_1300\.bc for gfx1300"):
        gpu_less(folder, Path("/ck")).device_flags(arch)


def test_key_flags_and_identity_say_nothing_of_folders(tmp_path: Path, cdna3: SimpleNamespace) -> None:
    here = gpu_less(bitcode(tmp_path / "here"), tmp_path / "ck1")
    there = gpu_less(bitcode(tmp_path / "there"), tmp_path / "ck2")
    assert here.device_flags(cdna3) != there.device_flags(cdna3)
    assert here.key_flags(cdna3) == there.key_flags(cdna3)
    assert here.identity() == there.identity()
    assert str(tmp_path) not in here.identity() + "".join(here.key_flags(cdna3))
    other = gpu_less(bitcode(tmp_path / "other"), tmp_path / "ck1", "clang version 23.0.0")
    assert other.identity() != here.identity()


def test_a_missing_bundler_matters_only_when_it_is_needed(empty_machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundler = next(p for p in toolchain.survey_toolchains().kinds[toolchain.GPU_LESS] if p.name == "bundler")
    assert bundler.problem
    assert not bundler.blocks
    with pytest.raises(ToolchainError, match="apt-get install clang-tools-22"):
        gpu_less(tmp_path, tmp_path).require_bundler()


def test_ck_comes_from_the_knob_then_rocm_then_the_fetched_tree(
    clean_knobs: pytest.MonkeyPatch, tmp_path: Path, fetched_ck: Path
) -> None:
    root = tmp_path / "rocm"
    assert "fetch-ck" in ck_headers.find_ck_component(root).fix
    assert f"nor in {root}/include" in ck_headers.find_ck_component(root).problem
    (root / "include" / "ck_tile").mkdir(parents=True)
    assert "of an unknown generation: the probe" in ck_headers.find_ck_component(root).problem
    write_ck_tree(root / "include")
    assert ck_headers.find_ck_component(root).path == root / "include"
    clean_knobs.setenv("TILEWRIGHT_CK", str(fetched_ck))
    assert ck_headers.find_ck_component(root).path == fetched_ck / "include"
    clean_knobs.setenv("TILEWRIGHT_CK", str(tmp_path / "typo"))
    problem = ck_headers.find_ck_component(root).problem
    assert problem == f"TILEWRIGHT_CK={tmp_path}/typo has no include/ck_tile"


def test_headers_of_hip_and_of_the_compiler_are_in_the_identity(
    empty_machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = rocm(tmp_path / "rocm")
    write_ck_tree(root / "include")
    empty_machine.setenv("PATH", "/usr/bin:/bin")
    empty_machine.setenv("ROCM_PATH", str(root))
    seen = [toolchain.find_toolchain().identity()]
    for path in ("include/hip/hip_runtime.h", "include/hip/amd_detail/new.h", "bin/resources/include/stddef.h"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("// a revision with the same version\n")
        seen.append(toolchain.find_toolchain().identity())
    assert len(set(seen)) == len(seen)
    assert str(tmp_path) not in "".join(seen)


def test_headers_of_an_unknown_rocm_are_replaced_by_fetched_ones(
    clean_knobs: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A ROCm with a template parameter that no probe knows works like one without CK."""
    root = tmp_path / "rocm"
    header = root / "include" / "ck_tile" / "ops" / "gemm" / "pipeline" / "gemm_pipeline_problem.hpp"
    write_ck_tree(root / "include")
    header.write_text(header.read_text().replace("<typename", "<int Future_, typename", 1))
    fetched = tmp_path / "cache" / "ck" / ck_cache.DEFAULT_TREE
    write_ck_tree(fetched / "include")
    (fetched / "manifest.json").write_text('{"files": {"include": 1}}')
    part = ck_headers.find_ck_component(root)
    assert part.path == fetched / "include"
    assert f"because those of {root} are of an unknown generation: the probe" in part.version
    assert "has Future, compared with 2025-11" in part.version
