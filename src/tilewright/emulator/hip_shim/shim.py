"""The HIP shim, a replacement for libamdhip64: built, loaded and connected to Python. A process has at most one.

Kernel libraries find it by the name of its file. It also has the soname and the symbol versions of the toolchain's HIP
library, if there is one: once it is loaded, the dynamic linker uses it for other libraries that need `libamdhip64.so.N`
and versions such as `hip_4.2`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.base.digest import digest_value
from tilewright.base.errors import CompileError, DeviceError, ToolchainError
from tilewright.base.knobs import ROCM
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.process import read_tool_output, run_command
from tilewright.building.store.local import Store, build_own_library
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.hip_shim.callbacks import HipCallbacks
from tilewright.emulator.hip_shim.deferred_errors import keep_uncaught_errors
from tilewright.emulator.hip_shim.gpu import EmulatedGpu
from tilewright.emulator.hip_shim.host_calls import HostCalls
from tilewright.emulator.hip_shim.interface import DeviceFacts, describe_device, make_callbacks
from tilewright.emulator.memory import CAPACITY

_HERE = Path(__file__).parent
_SOURCES = (
    "kernels.cpp", "kernel_facts.cpp", "modules.cpp", "symbols.cpp", "memory.cpp", "host_memory.cpp", "streams.cpp",
    "capture.cpp", "devices.cpp", "device_settings.cpp", "host_calls.cpp", "embed.cpp",
)  # fmt: skip
_HEADERS = ("interface.hpp", "state.hpp", "kernels.hpp", "memory.hpp")
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
# "   595: 00000000000f49c0  2763 FUNC    GLOBAL DEFAULT   13 hipMalloc@@hip_4.2", of `llvm-readelf --dyn-syms`.
# A function in the C++ sources, and in HIP's header.
_DEFINED = re.compile(r"^TW_EXPORT\s[\w\s*]*?\b(?P<name>\w+)\(", re.MULTILINE)
_DECLARED = re.compile(r"^\s*hipError_t\s+(?P<name>hip\w+)\s*\(", re.MULTILINE)
_VERSIONED = re.compile(r"\bFUNC\s.*\s(?P<symbol>\w+)@@?(?P<version>[\w.]+)(?:\s|$)")


class HipShim:
    """The loaded library and the emulated GPUs behind it: `names`, the first one is device 0.

    `find_readelf` is that of `EmulatedGpu`; `at_end` is called when a program ends.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        find_readelf: Callable[[], Path | None],
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.gpus = tuple(EmulatedGpu(index, name, find_readelf) for index, name in enumerate(names))
        self.library = _load_library(self.path)
        host_calls = HostCalls(self.library)
        for gpu in self.gpus:
            gpu.host_calls = host_calls
        # C code calls these as long as the process lives, so they must not be collected.
        self._callbacks, entries = make_callbacks(HipCallbacks(self.gpus, at_end))
        keep_uncaught_errors(entries)
        facts = (DeviceFacts * len(self.gpus))(*(describe_device(gpu.arch, CAPACITY) for gpu in self.gpus))
        self.library.tilewright_open(facts, len(self.gpus), ctypes.byref(self._callbacks))
        atexit.register(self.library.tilewright_close)
        os.register_at_fork(
            before=self._lock_gpus, after_in_parent=self._release_gpus, after_in_child=self._reset_locks
        )

    def set_dry_run(self, device: int, on: bool) -> None:
        """Set whether this thread's launches on a device do nothing."""
        self.library.tilewright_dry(device, int(on))

    def set_launch_times(self, device: int, launches_us: Sequence[float], other_us: float) -> None:
        """Set simulated times for this thread's next launches on a device, and one for each fill and copy."""
        times = (ctypes.c_double * len(launches_us))(*launches_us)
        self.library.tilewright_script(device, times, ctypes.c_size_t(len(times)), ctypes.c_double(other_us))

    def count_remaining_times(self, device: int) -> int:
        """Return the number of simulated launch times that are not used yet."""
        self.library.tilewright_script_left.restype = ctypes.c_size_t
        return int(self.library.tilewright_script_left(device))

    def clear_launch_times(self, device: int) -> None:
        """Stop simulating times on a device."""
        self.library.tilewright_unscript(device)

    def count_captured(self) -> int:
        """Return the number of launches, fills and copies that the last stream capture recorded."""
        self.library.tilewright_captured.restype = ctypes.c_size_t
        return int(self.library.tilewright_captured())

    def list_refused(self) -> list[str]:
        """Return the calls of the last stream capture that a graph cannot contain."""
        self.library.tilewright_refused.restype = ctypes.c_char_p
        found: bytes = self.library.tilewright_refused()
        return found.decode().split()

    def _lock_gpus(self) -> None:
        """Lock all GPUs before a fork: the child gets complete launches, never a part of one."""
        for gpu in self.gpus:
            gpu.lock.acquire()

    def _release_gpus(self) -> None:
        for gpu in self.gpus:
            gpu.lock.release()

    def _reset_locks(self) -> None:
        """Replace the locks in the child, which has its own copy of the memory and no thread that could hold a lock."""
        for gpu in self.gpus:
            gpu.lock = threading.RLock()


_lock = threading.Lock()
_opened: HipShim | None = None


def open_shim() -> HipShim:
    """Return the HIP shim of this process, opened at first use. No other HIP library may be loaded before."""
    global _opened  # noqa: PLW0603 - one per process, as a library is
    if _opened is None:
        with _lock:
            if _opened is None:
                toolchain = find_toolchain(with_ck=False)
                _opened = HipShim(build_shim(toolchain), EMULATED, lambda: toolchain.readelf)
    return _opened


def open_program_shim(
    path: Path, gpu: str, find_readelf: Callable[[], Path | None], at_end: Callable[[], None]
) -> HipShim:
    """Open the HIP shim of a program that `tilewright emulate` started. It has one device, `gpu`."""
    global _opened  # noqa: PLW0603 - one per process, as a library is
    with _lock:
        _opened = HipShim(path, (gpu,), find_readelf, at_end)
        _opened.library.tilewright_program()
    return _opened


@contextmanager
def use_dry_run(device: int, on: bool, before: bool) -> Iterator[None]:
    """Inside the `with` block, launches of this thread on a device do nothing (or run, if `on` is false)."""
    open_shim().set_dry_run(device, on)
    try:
        yield
    finally:
        open_shim().set_dry_run(device, before)


def _load_library(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise DeviceError(f"the HIP shim {path} cannot be loaded: {error}") from error


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


os.register_at_fork(after_in_child=lambda: globals().__setitem__("_lock", threading.Lock()))
