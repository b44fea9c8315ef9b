"""The HIP library of this process, either the real one or the HIP shim, never both; and kernel libraries on top of it.

If it is the real one, the shim runs in a separate process.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.errors import DeviceError
from tilewright.base.events import Notice, emit
from tilewright.base.fork_lock import make_fork_lock
from tilewright.base.knobs import DEFAULT_ROCM
from tilewright.building.process import read_tool_output
from tilewright.runtime.hip import FORKED, FORKED_EMULATOR, NO_DEVICE, Hip

# The modules that the emulated device needs, and the packages they come in.
EXTRAS = {"numpy": "numpy", "ml_dtypes": "ml-dtypes", "elftools": "pyelftools"}
INSTALL = "pip install 'tilewright[emulator]'"
_STEM = "libamdhip64.so"
# A function that every HIP library has, and no other library.
_MARK = "__hipRegisterFatBinary"
# Names for the dynamic linker. The one without a version exists only with development packages.
_NAMES = (_STEM, f"{_STEM}.7", f"{_STEM}.6", f"{_STEM}.5")
# Device files of the kernel driver (amdgpu on Linux, and on WSL); without one of them no library finds a GPU.
_DRIVERS = (Path("/dev/kfd"), Path("/dev/dxg"))
_COUNTING = Path(__file__).with_name("count_gpus.py")
# glibc's messages for a missing symbol or symbol version.
_UNDEFINED = re.compile(r"undefined symbol: (?P<symbol>\w+)")
_VERSION = re.compile(r"version [`'](?P<version>\S+?)' not found")
_libraries: dict[Path, ctypes.CDLL] = {}


class _Process:
    """The loaded libraries; changed only under the lock."""

    def __init__(self) -> None:
        self.lock = make_fork_lock()
        self.real: Hip | None = None
        self.shim: Hip | None = None
        self.gpu_library: Path | None = None  # replaces the search for a library


_process = _Process()


def load_shim() -> Hip:
    """The HIP shim of the emulated devices: in this process, or in another if this one has a HIP library."""
    found = _process.shim
    if found is None or found.gone:
        with _process.lock:
            found = _process.shim
            if found is None or found.gone:
                found = _process.shim = _open_shim()
    if found.forked:
        raise DeviceError(FORKED_EMULATOR)
    return found


def load_shim_here() -> Hip:
    """The HIP shim in this process; an error if another HIP library is loaded."""
    with _process.lock:
        if _process.shim is None:
            _process.shim = _load_new_shim()
        if _process.shim.own_process:
            raise _make_shim_error(find_mapped_libraries())
        return _process.shim


def load_hip() -> Hip:
    """The HIP library of this machine's GPUs."""
    if _process.real is None:
        with _process.lock:
            if _process.real is None:
                _process.real = _open_hip()
    if _process.real.forked:
        raise DeviceError(FORKED)
    return _process.real


def count_gpus() -> int:
    """The number of GPUs. Counted in another process if this one has not used a GPU, so that HIP is not loaded here."""
    if _process.real is not None:
        return load_hip().count()
    if _process.gpu_library is None and not any(path.exists() for path in _DRIVERS):
        return 0
    known = _process.gpu_library or _find_in_rocm()
    names = [str(known)] if known is not None else list(_NAMES)
    said = read_tool_output([sys.executable, "-I", str(_COUNTING), *names]).split()
    if said == ["none"]:
        return 0
    status, count = (int(word) for word in said)
    if status not in (0, NO_DEVICE):
        raise DeviceError(f"counting the GPUs failed: hipGetDeviceCount of {names[0]} returned HIP error {status}")
    return count if status == 0 else 0


def load_kernel_library(hip: Hip, path: Path, *, emulated: bool) -> ctypes.CDLL:
    """The library at `path`, loaded once. Fails if it loads another HIP library into the process."""
    known = _libraries.get(path)
    if known is not None:
        return known
    check_after_loading(hip)  # other code may have loaded one
    try:
        library = ctypes.CDLL(str(path))  # ctypes binds all symbols at once (RTLD_NOW), so a missing one shows here
    except OSError as error:
        raise DeviceError(_explain_failure(path, hip, str(error), emulated)) from error
    # A library that was linked against another version of HIP also loads that version.
    check_after_loading(hip)
    return _libraries.setdefault(path, library)


def _explain_failure(path: Path, hip: Hip, said: str, emulated: bool) -> str:
    symbol, version = _UNDEFINED.search(said), _VERSION.search(said)
    if symbol is None and version is None:
        return f"{path} cannot be loaded: {said}"
    lacks = f"function {symbol['symbol']}" if symbol else f"version {version['version']}" if version else ""
    if emulated:
        return f"{path} needs the {lacks}, which the emulated device does not have ({said})"
    return f"{path} needs the {lacks}, which {hip.path} does not have: it was linked with another HIP ({said})"


def use_gpu_library(path: Path) -> None:
    """Use this library for GPUs instead of searching for one."""
    if _process.real is not None:
        raise DeviceError(f"{_process.real.path} is already loaded; a process has only one HIP library")
    _process.gpu_library = path


def find_mapped_libraries() -> list[Path]:
    """The HIP libraries that are mapped into this process, also one with another name, as wheels have them."""
    mapped: dict[str, list[range]] = {}
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        ends, slash, path = line.partition("/")
        if slash and ".so" in path:
            begin, end = (int(number, 16) for number in ends.split(maxsplit=1)[0].split("-"))
            mapped.setdefault(f"/{path}", []).append(range(begin, end))
    usual = [path for path in mapped if path.rpartition("/")[2].startswith("libamdhip64")]
    return [Path(path) for path in usual or _find_by_symbol(mapped)]


def _find_by_symbol(mapped: Mapping[str, Sequence[range]]) -> list[str]:
    """The mapped file that defines HIP's functions."""
    for path in mapped:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            function = ctypes.cast(library[_MARK], ctypes.c_void_p).value or 0
        except (OSError, AttributeError):  # not a library, or neither it nor a library that it needs has the function
            continue
        return [place for place, parts in mapped.items() if any(function in part for part in parts)]
    return []


def list_missing_extras() -> list[str]:
    """The packages of the emulated device that are not installed."""
    return [package for module, package in EXTRAS.items() if importlib.util.find_spec(module) is None]


def check_single(wanted: Path) -> None:
    """Raise an error if this process has another HIP library than `wanted`."""
    others = [path for path in find_mapped_libraries() if not _is_same_file(path, wanted)]
    if others:
        raise DeviceError(
            f"this process has {others[0]} loaded, and needs {wanted}. Kernels would register with one and be launched "
            "by the other, so a process can have only one HIP library. Load that of the GPU before you use an emulated "
            "device (import torch first): then emulated devices run in a separate process. Load kernel libraries "
            "through the device (device.library)."
        )


def check_after_loading(hip: Hip) -> None:
    """Raise an error if a library that was just loaded also loaded another HIP library.

    Looks up the known names in the dynamic linker: reading the process's memory map is slow with many libraries.
    """
    for name in _NAMES:
        try:
            found = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue  # not loaded
        if found._handle != hip.library._handle:
            check_single(hip.path)


def require_emulator_extra(what: str) -> None:
    """Raise an error if packages that `what` needs are missing."""
    if missing := list_missing_extras():
        raise DeviceError(f"{what} needs {', '.join(missing)}. Get it with: {INSTALL}")


def _open_shim() -> Hip:
    require_emulator_extra("the emulated device")
    others = find_mapped_libraries()
    if not others:
        return _load_new_shim()
    from tilewright.runtime.forwarded_hip import ForwardedHip  # noqa: PLC0415  (rarely needed)

    hip = ForwardedHip()
    emit(Notice(f"this process has {others[0]} loaded, so emulated devices run in a separate process (pid {hip.pid})"))
    return hip


def _load_new_shim() -> Hip:
    require_emulator_extra("the emulated device")
    if others := find_mapped_libraries():
        raise _make_shim_error(others)
    from tilewright.emulator.hip_shim.shim import open_shim  # noqa: PLC0415  (loads NumPy)

    found = open_shim()
    return Hip(found.library, found.path)


def _make_shim_error(others: list[Path]) -> DeviceError:
    return DeviceError(
        f"this process has a real HIP library loaded ({others[0]}), so the emulator cannot be loaded into it, and time "
        "cannot be simulated. If LD_PRELOAD names that library, unset it."
    )


def _open_hip() -> Hip:
    path = _process.gpu_library
    if path is None and _process.shim is not None and not _process.shim.own_process:
        raise DeviceError(
            "this process has used an emulated device, so it cannot use a GPU: kernel libraries would find the wrong "
            "HIP library. Use the GPU first: then emulated devices run in a separate process."
        )
    wanted = path or next(iter(find_mapped_libraries()), None) or _find_in_rocm()
    library = _load_library(wanted) if wanted is not None else _load_by_name()
    if library is None:
        raise DeviceError(
            f"no HIP library was found: {_STEM} is neither in {DEFAULT_ROCM}/lib nor known to the dynamic linker. "
            f"Install ROCm, or set {knobs.ROCM_PATH.name}. Without a GPU use Device('emulated:gfx942')."
        )
    place = wanted or next(iter(find_mapped_libraries()), Path(_STEM))
    check_single(place)
    hip = Hip(library, place)
    os.register_at_fork(after_in_child=hip.mark_forked)
    return hip


def _find_in_rocm() -> Path | None:
    """The library of the ROCm in the knob's folder, else in the default folder; None if the default folder has none."""
    asked = knobs.ROCM_PATH.get()
    path = (asked or DEFAULT_ROCM) / "lib" / _STEM
    if asked is not None and not path.exists():
        raise DeviceError(f"{knobs.ROCM_PATH.name}={asked} is set, but {path} does not exist. Unset or correct it.")
    return path if path.exists() else None


def _load_by_name() -> ctypes.CDLL | None:
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue  # the next name
    return None


def _load_library(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise DeviceError(f"the HIP library {path} cannot be loaded: {error}") from error


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # removed since it was loaded
        return one == other
