"""A compiler that only writes files, and a recipe for it: for tests of names, paths and dependencies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tilewright.codegen.build_files import BUILD_SYSTEMS, find_build_system
from tilewright.codegen.build_files.recipe import BuildStep, CompileRecipe
from tilewright.codegen.wrapper_folder import WrapResult, wrap_kernels
from tilewright.codegen.wrappers import KernelFolder, find_wrappers

UNKNOWN = KernelFolder(frozenset(), {})

# Lists its arguments, one a line, then does to files what clang does: a product with the content of what was read,
# a list of dependencies with clang's escapes, and a library out of all objects. HIP's passes need no device here.
COMPILER = r"""#!/bin/sh
printf '%s\n' "$@" >> "$ARGUMENTS"  # in one write: two compilers may run at once
while [ $# -gt 0 ]; do
  case $1 in
    -o) out=$2; shift ;;
    -MF) list=$2; shift ;;
    -MT) target=$2; shift ;;
    @*) objects=${1#@} ;;
    *.cpp) source=$1; read=headers/$(sed -n 's/^#include "\(.*\)"$/\1/p' "$1") ;;
    *.s) source=$1; read=$(sed -n 's/.*\.incbin "\(.*\)"$/\1/p' "$1") ;;
  esac
  shift
done
if [ -n "$objects" ]; then xargs cat < "$objects" > "$out"; exit; fi
cat "$source" $extra "$read" > "$out" || exit
if [ -n "$list" ]; then
  escaped=$(printf %s "$read" | sed 's/\$/$$/g; s/#/\\#/g; s/ /\\ /g')
  printf '%s: %s headers/shared.h\n\n%s:\n\nheaders/shared.h:\n' "$target" "$escaped" "$escaped" > "$list"
fi
"""
# Every character that a shell or a build file could read something into.
ODD_WORD = "-DODD=a b$c${d}#e'f\"g\\h;i|j&k<l>m*n?o%p~q!r^s(t)[u]=v`w"


def recipe(compiler: Path, *flags: str) -> CompileRecipe:
    """Steps of the same shape as those of the GPU-less toolchain."""
    device = BuildStep("device", "(device code)", ("--device", *flags), ".cpp", ".gfx942.co")
    host = BuildStep("host", "(host code)", ("--host", *flags), ".cpp", ".host.o", linked=True)
    needs = (device.product,)
    embed = BuildStep(
        "embed", "(embedding)", ("-c",), ".fatbin.s", ".fatbin.o", needs, reads_headers=False, linked=True
    )
    return CompileRecipe(str(compiler), ("gfx942",), (device, host, embed), ("-lx", *flags))


def stand_in_compiler(folder: Path, name: str = "compiler") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(COMPILER)
    path.chmod(0o755)
    return path


def headers(folder: Path, names: Iterable[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"content of {name}\n")
    if not (folder / "shared.h").exists():
        (folder / "shared.h").write_text("")
    return folder


def wrap_all(kernels: Path, out: Path, how: CompileRecipe, *systems: str, library: str = "k") -> WrapResult:
    found = find_wrappers(kernels, "**/*.hpp", UNKNOWN)
    return wrap_kernels(
        found, kernels, out, how, library=library, systems=[find_build_system(name) for name in systems], jobs=2
    )


def tool(name: str) -> str:
    """A build tool; ninja is a dependency of ours, the others come with the machine."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


# How each is run; CMake with both of its generators.
BUILDS = {
    "ninja": [["ninja", "-j2"]],
    "make": [["make", "-j2"]],
    "cmake-ninja": [["cmake", "-B", "build", "-G", "Ninja"], ["cmake", "--build", "build", "-j2"]],
    "cmake-make": [["cmake", "-B", "build", "-G", "Unix Makefiles"], ["cmake", "--build", "build", "-j2"]],
}
assert {name.partition("-")[0] for name in BUILDS} == {system.name for system in BUILD_SYSTEMS}


def build(how: str, folder: Path, log: Path, *more: str) -> str:
    """Run a build; what it printed. The stand-in compiler lists its arguments in `log`."""
    environment = {**os.environ, "ARGUMENTS": str(log), "PATH": f"{Path(tool('ninja')).parent}:{os.environ['PATH']}"}
    printed = ""
    for command in BUILDS[how]:
        words = [tool(command[0]), *command[1:], *(more if command is BUILDS[how][-1] else ())]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        printed += done.stdout + done.stderr
        assert done.returncode == 0, printed
    return printed


def products_folder(how: str, folder: Path) -> Path:
    return folder / "build" if how.startswith("cmake") else folder


def stamps(folder: Path) -> dict[str, int]:
    """When each product and the library were made."""
    files = [*(folder / "kernel_objects").iterdir(), *folder.glob("lib*.so")]
    return {p.name: p.stat().st_mtime_ns for p in files if p.suffix in (".o", ".co", ".so")}
