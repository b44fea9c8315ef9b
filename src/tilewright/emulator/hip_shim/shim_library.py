"""The HIP shim's library: its sources, compiled once and kept in the store.

It has the soname and the symbol versions of the toolchain's HIP library, if there is one: once it is loaded, the
dynamic linker uses it for other libraries that need `libamdhip64.so.N` and versions such as `hip_4.2`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tilewright.base.digest import digest_value
from tilewright.base.errors import CompileError, ToolchainError
from tilewright.base.knobs import ROCM
from tilewright.building.discover import discover
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.prebuilt.installed import list_wheels
from tilewright.building.process import read_tool_output, run_command
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store, build_own_library
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import Toolchain

_HERE = Path(__file__).parent
_SOURCES = (
    "kernels.cpp", "kernel_facts.cpp", "modules.cpp", "symbols.cpp", "memory.cpp", "host_memory.cpp", "volumes.cpp",
    "pools.cpp", "virtual_memory.cpp", "streams.cpp", "capture.cpp", "graph_nodes.cpp", "devices.cpp",
    "device_settings.cpp", "host_calls.cpp", "run_time_compiler.cpp", "embed.cpp",
)  # fmt: skip
_HEADERS = ("interface.hpp", "state.hpp", "kernels.hpp", "memory.hpp", "graphs.hpp", "device_heap.hpp")
_NAME = "libamdhip64.so"
_VERSIONS = "versions.map"
_WHOLE = "stand_in.cpp"  # includes all sources, so that HIP's headers are parsed once
_MISSING = "missing.cpp"  # generated: all other functions of HIP
_API_HEADER = Path("include/hip/hip_runtime_api.h")
_LIMIT_S = 300.0  # 2 s on an idle machine
_FLAGS = (
    NO_CONFIG_FILES,
    "-x",
    "c++",
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-pthread",
    "-fuse-ld=lld",
    "-Wl,--build-id=none",
    "-Wl,-z,defs",
    "-Wl,--undefined-version",  # the script lists all functions of HIP
    f"-Wl,--version-script={_VERSIONS}",
)

# Functions that return a text instead of a status.
_TEXT_FUNCTIONS = ("hipApiName", "hipKernelNameRef", "hipKernelNameRefByPtr", "hiprtcGetErrorString")
_SONAME = re.compile(r"\(SONAME\)\s+Library soname: \[(?P<name>[A-Za-z0-9_.+-]+)\]")
# A function in the C++ sources, and in HIP's header.
_DEFINED = re.compile(r"^TW_EXPORT\s[\w\s*]*?\b(?P<name>\w+)\(", re.MULTILINE)
_DECLARED = re.compile(r"^\s*hipError_t\s+(?P<name>hip\w+)\s*\(", re.MULTILINE)
# "   595: 00000000000f49c0  2763 FUNC    GLOBAL DEFAULT   13 hipMalloc@@hip_4.2", of `llvm-readelf --dyn-syms`.
_VERSIONED = re.compile(r"\bFUNC\s.*\s(?P<symbol>\w+)@@?(?P<version>[\w.]+)(?:\s|$)")


def build_shim(toolchain: Toolchain, store: Store | None = None) -> Path:
    """Return the path of the shim, which is built if the store does not have it. Its bytes are checked."""
    store = store or Store()
    real = find_hip_library(toolchain)
    soname = read_soname(real, toolchain) if real else f"{_NAME}.{toolchain.hip_version.partition('.')[0]}"
    texts = {name: (_HERE / name).read_text("utf-8") for name in (*_SOURCES, *_HEADERS)}
    versions = read_versions(real, toolchain) if real else {}
    declared = _DECLARED.findall((toolchain.rocm_path / _API_HEADER).read_text("utf-8", errors="replace"))
    defined = {match["name"] for name in _SOURCES for match in _DEFINED.finditer(texts[name])}
    texts[_WHOLE] = "".join(f'#include "{name}"\n' for name in _SOURCES)
    texts[_MISSING] = format_missing_functions({*versions, *declared} - defined)
    texts[_VERSIONS] = format_version_script(versions, defined)
    key = digest_value({"stand-in": texts, "soname": soname, "toolchain": toolchain.identity(), "flags": _FLAGS})
    return build_own_library(store, key, soname, lambda folder: _compile(toolchain, soname, texts, folder))


def compute_shim_source() -> str:
    """Compute the source key of the shim: a digest of its own sources and flags, the same for every toolchain."""
    texts = {name: (_HERE / name).read_text("utf-8") for name in (*_SOURCES, *_HEADERS)}
    return digest_value({"stand-in": texts, "flags": _FLAGS})


def find_prebuilt_shim() -> Path | None:
    """Return the path of a shim from an installed wheel, for a machine without a toolchain; None if there is none."""
    source = compute_shim_source()
    tiers = Tiers(Store())
    for wheel in list_wheels():
        entry = wheel.by_source.get(source)
        found = None if entry is None else tiers.local.get(entry.key) or tiers.take_packaged(wheel, entry.key)
        if isinstance(found, Artifact) and len(found.files) == 1:
            return found.verify_file(next(iter(found.files)))
    return None


def find_code_readers() -> tuple[Path | None, Path | None]:
    """Return LLVM's disassembler and its reader of code objects, on a machine without a toolchain; None if absent."""
    found = {part.name: part.path for part in discover().parts if part.ok}
    return found.get("objdump"), found.get("readelf")


def find_hip_library(toolchain: Toolchain) -> Path | None:
    """Return the file that `-lamdhip64` links. A toolchain may have none: kernel libraries are linked without it."""
    if toolchain.kind == ROCM:
        path = toolchain.rocm_path / "lib" / _NAME
    else:
        # clang prints the bare name if it finds no file.
        path = Path(read_tool_output([str(toolchain.cxx), f"-print-file-name={_NAME}"]).strip())
    return path if path.is_absolute() and path.exists() else None


def read_soname(library: Path, toolchain: Toolchain) -> str:
    """Return the soname of a library."""
    found = _SONAME.search(read_tool_output([str(toolchain.readelf), "--dynamic", str(library)]))
    if found is None:
        raise ToolchainError(f"{library} has no soname: it is not a shared library")
    return found["name"]


def read_versions(library: Path, toolchain: Toolchain) -> Mapping[str, str]:
    """Return the symbol versions of the functions that a library defines; empty if it has none."""
    listed = read_tool_output([str(toolchain.readelf), "--dyn-syms", "--wide", str(library)])
    found = (_VERSIONED.search(line) for line in listed.splitlines() if " UND " not in line)
    return {match["symbol"]: match["version"] for match in found if match is not None}


def format_version_script(versions: Mapping[str, str], defined: Collection[str] = ()) -> str:
    """Return a linker script that assigns symbol versions. Functions that the shim does not define are ignored.

    Those in `defined` are exported, also if they have no version: of a newer HIP than the toolchain's.
    """
    nodes: dict[str, list[str]] = {}
    for symbol, version in sorted(versions.items()):
        if "hip" in symbol:
            nodes.setdefault(version, []).append(symbol)
    newer = "".join(f" {name};" for name in sorted(set(defined) - set(versions)) if "hip" in name)
    own = f"tilewright_1 {{\n  global: tilewright_*;{newer}\n"
    if not nodes:
        return f"{own}  hip*; __hip*;\n  local: *;\n}};\n"
    texts = [f"{version} {{\n  global: {'; '.join(symbols)};\n}};\n" for version, symbols in sorted(nodes.items())]
    return "".join([*texts, f"{own}  local: *;\n}};\n"])


def format_missing_functions(names: Collection[str]) -> str:
    """Return C++ functions that report their own name and fail, for HIP functions that the shim does not implement.

    They are weak: HIP's headers may give a function of the shim another name. Their parameters are not read.
    """
    lines = [
        f'TW_MISSING const char* {name}() {{ tilewright_missing("{name}"); return ""; }}'
        if name in _TEXT_FUNCTIONS
        else f'TW_MISSING int {name}() {{ return tilewright_missing("{name}"); }}'
        for name in sorted(names)
        if "hip" in name
    ]
    head = 'extern "C" int tilewright_missing(const char*);\n#define TW_MISSING extern "C" __attribute__((weak, '
    return head + 'visibility("default")))\n' + "\n".join(lines) + "\n"


def _compile(toolchain: Toolchain, soname: str, texts: Mapping[str, str], folder: Path) -> Mapping[str, Any]:
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    include = f"-I{toolchain.rocm_path}/include"
    command = (str(toolchain.cxx), *_FLAGS, f"-Wl,-soname,{soname}", include, _WHOLE, _MISSING, "-o", soname, "-ldl")
    done = run_command(command, folder=folder, timeout_s=_LIMIT_S)
    if done.code != 0:
        first = next((line for line in done.output.splitlines() if "error" in line), f"code {done.code}")
        raise CompileError(f"the HIP shim for {soname} does not compile: {first}", done.output)
    return {"slug": f"stand-in for {soname}", "cost": {"cpu_s": round(done.cpu_s, 2)}}
