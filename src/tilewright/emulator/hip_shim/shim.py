"""The HIP shim, a replacement for libamdhip64: loaded and connected to Python. A process has at most one.

Kernel libraries find it by the name of its file.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, ToolchainError
from tilewright.base.fork_lock import make_fork_lock
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.hip_shim.callbacks import HipCallbacks
from tilewright.emulator.hip_shim.deferred_errors import keep_uncaught_errors
from tilewright.emulator.hip_shim.gpu import EmulatedGpu
from tilewright.emulator.hip_shim.host_calls import HostCalls
from tilewright.emulator.hip_shim.interface import DeviceFacts, describe_device, make_callbacks
from tilewright.emulator.memory import CAPACITY


class HipShim:
    """The loaded library and the emulated GPUs behind it; the first of `archs` is device 0.

    `find_readelf` is that of `EmulatedGpu`, `find_compiler` that of `HipCallbacks`; `at_end` is called when a program
    ends.
    """

    def __init__(
        self,
        path: Path,
        archs: Sequence[Arch],
        find_readelf: Callable[[], Path | None],
        find_compiler: Callable[[Arch], Sequence[str]],
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.gpus = tuple(EmulatedGpu(index, arch, find_readelf) for index, arch in enumerate(archs))
        self.library = _load_library(self.path)
        host_calls = HostCalls(self.library)
        for gpu in self.gpus:
            gpu.host_calls = host_calls
        # C code calls these as long as the process lives, so they must not be collected.
        self._callbacks, entries = make_callbacks(HipCallbacks(self.gpus, find_compiler, at_end))
        keep_uncaught_errors(entries)
        facts = (DeviceFacts * len(self.gpus))(*(describe_device(gpu.arch, CAPACITY) for gpu in self.gpus))
        self.library.tilewright_open(facts, len(self.gpus), ctypes.byref(self._callbacks))
        atexit.register(self.library.tilewright_close)

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


_lock = make_fork_lock()
_opened: HipShim | None = None


def open_shim() -> HipShim:
    """Return the HIP shim of this process, opened at first use. No other HIP library may be loaded before."""
    global _opened  # noqa: PLW0603 - one per process, as a library is
    if _opened is None:
        with _lock:
            if _opened is None:
                _opened = _open_new_shim()
    return _opened


def _open_new_shim() -> HipShim:
    # Programs that `tilewright emulate` starts do without these, which take long to import.
    from tilewright.arch import load  # noqa: PLC0415
    from tilewright.building.toolchain import find_toolchain  # noqa: PLC0415
    from tilewright.emulator.hip_shim.shim_library import build_shim, find_prebuilt_shim  # noqa: PLC0415
    from tilewright.emulator.program import list_translators  # noqa: PLC0415

    list_translators()  # imported now, not in the first launch: this process has no kernel cache
    archs = [load(name) for name in EMULATED]
    try:
        toolchain = find_toolchain(with_ck=False)
    except ToolchainError as error:
        path = find_prebuilt_shim()
        if path is None:
            raise
        return _open_prebuilt_shim(path, archs, error)
    return HipShim(
        build_shim(toolchain),
        archs,
        lambda: toolchain.readelf,
        lambda arch: (str(toolchain.cxx), *toolchain.device_flags(arch)),
    )


def _open_prebuilt_shim(path: Path, archs: Sequence[Arch], error: ToolchainError) -> HipShim:
    """Open a shim from a wheel. Programs that compile at run time get the error about the missing toolchain."""
    from tilewright.emulator.hip_shim.shim_library import find_code_readers  # noqa: PLC0415  (see above)

    def refuse_to_compile(_: Arch) -> Sequence[str]:
        raise error

    _, readelf = find_code_readers()
    return HipShim(path, archs, lambda: readelf, refuse_to_compile)


def open_program_shim(
    path: Path,
    arch: Arch,
    find_readelf: Callable[[], Path | None],
    compiler: Sequence[str],
    at_end: Callable[[], None],
) -> HipShim:
    """Open the HIP shim of a program that `tilewright emulate` started. It has one device, of `arch`.

    `compiler` is the command of hiprtc; empty if there is none.
    """

    def find_compiler(_: Arch) -> Sequence[str]:
        if not compiler:
            raise ToolchainError("hiprtc needs a compiler, and none was found: see `tilewright doctor`")
        return compiler

    global _opened  # noqa: PLW0603 - one per process, as a library is
    with _lock:
        _opened = HipShim(path, (arch,), find_readelf, find_compiler, at_end)
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
