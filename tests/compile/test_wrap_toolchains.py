"""Small HIP sources through the recipes of both toolchains: what is embedded, and how it is named."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_wrap_build import BUILDS, build, products_of, stamps, tilewright

import tilewright as tilewright_package
from tilewright import arch as archs
from tilewright.building.recipe import make_gpu_less_recipe
from tilewright.building.toolchain import GPU_LESS, Toolchain, find_toolchain
from tilewright.codegen.build_files import find_build_system
from tilewright.codegen.fatbin import fatbin_symbol, render_fatbin
from tilewright.codegen.wrapper_folder import wrap_kernels
from tilewright.codegen.wrappers import KernelFolder, find_wrappers

pytestmark = pytest.mark.compile

KERNEL = """
#pragma once
#include <hip/hip_runtime.h>
#ifdef __HIP_DEVICE_COMPILE__
#include "device.h"
#endif
__global__ void fill_%(name)s(int* p) { p[threadIdx.x] = %(value)d; }
extern "C" int value_of_%(name)s() { return %(value)d; }
extern "C" void run_%(name)s(int* p) { fill_%(name)s<<<1, 64>>>(p); }
"""
TEMPLATES = (
    "#pragma once\ntemplate <typename T> T twice(T x) { return x + x; }\ninline int four() { return twice(2); }\n"
)
# The MD5 of this name has zeros where the hash begins: clang does not write them.
SHORT_HASH = next(f"unit{i}" for i in range(10**6) if len(fatbin_symbol(f"unit{i}")) < len("__hip_fatbin_") + 15)


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    found = find_toolchain()
    if found.kind != GPU_LESS:
        pytest.skip("the toolchain in force is ROCm")
    return found


def kernel_headers(folder: Path) -> Path:
    folder.mkdir()
    for value, name in enumerate(("one", "two")):
        (folder / f"{name}.hpp").write_text(KERNEL % {"name": name, "value": value})
    (folder / "only templates.hpp").write_text(TEMPLATES)
    (folder / "device.h").touch()
    return folder


def call(*command: object, folder: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_code_objects_come_out_as_they_went_in(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "device.h").touch()
    (tmp_path / "k.hip").write_text(KERNEL % {"name": "it", "value": 7})
    unit = f"-cuid={SHORT_HASH}"
    gpus = ("gfx942", "gfx1100")
    for gpu in gpus:
        call(toolchain.cxx, *toolchain.device_flags(archs.load(gpu)), unit, "k.hip", "-o", f"{gpu}.co", folder=tmp_path)
    (tmp_path / "k.s").write_text(render_fatbin({gpu: f"{gpu}.co" for gpu in gpus}, fatbin_symbol(SHORT_HASH)))
    call(toolchain.cxx, *toolchain.host_flags(), unit, "-c", "k.hip", "-o", "k.o", folder=tmp_path)
    # -z defs: the symbol that the host code asks for must be the one that the assembly defines.
    link = ("-shared", "k.o", "k.s", "-o", "k.so", "-fuse-ld=lld", "-lamdhip64", "-Wl,-z,defs")
    call(toolchain.cxx, *link, folder=tmp_path)
    assert ctypes.CDLL(str(tmp_path / "k.so")).value_of_it() == 7
    call(toolchain.objdump, "--offloading", "k.so", folder=tmp_path)  # LLVM's own reader writes the entries to files
    for gpu in gpus:
        extracted = tmp_path / f"k.so.0.hipv4-amdgcn-amd-amdhsa--{gpu}"
        assert extracted.read_bytes() == (tmp_path / f"{gpu}.co").read_bytes()
    assert (tmp_path / "k.so.0.host-x86_64-unknown-linux-gnu-").read_bytes() == b""


@pytest.mark.deep
def test_headers_of_other_generators_for_two_gpus(toolchain: Toolchain, tmp_path: Path) -> None:
    kernels, out = kernel_headers(tmp_path / "kernels"), tmp_path / "out"
    found = find_wrappers(kernels, "*.hpp", KernelFolder(frozenset(), {}))
    recipe = make_gpu_less_recipe(toolchain, [archs.load("gfx942"), archs.load("gfx90a")])
    wrap_kernels(found, kernels, out, recipe, library="k", systems=[find_build_system("ninja")])
    build("ninja", out)
    library = ctypes.CDLL(str(out / "libk.so"))
    assert [library.value_of_one(), library.value_of_two()] == [0, 1]
    for wrapper in found:
        assert ctypes.c_char.in_dll(library, wrapper.marker).value == wrapper.name[:1].encode()
    call(toolchain.objdump, "--offloading", out / "libk.so", folder=tmp_path)
    extracted = {path.read_bytes() for path in out.glob("libk.so.*hipv4*")}
    embedded = [out / "kernel_objects" / f"{name}.{gpu}.co" for name in ("one", "two") for gpu in ("gfx942", "gfx90a")]
    assert {path.read_bytes() for path in embedded} <= extracted
    before = stamps(out)
    (kernels / "device.h").touch()
    build("ninja", out)
    after = stamps(out)
    again = {f"{name}{suffix}" for name in ("one", "two") for suffix in (".gfx942.co", ".gfx90a.co", ".fatbin.o")}
    assert {name for name in after if after[name] != before[name]} == {*again, "libk.so"}


@pytest.mark.parametrize(
    ("system", "beside"), [pytest.param("cmake", False, marks=pytest.mark.deep), ("ninja", True), ("make", False)]
)
def test_a_folder_that_moved(toolchain: Toolchain, system: str, beside: bool, tmp_path: Path) -> None:
    """Wrapped by a Tilewright that is gone, in a folder that is gone: as on another machine of the same kind."""
    venv, first, second = tmp_path / "venv", tmp_path / "first", tmp_path / "second"
    package = Path(tilewright_package.__file__).parent
    shutil.copytree(package, venv / "tilewright")
    first.mkdir()
    kernels = kernel_headers(first / "kernels")
    out = kernels if beside else first / "out"
    option = "--generate-makefile" if system == "make" else f"--generate-{system}"
    words = ["wrap", "--kernel-dir", kernels, "--out", out, "--pattern", "two.hpp", option, "--gpu", "gfx942"]
    command = [sys.executable, "-m", "tilewright", *words]
    surroundings = {**os.environ, "PYTHONPATH": str(venv)}
    subprocess.run([str(word) for word in command], env=surroundings, check=True, capture_output=True)
    shutil.rmtree(venv)
    out = first.rename(second) / out.relative_to(first)
    assert [path for path in out.iterdir() if path.is_file() and str(tmp_path).encode() in path.read_bytes()] == []
    build(system, out)
    path = products_of(system, out) / "libtilewright_kernels.so"
    assert ctypes.CDLL(str(path)).value_of_two() == 1
    assert "amdhip" not in call(toolchain.readelf, "--dynamic", path, folder=tmp_path)


# A hipcc that does with the GPU-less toolchain what ROCm's does: one call makes one whole object.
HIPCC = """#!{python}
import subprocess, sys
from tilewright.codegen.fatbin import render_fatbin, fatbin_symbol
CXX, DEVICE, HOST = {cxx!r}, {device!r}, {host!r}
args = sys.argv[1:]
if "-c" not in args or "-###" in args:
    sys.exit(subprocess.call([CXX, *args]))
out, unit = args[args.index("-o") + 1], next(a for a in args if a.startswith("-cuid="))
gpus = [a.split("=")[1] for a in args if a.startswith("--offload-arch=")]
source = next(a for a in args if a.endswith(".cpp"))
for gpu in gpus:
    subprocess.check_call([CXX, *DEVICE[gpu], "-Iheaders", unit, source, "-o", f"{{out}}.{{gpu}}.tmp"])
files = {{gpu: f"{{out}}.{{gpu}}.tmp" for gpu in gpus}}
open(f"{{out}}.tmp.s", "w").write(render_fatbin(files, fatbin_symbol(unit.removeprefix("-cuid="))))
tracking = args[args.index("-MMD") : args.index("-MF") + 2]
subprocess.check_call([CXX, *HOST, "-c", "-Iheaders", unit, *tracking, source, "-o", f"{{out}}.host.tmp"])
subprocess.check_call([CXX, "-r", "-nostdlib", "-fuse-ld=lld", f"{{out}}.host.tmp", f"{{out}}.tmp.s", "-o", out])
"""


@pytest.fixture
def rocm(toolchain: Toolchain, tmp_path: Path) -> Path:
    """A ROCm installation whose parts are those of the GPU-less toolchain."""
    root = tmp_path / "rocm 7"
    for folder in ("bin", "llvm/bin", "include/ck_tile", "amdgcn", "lib"):
        (root / folder).mkdir(parents=True)
    (root / "llvm" / "bin" / "llvm-objdump").symlink_to(toolchain.objdump)
    (root / "llvm" / "bin" / "llvm-readelf").symlink_to(toolchain.readelf)
    (root / "include" / "hip").symlink_to(toolchain.rocm_path / "include" / "hip")
    (root / "amdgcn" / "bitcode").symlink_to(toolchain.bitcode_dir)
    device = {gpu: toolchain.device_flags(archs.load(gpu)) for gpu in ("gfx942",)}
    text = HIPCC.format(python=sys.executable, cxx=str(toolchain.cxx), device=device, host=toolchain.host_flags())
    (root / "bin" / "hipcc").write_text(text)
    (root / "bin" / "hipcc").chmod(0o755)
    return root


IN_CI = {("cmake", True), ("make", False)}  # each place of a compiler; other tests have ninja
ROCMS = [
    pytest.param(
        system,
        installed,
        marks=() if (system, installed) in IN_CI else pytest.mark.deep,
        id=f"{'rocm-here' if installed else 'hipcc-on-path'}-{system}",
    )
    for system in BUILDS
    for installed in (True, False)
]


@pytest.mark.parametrize(("system", "installed"), ROCMS)
def test_rocm(system: str, installed: bool, rocm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, out = kernel_headers(tmp_path / "kernels"), tmp_path / "out"
    option = "--generate-makefile" if system == "make" else f"--generate-{system}"
    if installed:
        monkeypatch.setenv("ROCM_PATH", str(rocm))
    else:
        monkeypatch.setenv("PATH", f"{rocm / 'bin'}{os.pathsep}{os.environ['PATH']}")
    folders = ["--kernel-dir", kernels, "--output-dir", out]
    tilewright("wrap", *folders, option, "--toolchain", "rocm", "--arch", "gfx942")
    assert (str(rocm / "bin" / "hipcc") in (out / "recipe.json").read_text()) == installed
    build(system, out)
    products = products_of(system, out)
    library = ctypes.CDLL(str(products / "libtilewright_kernels.so"))
    assert [library.value_of_one(), library.value_of_two()] == [0, 1]
    before = stamps(products)
    (kernels / "two.hpp").touch()
    build(system, out)
    after = stamps(products)
    assert {name for name in after if after[name] != before[name]} == {"two.o", "libtilewright_kernels.so"}
