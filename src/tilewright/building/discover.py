"""Find the kinds of toolchain, check that their components work, and choose one.

A kind is ROCm, the toolchain from wheels on PyPI, or GPU-less: upstream clang and the distribution's HIP packages."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.knobs import DEFAULT_ROCM, GPU_LESS, PYPI, ROCM
from tilewright.building.components import (
    Component,
    check_compiler,
    check_device_libraries,
    check_hip_headers,
    check_program,
)
from tilewright.building.from_pypi.find import find_pypi_parts

# Where Linux distributions install the HIP headers and the device libraries.
DISTRIBUTION = Path("/usr")
# The first clang known to compile CK Tile for every GPU up to gfx950 and gfx1201 without ROCm.
MIN_CLANG = 22
# Linked into every GPU-less device pass, in this order.
LIBRARIES = (
    "ockl",
    "ocml",
    "oclc_abi_version_500",  # the code object version that clang 22 emits by default needs ABI 500
    "oclc_unsafe_math_off",
    "oclc_finite_only_off",
    "oclc_correctly_rounded_sqrt_on",
)
# Linked if the folder has them: later device libraries dropped both. A library only resolves symbols that are
# undefined when it is linked, so callers come first.
# hip.bc defines __atomic_work_item_fence, which __syncthreads() of the 5.2 headers calls.
RETIRED_CALLERS = ("hip",)
RETIRED_CONSTANTS = ("oclc_daz_opt_off",)
_ROCM_LLVM = "apt-get install rocm-llvm"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The components of all kinds, without the CK headers, and the chosen kind."""

    rocm_root: Path
    kinds: Mapping[str, tuple[Component, ...]]  # by name, in the order of preference
    chosen: str | None
    reason: str

    @property
    def parts(self) -> tuple[Component, ...]:
        """The components of the chosen kind; if there is none, those of the kind to repair."""
        return self.kinds[self.chosen or knobs.TOOLCHAIN.get() or (ROCM if knobs.ROCM_PATH.get() else GPU_LESS)]


def discover() -> Discovery:
    """Find all components. Missing ones are values; only an unusable knob raises an error."""
    root = knobs.ROCM_PATH.get() or find_rocm_root()
    kinds = {ROCM: find_rocm_parts(root), PYPI: find_pypi_parts(LIBRARIES), GPU_LESS: find_gpu_less_parts()}
    chosen, reason = _choose_kind(root, kinds)
    return Discovery(root, kinds, chosen, reason)


def find_rocm_root() -> Path:
    """Find a ROCm installation: AMD's packages, else ROCm's wheels in this environment."""
    if DEFAULT_ROCM.is_dir():
        return DEFAULT_ROCM
    # `rocm-sdk init` unpacks the first; the second is what the package depends on.
    for package in ("_rocm_sdk_devel", "_rocm_sdk_core"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            return Path(folder)
    return DEFAULT_ROCM


def _choose_kind(root: Path, kinds: Mapping[str, Sequence[Component]]) -> tuple[str | None, str]:
    lacks = {kind: _list_missing(parts) for kind, parts in kinds.items()}
    wanted = knobs.TOOLCHAIN.get()
    if wanted is not None:
        said = f"{knobs.TOOLCHAIN.name}={wanted} is set"
        return (None, f"{said}, and that toolchain lacks {lacks[wanted]}") if lacks[wanted] else (wanted, said)
    if knobs.ROCM_PATH.get() is not None:
        said = f"ROCM_PATH={root} is set"
        return (
            (None, f"{said}, so only it counts, and it lacks {lacks[ROCM]}")
            if lacks[ROCM]
            else (ROCM, f"{said} and complete")
        )
    names = {ROCM: str(root), PYPI: "the toolchain from PyPI", GPU_LESS: "the GPU-less toolchain"}
    reasons = [f"{root} does not exist"] if not root.is_dir() else []
    for kind, name in names.items():
        if not lacks[kind]:
            return kind, "; ".join([*reasons, f"{name} is complete"])
        # A kind of which nothing is installed is not worth a word.
        if kinds[kind][0].ok or kind == GPU_LESS:
            reasons.append(f"{name} lacks {lacks[kind]}")
    return None, "; ".join(reasons)


def _suggest_unset(knob: knobs.Knob[Path | None]) -> str:
    """Return the advice to unset a knob; empty if the knob is not set."""
    return f"unset {knob.name}" if knob.get() is not None else ""


def _list_missing(parts: Sequence[Component]) -> str:
    return ", ".join(part.name for part in parts if part.blocks)


def find_rocm_parts(root: Path) -> tuple[Component, ...]:
    """Find the components of the ROCm installation at `root`; the compiler knob overrides its compiler."""
    if not root.is_dir():
        problem = f"{root} does not exist"
        fix = _suggest_unset(knobs.ROCM_PATH) or "apt-get install rocm-hip-sdk"  # from AMD's own package repository
        return (Component("rocm", "a ROCm installation", None, "", problem, fix),)
    llvm = (root / "llvm" / "bin", root / "lib" / "llvm" / "bin")
    clangs = [folder / name for folder in llvm for name in ("amdclang++", "clang++")]
    own = _find_first_file(root / "bin" / "amdclang++", *clangs, root / "bin" / "hipcc")
    path, asked = _apply_override(own)
    missing = asked or f"{root} has neither bin/amdclang++ nor llvm/bin/clang++ nor bin/hipcc"
    found = check_compiler(
        "compiler", "HIP compiler", path, missing=missing, fix=_suggest_unset(knobs.CXX) or _ROCM_LLVM
    )
    bitcode = (
        root / "amdgcn/bitcode",
        root / "lib/llvm/amdgcn/bitcode",
        *root.glob("lib/llvm/lib/clang/*/lib/amdgcn/bitcode"),
    )
    return (
        replace(_read_version(root), fix="apt-get install rocm-hip-sdk"),
        found,
        *(_find_rocm_tool(root, llvm, tool) for tool in _TOOLS),
        check_hip_headers(root / "include", "apt-get install hip-dev"),
        check_device_libraries(bitcode, ("ockl", "ocml"), "apt-get install rocm-device-libs"),
        _find_rocm_ck(root),
    )


def _find_rocm_ck(root: Path) -> Component:
    """Find CK in a ROCm installation. Optional: fetched headers or a checkout also work."""
    name, what = "rocm-ck", "CK Tile headers of this ROCm"
    fix = "apt-get install composablekernel-dev"
    if not (root / "include" / "ck_tile").is_dir():
        return Component(name, what, None, "", f"{root}/include has no ck_tile", fix, optional=True)
    return Component(name, what, root / "include", "", "", fix, optional=True)


def _read_version(root: Path) -> Component:
    stated = root / ".info" / "version"
    version = stated.read_text(encoding="utf-8", errors="replace").strip() if stated.is_file() else ""
    return Component("rocm", "a ROCm installation", root, version, "", "")


def _find_rocm_tool(root: Path, folders: Sequence[Path], tool: Tool) -> Component:
    path = _find_first_file(*(folder / tool.program for folder in folders))
    missing = f"{root}/llvm/bin has no {tool.program}"
    return check_program(tool.name, tool.what, path, missing=missing, fix=_ROCM_LLVM, optional=tool.optional)


def find_gpu_less_parts() -> tuple[Component, ...]:
    """Find the components of the GPU-less toolchain: upstream clang and the distribution's HIP packages."""
    clang, major = _find_clang()
    bitcode = (
        *sorted((DISTRIBUTION / "lib").glob("*-linux-gnu/amdgcn/bitcode")),
        DISTRIBUTION / "lib" / "amdgcn" / "bitcode",
        DISTRIBUTION / "amdgcn" / "bitcode",
    )
    return (
        clang,
        _find_linker(clang, major),
        *(_find_llvm_tool(clang, major, tool) for tool in _TOOLS),
        check_hip_headers(DISTRIBUTION / "include", "apt-get install --no-install-recommends libamdhip64-dev"),
        check_device_libraries(bitcode, LIBRARIES, "apt-get install rocm-device-libs"),
    )


def _find_clang() -> tuple[Component, int]:
    """Find the clang++ that the knob names, or the newest on PATH, and its major version."""
    name, what = "compiler", "clang++ with the AMDGPU target"
    path, asked = _apply_override(_find_newest_clang())
    missing = asked or f"no clang++-{MIN_CLANG} or newer on PATH"
    fix = _suggest_unset(knobs.CXX) or f"apt-get install clang-{MIN_CLANG}"
    found = check_compiler(name, what, path, missing=missing, fix=fix)
    if not found.version:
        return found, MIN_CLANG
    major = _parse_clang_major(found.version)
    if major is None:
        problem = f"{path} is not clang: its version is {found.version!r}"
    elif major < MIN_CLANG:
        problem = f"{path} is clang {major}, and {MIN_CLANG} or newer is needed"
    else:
        return found, major
    return replace(found, path=None, problem=problem, driver=None), MIN_CLANG


def _find_newest_clang() -> Path | None:
    """Find the clang++-NN with the largest NN on PATH, else a plain clang++."""
    numbered: dict[int, Path] = {}
    for folder in knobs.search_path().split(os.pathsep):
        for path in Path(folder).glob("clang++-*") if folder else ():
            number = path.name.removeprefix("clang++-")
            if number.isdecimal() and os.access(path, os.X_OK):
                numbered.setdefault(int(number), path)
    if numbered:
        return numbered[max(numbered)]
    return _find_on_path("clang++")


def _parse_clang_major(version: str) -> int | None:
    match = re.search(r"\bclang version (\d+)\.", version)
    return int(match[1]) if match else None


def _find_linker(clang: Component, major: int) -> Component:
    """Find the lld that the compiler uses."""
    fix = ("" if clang.ok else _suggest_unset(knobs.CXX)) or f"apt-get install lld-{major}"
    path = clang.driver.linker if clang.driver is not None else None
    # lld itself only selects one of its linkers: clang runs it as ld.lld.
    ask = ("-flavor", "gnu", "--version")
    missing = f"no lld for clang {major}"
    return check_program("linker", "linker of device code", path, missing=missing, fix=fix, ask=ask)


def _find_llvm_tool(clang: Component, major: int, tool: Tool) -> Component:
    """Find a tool of the compiler's LLVM: on PATH with its version number, else next to the compiler."""
    path = _find_on_path(f"{tool.program}-{major}")
    if path is None and clang.driver is not None:
        path = _find_first_file(clang.driver.compiler.parent / tool.program)
    return check_program(
        tool.name,
        tool.what,
        path,
        missing=f"no {tool.program}-{major} on PATH",
        fix=f"apt-get install {tool.package}-{major}",
        optional=tool.optional,
    )


def _apply_override(own: Path | None) -> tuple[Path | None, str]:
    """Return the compiler that the knob names, else `own`, and the problem to report if it does not exist."""
    wanted = knobs.CXX.get()
    if wanted is None:
        return own, ""
    return _find_on_path(str(wanted)), f"{knobs.CXX.name}={wanted} is not a program"


def _find_on_path(name: str) -> Path | None:
    found = shutil.which(name, path=knobs.search_path())
    return Path(found).absolute() if found else None


def _find_first_file(*candidates: Path) -> Path | None:
    return next((path for path in candidates if path.is_file()), None)


@dataclass(frozen=True, slots=True)
class Tool:
    """An LLVM tool that both kinds of toolchain need."""

    name: str
    program: str
    what: str
    package: str  # on apt.llvm.org and Debian, without its version number
    optional: bool = False


_TOOLS = (
    Tool("objdump", "llvm-objdump", "disassembler", "llvm"),
    Tool("readelf", "llvm-readelf", "reader of code objects", "llvm"),
    # Only needed to embed code objects in a shared library.
    Tool("bundler", "clang-offload-bundler", "bundler of code objects", "clang-tools", True),
)
