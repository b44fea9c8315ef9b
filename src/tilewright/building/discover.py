"""Find the two kinds of toolchain, ROCm and GPU-less, check that their components work, and choose between them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.digest import read_cached_text
from tilewright.base.errors import ToolchainError
from tilewright.base.knobs import DEFAULT_ROCM
from tilewright.building.driver import Driver, find_version_line, inspect_driver
from tilewright.building.process import read_tool_output

ROCM = "rocm"
GPU_LESS = "gpu-less"
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
_HIP_DEFINE = re.compile(r"^#define HIP_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Discovery:
    """The components of both kinds, without the CK headers, and the chosen kind."""

    rocm_root: Path
    rocm: tuple[Component, ...]
    gpu_less: tuple[Component, ...]
    chosen: str | None
    reason: str

    @property
    def parts(self) -> tuple[Component, ...]:
        """The components of the chosen kind; if there is none, those of the kind to repair."""
        if self.chosen == ROCM or (self.chosen is None and knobs.ROCM_PATH.get() is not None):
            return self.rocm
        return self.gpu_less


def discover() -> Discovery:
    """Find all components. Missing ones are values; only an unusable knob raises an error."""
    wanted = knobs.ROCM_PATH.get()
    root = wanted if wanted is not None else DEFAULT_ROCM
    rocm = find_rocm_parts(root)
    gpu_less = find_gpu_less_parts()
    chosen, reason = _choose_kind(root, wanted is not None, rocm, gpu_less)
    return Discovery(root, rocm, gpu_less, chosen, reason)


def _choose_kind(
    root: Path, insisted: bool, rocm: Sequence[Component], gpu_less: Sequence[Component]
) -> tuple[str | None, str]:
    rocm_lacks = _list_missing(rocm)
    if insisted:
        if not rocm_lacks:
            return ROCM, f"ROCM_PATH={root} is set and complete"
        return None, f"ROCM_PATH={root} is set, so only it counts, and it lacks {rocm_lacks}"
    if not rocm_lacks:
        return ROCM, f"{root} is complete"
    why = f"{root} lacks {rocm_lacks}" if root.is_dir() else f"{root} does not exist"
    gpu_less_lacks = _list_missing(gpu_less)
    if not gpu_less_lacks:
        return GPU_LESS, f"{why}; the GPU-less toolchain is complete"
    return None, f"{why}; the GPU-less toolchain lacks {gpu_less_lacks}"


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
    bitcode = (root / "amdgcn" / "bitcode", *root.glob("lib/llvm/lib/clang/*/lib/amdgcn/bitcode"))
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


@dataclass(frozen=True, slots=True)
class Component:
    """A toolchain component. `problem` is empty if it is usable; `fix` is the command that installs it."""

    name: str
    what: str
    path: Path | None
    version: str
    problem: str
    fix: str
    optional: bool = False  # compiling and inspecting device code works without it
    driver: Driver | None = None  # for a compiler: the programs it runs

    @property
    def ok(self) -> bool:
        """Whether this component can be used."""
        return not self.problem

    @property
    def blocks(self) -> bool:
        """Whether nothing can be compiled until this component is fixed."""
        return bool(self.problem) and not self.optional

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.path} ({self.version or 'version unknown'})"
        return f"{self.name} ({self.what}): {self.problem}. Get it with: {self.fix}"


def check_program(
    name: str,
    what: str,
    path: Path | None,
    *,
    missing: str,
    fix: str,
    optional: bool = False,
    ask: tuple[str, ...] = ("--version",),
) -> Component:
    """Check a program at `path` and read its version; `missing` is the problem to report if `path` is None."""
    if path is None:
        return Component(name, what, None, "", missing, fix, optional)
    command = [str(path), *ask]
    try:
        # A script may print the version of another program, which can change without the script.
        version = (
            find_version_line(read_tool_output(command))
            if is_script(path)
            else read_cached_text(
                " ".join(command), [path.resolve()], lambda: find_version_line(read_tool_output(command))
            )
        )
    except (ToolchainError, OSError) as error:
        return Component(name, what, path, "", str(error), fix, optional)
    return Component(name, what, path, version, "", fix, optional)


def check_compiler(name: str, what: str, path: Path | None, *, missing: str, fix: str) -> Component:
    """Check a compiler at `path`. Its version and programs are never cached: a script may run another compiler."""
    if path is None:
        return Component(name, what, None, "", missing, fix)
    try:
        driver = inspect_driver(path)
    except ToolchainError as error:
        # Its version output, if any, is more useful than the reason why the driver could not be inspected.
        return replace(check_program(name, what, path, missing=missing, fix=fix), problem=str(error))
    return Component(name, what, path, driver.version, "", fix, driver=driver)


def is_script(path: Path) -> bool:
    """Return whether a program is a script."""
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


def check_hip_headers(include: Path, fix: str) -> Component:
    """Check the HIP headers below `include` and read their version."""
    name, what = "hip-headers", "HIP headers"
    header = include / "hip" / "hip_version.h"
    if not header.is_file():
        return Component(name, what, None, "", f"{header} does not exist", fix)
    if not (include / "hip" / "hip_runtime.h").is_file():
        problem = f"{include / 'hip'} has no hip_runtime.h"
        return Component(name, what, None, "", problem, fix)
    parts = dict(_HIP_DEFINE.findall(header.read_text(encoding="utf-8", errors="replace")))
    if len(parts) != 3:
        return Component(name, what, None, "", f"{header} does not define a HIP version", fix)
    version = f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
    return Component(name, what, include / "hip", version, "", fix)


def check_device_libraries(folders: tuple[Path, ...], needed: tuple[str, ...], fix: str) -> Component:
    """Check the first existing folder for the bitcode libraries `needed` (names without .bc)."""
    name, what = "device-libraries", "bitcode libraries of device functions"
    present = next((folder for folder in folders if folder.is_dir()), None)
    if present is None:
        listing = ", ".join(str(folder) for folder in folders)
        return Component(name, what, None, "", f"none of these folders exists: {listing}", fix)
    absent = [stem for stem in needed if not (present / f"{stem}.bc").is_file()]
    if absent:
        problem = f"{present} lacks {', '.join(f'{stem}.bc' for stem in absent)}"
        return Component(name, what, None, "", problem, fix)
    count = sum(1 for _ in present.glob("*.bc"))
    return Component(name, what, present, f"{count} libraries", "", fix)
