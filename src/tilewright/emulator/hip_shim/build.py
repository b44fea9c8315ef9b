"""Build the HIP shim: a replacement for libamdhip64 with the soname and symbol versions of the toolchain's library.

Kernel libraries need `libamdhip64.so.N` and versions such as `hip_4.2`. Once a library with that soname is loaded, the
dynamic linker uses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.base.digest import digest_value
from tilewright.base.errors import CompileError, ToolchainError
from tilewright.building.discover import ROCM
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.flags import HIP_LIBRARY
from tilewright.building.process import read_tool_output, run_command
from tilewright.building.store.local import Store, build_own_library
from tilewright.building.toolchain import Toolchain

_HERE = Path(__file__).parent
_SOURCES = ("kernels.cpp", "memory.cpp", "streams.cpp", "devices.cpp")
_HEADERS = ("interface.hpp", "state.hpp")
_VERSIONS = "versions.map"
_WHOLE = "stand_in.cpp"  # includes all sources, so that HIP's headers are parsed once
_LIMIT_S = 300.0  # 2 s on an idle machine

_SONAME = re.compile(r"\(SONAME\)\s+Library soname: \[(?P<name>[A-Za-z0-9_.+-]+)\]")
# "   595: 00000000000f49c0  2763 FUNC    GLOBAL DEFAULT   13 hipMalloc@@hip_4.2", of `llvm-readelf --dyn-syms`.
_VERSIONED = re.compile(r"\bFUNC\s.*\s(?P<symbol>\w+)@@?(?P<version>[\w.]+)(?:\s|$)")


def build_shim(toolchain: Toolchain, store: Store | None = None) -> Path:
    """Return the path of the shim, which is built if the store does not have it. Its bytes are checked."""
    store = store or Store()
    real = find_hip_library(toolchain)
    soname = read_soname(real, toolchain)
    texts = {name: (_HERE / name).read_text("utf-8") for name in (*_SOURCES, *_HEADERS)}
    texts[_WHOLE] = "".join(f'#include "{name}"\n' for name in _SOURCES)
    texts[_VERSIONS] = format_version_script(read_versions(real, toolchain))
    key = digest_value({"stand-in": texts, "soname": soname, "toolchain": toolchain.identity(), "flags": _FLAGS})
    return build_own_library(store, key, soname, lambda folder: _compile(toolchain, soname, texts, folder))


def find_hip_library(toolchain: Toolchain) -> Path:
    """Return the file that `-lamdhip64` links."""
    name = f"lib{HIP_LIBRARY.removeprefix('-l')}.so"
    if toolchain.kind == ROCM:
        path = toolchain.rocm_path / "lib" / name
    else:
        # clang prints the bare name if it finds no file.
        path = Path(read_tool_output([str(toolchain.cxx), f"-print-file-name={name}"]).strip())
    if not path.is_absolute() or not path.exists():
        raise ToolchainError(
            f"{name} is missing, but kernel libraries are linked with it. "
            "Install it with: apt-get install libamdhip64-dev"
        )
    return path


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


def format_version_script(versions: Mapping[str, str]) -> str:
    """Return a linker script that assigns symbol versions. Functions that the shim does not define are ignored."""
    nodes: dict[str, list[str]] = {}
    for symbol, version in sorted(versions.items()):
        if "hip" in symbol:
            nodes.setdefault(version, []).append(symbol)
    own = "tilewright_1 {\n  global: tilewright_*;\n"
    if not nodes:
        return f"{own}  hip*; __hip*;\n  local: *;\n}};\n"
    texts = [f"{version} {{\n  global: {'; '.join(symbols)};\n}};\n" for version, symbols in sorted(nodes.items())]
    return "".join([*texts, f"{own}  local: *;\n}};\n"])


_FLAGS = (
    NO_CONFIG_FILES,
    "-x",
    "c++",
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-fuse-ld=lld",
    "-Wl,--build-id=none",
    "-Wl,-z,defs",
    "-Wl,--undefined-version",  # the script lists all functions of HIP
    f"-Wl,--version-script={_VERSIONS}",
)


def _compile(toolchain: Toolchain, soname: str, texts: Mapping[str, str], folder: Path) -> Mapping[str, Any]:
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    include = f"-I{toolchain.rocm_path}/include"
    command = (str(toolchain.cxx), *_FLAGS, f"-Wl,-soname,{soname}", include, _WHOLE, "-o", soname)
    done = run_command(command, folder=folder, timeout_s=_LIMIT_S)
    if done.code != 0:
        first = next((line for line in done.output.splitlines() if "error" in line), f"code {done.code}")
        raise CompileError(f"the HIP shim for {soname} does not compile: {first}", done.output)
    return {"slug": f"stand-in for {soname}", "cost": {"cpu_s": round(done.cpu_s, 2)}}
