"""Packs that are really linked: same bytes, exact exports, nothing of this machine, whole or not at all."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pack_parts import HOST, OP, device_code, kernel_of, linkable, unlinkable

from tilewright import ops
from tilewright.base import events
from tilewright.base.digest import digest_file, digest_text
from tilewright.base.errors import CompileError, PackError
from tilewright.building.pack.library import FUNCTIONS
from tilewright.building.pack.manifest import read_pack
from tilewright.building.pack.write import write_pack
from tilewright.building.store.artifact import Artifact
from tilewright.building.toolchain import ROCM, Toolchain
from tilewright.ops.call_header import format_header
from tilewright.ops.gemm.call import CALL

pytestmark = pytest.mark.compile

KERNELS = (kernel_of(), kernel_of(pad_m=True), kernel_of("gfx90a"))
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
# What clang++ links into any shared library of C++; the loader itself is named for thread-local variables.
SYSTEM = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2"}


@pytest.fixture(scope="session")
def artifacts(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> list[Artifact]:
    folder = tmp_path_factory.mktemp("artifacts")
    resources = {KERNELS[0]: [{"name": "first", "vgprs": 128}, {"name": "second", "vgprs": 64}]}
    return [linkable(kernel, toolchain, folder, resources=resources.get(kernel, [])) for kernel in KERNELS]


def output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def exports(library: Path) -> set[str]:
    return {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}


def dynamic(library: Path, tag: str) -> set[str]:
    lines = output("readelf", "-d", "--wide", library).splitlines()
    return {line.split("[")[1].rstrip("]") for line in lines if f"({tag})" in line}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_library_per_gpu_with_exactly_its_kernels(
    artifacts: list[Artifact], toolchain: Toolchain, tmp_path: Path
) -> None:
    steps: list[events.Event] = []
    with events.add_listener(steps.append):
        pack = write_pack(artifacts, toolchain, tmp_path / "pack", name="mine")

    assert read_pack(tmp_path / "pack") == pack
    assert pack.gpus == ("gfx90a", "gfx942")
    assert len([step for step in steps if isinstance(step, events.Advanced)]) == len(KERNELS)
    for gpu in pack.gpus:
        own = [kernel for kernel in KERNELS if kernel.arch == gpu]
        library = pack.library_path(gpu)
        functions = {f"{kernel.symbol}_{function}" for kernel in own for function in FUNCTIONS}
        assert exports(library) == {"tw_pack_table", *functions}
        assert dynamic(library, "SONAME") == {f"libmine_{gpu}.so"} == {library.name}
        assert dynamic(library, "RPATH") == dynamic(library, "RUNPATH") == set()
        assert dynamic(library, "NEEDED") <= SYSTEM, "HIP is found at run time"
        raw = library.read_bytes()
        assert raw.count(MAGIC) == len(own)
        assert [kernel.slug for kernel in KERNELS if device_code(kernel) in raw] == [kernel.slug for kernel in own]
        loaded = ctypes.CDLL(str(library))
        for kernel in own:
            name = loaded[f"{kernel.symbol}_name"]
            name.restype = ctypes.c_char_p
            assert name() == kernel.slug.encode(), "the host code must see the device code of its own kernel"
    assert [k.slug for k in pack.kernels if [r["vgprs"] for r in k.resources] == [128, 64]] == [KERNELS[0].slug]
    assert {kernel.code_object for kernel in pack.kernels} == {a.files["kernel.co"].blake2b for a in artifacts}


def test_the_same_artifacts_give_the_same_bytes_anywhere(
    artifacts: list[Artifact], toolchain: Toolchain, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "another place" / "with a longer name"
    write_pack(artifacts, toolchain, one)
    write_pack(list(reversed(artifacts)), toolchain, two)

    assert contents(one) == contents(two)
    assert len(contents(one)) == 17
    assert [path for path, raw in contents(one).items() if str(tmp_path).encode() in raw] == []


def test_everybody_may_read_a_pack(artifacts: list[Artifact], toolchain: Toolchain, tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        write_pack(artifacts[:1], toolchain, tmp_path / "pack")
    finally:
        os.umask(umask)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "pack").rglob("*") if path.is_file()}

    assert (tmp_path / "pack").stat().st_mode & 0o777 == 0o755
    assert modes <= {0o644, 0o755}


def test_a_pack_is_replaced_and_a_link_to_it_stays(
    artifacts: list[Artifact], toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "pack")
    write_pack(artifacts, toolchain, tmp_path / "pack")
    pack = write_pack(artifacts[:1], toolchain, tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert read_pack(tmp_path / "pack").kernels == pack.kernels
    assert [path.name for path in (tmp_path / "pack" / "lib").glob("*.so")] == ["libtilewright_pack_gfx942.so"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pack"]


def test_what_the_linker_refuses_is_shown_and_the_older_pack_stays(
    artifacts: list[Artifact], toolchain: Toolchain, tmp_path: Path
) -> None:
    older = write_pack(artifacts, toolchain, tmp_path / "pack")
    (tmp_path / "store").mkdir()
    broken = unlinkable(kernel_of(pad_n=True), tmp_path / "store")
    with pytest.raises(CompileError, match=r"cannot link libtilewright_pack_gfx942\.so") as caught:
        write_pack([*artifacts, broken], toolchain, tmp_path / "pack")

    assert f"{kernel_of(pad_n=True).symbol}.host.o" in caught.value.log
    assert read_pack(tmp_path / "pack") == older
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pack", "store"]


def test_a_host_object_without_its_functions_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    empty = tmp_path / "empty.o"
    subprocess.run([str(toolchain.cxx), "-x", "c", "-fPIC", "-c", "/dev/null", "-o", str(empty)], check=True)
    artifact = unlinkable(kernel_of(), tmp_path)
    (artifact.folder / "host.o").write_bytes(empty.read_bytes())
    size, digest = empty.stat().st_size, digest_file(empty)
    files = {**artifact.files, "host.o": dataclasses.replace(artifact.files["host.o"], size=size, blake2b=digest)}

    with pytest.raises(CompileError, match=f"{kernel_of().symbol}_supports"):
        write_pack([dataclasses.replace(artifact, files=files)], toolchain, tmp_path / "pack")


def test_a_pack_of_rocm_carries_no_folder_of_it(
    artifacts: list[Artifact], toolchain: Toolchain, tmp_path: Path
) -> None:
    rocm = tmp_path / "rocm"
    kind = dataclasses.replace(toolchain, kind=ROCM, rocm_path=rocm)
    pack = write_pack(artifacts, kind, tmp_path / "pack")

    assert dynamic(pack.library_path("gfx942"), "RUNPATH") == dynamic(pack.library_path("gfx942"), "RPATH") == set()
    assert str(rocm).encode() not in pack.library_path("gfx942").read_bytes()


def test_several_ops_share_a_library_and_one_program_uses_both(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((header, text),) = format_header(dataclasses.replace(CALL, op="other", abi_version=7)).items()
    other = dataclasses.replace(OP, name="other", support={header: text})
    monkeypatch.setattr(ops, "OPS", (OP, other))
    kernels = [kernel_of(), kernel_of(op="other")]
    pack = write_pack([linkable(kernel, toolchain, tmp_path) for kernel in kernels], toolchain, tmp_path / "pack")

    assert [kernel.op for kernel in pack.kernels] == [OP.name, "other"]
    (tmp_path / "both.cpp").write_text(BOTH.replace("OP_NAME", OP.name))
    words = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{tmp_path}/pack/include"]
    output("g++", *words, tmp_path / "both.cpp", "-o", tmp_path / "both", "-ldl")
    printed = output(tmp_path / "both", tmp_path / "pack").splitlines()
    assert printed == [
        f"{kernels[0].slug} takes arguments of op '{OP.name}', these are of op 'other'",
        f"{kernels[1].slug} takes arguments of op 'other', these are of op '{OP.name}'",
        "7",
    ]
    header = tmp_path / "pack" / "include" / "tilewright" / "other.h"
    header.write_text(header.read_text().replace("OTHER_ABI_VERSION 7", "OTHER_ABI_VERSION 8"))
    (tmp_path / "both.cpp").write_text(
        (tmp_path / "both.cpp").read_text().replace(f"tw_{OP.name}_args", "tw_other_args")
    )
    output("g++", *words, tmp_path / "both.cpp", "-o", tmp_path / "both", "-ldl")
    said = "has version 7 of the interface of 'other', this program has 8. Compile it with the headers of the pack."
    assert output(tmp_path / "both", tmp_path / "pack").splitlines()[1] == f"{kernels[1].slug} {said}"


BOTH = """
#include <tilewright/other.h>
#include <tilewright/OP_NAME.h>
#include <tilewright/tilewright.hpp>
#include <iostream>
template <typename Wrong>
void refused(const tilewright::Kernel& kernel)
{
    try { kernel.supports(tilewright::make_args<Wrong>()); }
    catch(const tilewright::Error& error) { std::cout << error.what() << std::endl; }
}
int main(int, char** words)
{
    const auto pack = tilewright::Pack::open(words[1], "gfx942");
    const auto any = [](const tilewright::Kernel&) { return true; };
    refused<tw_other_args>(*pack.find_first("OP_NAME", any));
    refused<tw_OP_NAME_args>(*pack.find_first("other", any));
    std::cout << pack.find_first("other", any)->entry().abi_version << std::endl;
}
"""


def test_the_unit_decides_where_the_device_code_goes(toolchain: Toolchain, tmp_path: Path) -> None:
    artifact = linkable(kernel_of(), toolchain, tmp_path, unit=digest_text("another"))

    with pytest.raises(CompileError, match=r"undefined .*__hip_fatbin_"):
        write_pack([artifact], toolchain, tmp_path / "pack")


def test_a_pack_calls_its_own_kernels_beside_another_pack_with_the_same(toolchain: Toolchain, tmp_path: Path) -> None:
    libraries = []
    for word in ("here", "there"):
        (tmp_path / word).mkdir()
        artifact = linkable(kernel_of(), toolchain, tmp_path / word, host=HOST.replace("no device", f"none {word}"))
        libraries.append(write_pack([artifact], toolchain, tmp_path / word / "pack").library_path("gfx942"))
    (tmp_path / "two.c").write_text(TWO)
    include = f"-I{libraries[0].parents[1]}/include"
    output("gcc", include, tmp_path / "two.c", "-o", tmp_path / "two", "-ldl")

    assert output(tmp_path / "two", *libraries) == "none here for m = 0\nnone there for m = 0\n"


TWO = """
#include <dlfcn.h>
#include <stdio.h>
#include <tilewright/pack.h>
int main(int count, char** words)
{
    static const int64_t args[64];
    for(int i = 1; i < count; ++i)
    {
        void* library = dlopen(words[i], RTLD_NOW | RTLD_GLOBAL);
        const tw_pack_kernel* kernel = ((tw_pack_table_fn)dlsym(library, "tw_pack_table"))()->kernels;
        kernel->run(args, 0);
        puts(kernel->message());
    }
}
"""


@pytest.mark.parametrize("pages", [0, 3, *(pytest.param(n, marks=pytest.mark.deep) for n in range(5, 200, 15))])
def test_a_full_disk_leaves_no_part_of_a_pack(
    artifacts: list[Artifact], toolchain: Toolchain, small_disk: Path, pages: int
) -> None:
    (small_disk / "ballast").write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - pages * 4096))
    try:
        write_pack(artifacts[:1], toolchain, small_disk / "pack")
    except PackError as error:
        assert "free space" in str(error)
        assert [path.name for path in small_disk.iterdir()] == ["ballast"]
    (small_disk / "ballast").unlink()
    pack = write_pack(artifacts[:1], toolchain, small_disk / "pack")
    assert read_pack(small_disk / "pack") == pack
