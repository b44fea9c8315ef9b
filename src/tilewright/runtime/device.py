"""Devices: GPUs and emulated ones, which differ only in their HIP library, and the settings of emulated ones."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.arch import load
from tilewright.arch.spec import Arch
from tilewright.base import knobs
from tilewright.base.errors import DeviceError, InvalidValueError, KnobError, UnknownValueError
from tilewright.emulator import hardware
from tilewright.emulator.hip_shim import deferred_errors, settings
from tilewright.runtime import hip_library
from tilewright.runtime.device_objects import Buffer, Stream, StreamEvent
from tilewright.runtime.hip import NAME_BYTES, Hip

if TYPE_CHECKING:
    from tilewright.emulator.device import DeviceKernel
    from tilewright.emulator.hip_shim.settings import LaunchRecord
    from tilewright.emulator.launch import Mode
    from tilewright.runtime.forwarded_hip import ForwardedLibrary

GPU, EMULATED = "gpu", "emulated"
_GPU_NAME = re.compile(r"gpu:(0|[1-9]\d{0,3})")
# gcnArchName in hipDeviceProp_t, such as gfx942:sramecc+:xnack-. It comes after the product's name.
_ARCH_NAME = re.compile(rb"(gfx[0-9a-f]{3,6})(?:[:\0])")
# Names of GPUs in other libraries, and names without an index.
_FOREIGN_NAME = re.compile(r"(?:cuda|hip|rocm|gpu)?[: ]?(\d{1,4})?")
_TORCH_GPUS = ("cuda", "hip")
_entered: ContextVar[tuple[Device, ...]] = ContextVar("tilewright_devices", default=())


@dataclass(frozen=True)
class Device:
    """A device by name: "gpu:0" or "emulated:gfx942". Cheap to create; nothing is loaded before it is used.

    `with device:` makes it the current device of the thread.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in list_emulated_names() and not _GPU_NAME.fullmatch(str(self.name)):
            known = ["gpu:0", "…", *list_emulated_names()]
            raise UnknownValueError("device", self.name, known, _explain_device_name(self.name))

    @cached_property
    def kind(self) -> str:
        """ "gpu" or "emulated"."""
        return self.name.partition(":")[0]

    @cached_property
    def index(self) -> int:
        """The index of the device in its HIP library."""
        return int(self.name.partition(":")[2]) if self.kind == GPU else list_emulated_names().index(self.name)

    @cached_property
    def arch(self) -> Arch:
        """The GPU's specification. Reads the GPU's name from the HIP library, unless the device name has it."""
        return load(
            self.name.partition(":")[2] if self.kind == EMULATED else _read_arch_name(self.load_hip(), self.name)
        )

    @cached_property
    def model(self) -> str:
        """Product name and units, such as "AMD Instinct MI300X, 304 units". GPUs of one architecture differ in both.

        A partitioned GPU has fewer units, so its measurements are those of another model.
        """
        hip = self.load_hip()
        return f"{hip.product(self.index) or f'{self.arch.name} without a name'}, {hip.units(self.index)} units"

    def bus_address(self) -> str:
        """The PCI bus address of the device, by which monitoring tools identify GPUs."""
        return self.load_hip().bus_address(self.index)

    def load_hip(self) -> Hip:
        """The HIP library of this device, loaded on first use. Checks that the device exists."""
        if self.kind == EMULATED:
            return hip_library.load_shim()
        hip = hip_library.load_hip()
        _check_exists(hip, self.index)
        return hip

    def require_hip(self, what: str) -> Hip:
        """The HIP library, after raising a pending fault of this device."""
        hip = self.load_hip()
        self._raise_fault(hip, what)
        return hip

    def call(self, what: str, *arguments: Any) -> Hip:
        """Call a HIP function for this device. A status other than hipSuccess is raised."""
        hip = self.require_hip(what)
        with DeviceGuard(hip, self.index):
            status = hip.call(what, *arguments)
        self.check(status, what)
        return hip

    def check(self, status: int, what: str) -> None:
        """Raise the error for a HIP status: the emulated device's fault that caused it, else a `HipError`."""
        if status:
            hip = self.load_hip()
            self._raise_fault(hip, what)
            hip.clear_error()
            raise hip.make_error(status, what)

    def raise_pending(self, message: str) -> NoReturn:
        """Raise the fault that made a call fail, or a `DeviceError` with `message` if none is known."""
        hip = self.load_hip()
        self._raise_fault(hip, message)
        hip.clear_error()
        raise DeviceError(f"{self.name}: {message}")

    def _raise_fault(self, hip: Hip, what: str) -> None:
        if self.kind == EMULATED and deferred_errors.has_errors(self.index):
            hip.clear_error()
            deferred_errors.raise_errors(self.index, what)

    def activate(self) -> None:
        """Make this the device of this thread's launches, until another one is activated."""
        hip = self.load_hip()
        if status := hip.set_device(self.index):
            raise hip.make_error(status, "hipSetDevice")

    def make_current(self) -> AbstractContextManager[None]:
        """Make this the device of this thread's launches inside the `with` block; then restore the previous one."""
        return DeviceGuard(self.load_hip(), self.index)

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        """Allocate memory. Faults of the emulated device name it by `label`."""
        return Buffer(self, nbytes, label)

    def label_allocations(self, label: str) -> AbstractContextManager[None]:
        """Label allocations inside the `with` block, on the emulated device."""
        return settings.use_label(label) if self.kind == EMULATED else nullcontext()

    def stream(self) -> Stream:
        """A new stream, which is not ordered after others."""
        return Stream(self)

    def event(self) -> StreamEvent:
        """A new event."""
        return StreamEvent(self)

    def synchronize(self) -> None:
        """Wait until all work on the device is done. Also raises pending faults of threads that have ended."""
        if self.kind == EMULATED:
            deferred_errors.raise_orphaned(self.index)
        self.call("hipDeviceSynchronize")

    def library(self, path: Path) -> ctypes.CDLL | ForwardedLibrary:
        """A kernel library, loaded once per path, in the process of this device's HIP library."""
        hip = self.load_hip()
        if hip.own_process:
            from tilewright.runtime.forwarded_hip import ForwardedLibrary  # noqa: PLC0415  (rarely needed)

            return ForwardedLibrary(path, self.load_hip)
        return hip_library.load_kernel_library(hip, path, emulated=self.kind == EMULATED)

    def emulating(
        self,
        *,
        mode: Mode | None = None,
        detailed: bool | None = None,
        profile: bool | None = None,
        limit: int | None = None,
        dry: bool | None = None,
        engine: str | None = None,
        turned: bool | None = None,
        checks: str | Iterable[str] | None = None,
        exchange: Callable[[DeviceKernel], DeviceKernel] | None = None,
    ) -> AbstractContextManager[None]:
        """Settings of this thread's launches inside the `with` block; the others do not change. See `ShimSettings`."""
        self._require_emulated("emulating")
        return apply_settings(
            self.load_hip(),
            self.index,
            mode=mode,
            detailed=detailed,
            profile=profile,
            limit=limit,
            dry=dry,
            engine=engine,
            turned=turned,
            checks=checks,
            exchange=exchange,
        )

    def mode(self, mode: Mode) -> AbstractContextManager[None]:
        """The mode of this thread's launches, fast or strict, inside the `with` block."""
        return self.emulating(mode=mode)

    def recording(self) -> AbstractContextManager[list[LaunchRecord]]:
        """Record this thread's launches inside the `with` block: it gets a list that is filled with records."""
        self._require_emulated("recording")
        self.load_hip()
        return settings.record_launches(self.index)

    def _require_emulated(self, what: str) -> None:
        if self.kind != EMULATED:
            raise DeviceError(
                f"{self.name} does not support {what}(): only emulated devices ({', '.join(list_emulated_names())}) do"
            )

    def __enter__(self) -> Device:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered.set(_entered.get()[:-1])

    def __str__(self) -> str:
        return self.name


def read_device(value: object) -> Device:
    """The device of an argument: a `Device`, its name, or a GPU of torch.

    Other values are errors. A torch device in host memory is one, too: kernels do not run there.
    """
    if isinstance(value, Device):
        return value
    if isinstance(value, str):
        return Device(value)
    kind, index = getattr(value, "type", None), getattr(value, "index", None)
    if kind in _TORCH_GPUS and type(index) is int:
        return Device(f"{GPU}:{index}")  # torch counts the same GPUs in the same order
    known = f"{GPU}:0, or an emulated device ({', '.join(list_emulated_names())})"
    if kind in _TORCH_GPUS:
        raise InvalidValueError(f"{value!r} has no index: name the GPU, such as device='gpu:0'")
    if isinstance(kind, str):
        raise InvalidValueError(
            f"kernels cannot run on {value!r}. Pass device= a GPU, {known}. "
            "Tensors in host memory are copied to it, and the result is copied back."
        )
    raise InvalidValueError(f"{value!r} is not a device. Pass a Device or its name: {known}.")


def _explain_device_name(name: object) -> str:
    """Advice for a device name of another library, or without an index. Empty for other names."""
    text = str(name).lower()
    foreign = _FOREIGN_NAME.fullmatch(text)
    if foreign is not None:
        return f"A GPU is named {GPU}:{foreign[1] or 0}, with its index."
    if text == "cpu":
        return "Kernels do not run on the CPU; an emulated device executes them there."
    return ""


def current_device() -> Device | None:
    """The device of the innermost `with` block of this thread, else the knob's, else None."""
    entered = _entered.get()
    if entered:
        return entered[-1]
    named = knobs.DEVICE.get()
    if named is None:
        return None
    try:
        return Device(named)
    except InvalidValueError as error:
        raise KnobError(f"{knobs.DEVICE.name}={named!r} cannot be used: {error}") from error


def devices() -> list[Device]:
    """All GPUs, then the emulated devices. Without a HIP library or a GPU, only emulated devices."""
    return [Device(f"gpu:{index}") for index in range(hip_library.count_gpus())] + [
        Device(name) for name in list_emulated_names()
    ]


def list_emulated_names() -> tuple[str, ...]:
    """The names of all emulated devices."""
    return tuple(f"{EMULATED}:{arch}" for arch in hardware.EMULATED)


class DeviceGuard:
    """Sets this thread's current device inside the `with` block, and restores the previous one.

    A class instead of a generator for speed: it is entered around every launch.
    """

    __slots__ = ("_before", "_hip", "_index")

    def __init__(self, hip: Hip, index: int) -> None:
        self._hip = hip
        self._index = index
        self._before = index

    def __enter__(self) -> None:
        self._before = self._hip.current_device()
        if self._before != self._index:
            self._set_device(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before != self._index:
            self._set_device(self._before)

    def _set_device(self, index: int) -> None:
        status = self._hip.set_device(index)
        if status:
            raise self._hip.make_error(status, "hipSetDevice")


def _check_exists(hip: Hip, index: int) -> None:
    count = hip.count()
    if index >= count:
        there = ", ".join(f"gpu:{number}" for number in range(count))
        raise DeviceError(
            f"gpu:{index} does not exist: HIP sees {count} ({there}). HIP_VISIBLE_DEVICES may hide others."
        )


def _read_arch_name(hip: Hip, name: str) -> str:
    index = int(name.partition(":")[2])
    # The field's offset differs between versions of HIP, so it is found by a pattern.
    found = _ARCH_NAME.search(hip.properties(index), NAME_BYTES)
    if found is None:
        raise DeviceError(f"the GPU of {name} is unknown: its properties in {hip.path} have no gfx name")
    return found[1].decode()


@contextmanager
def apply_settings(hip: Hip, device: int, **given: Any) -> Iterator[None]:
    """Apply settings to this thread's launches on a device; None does not change a setting."""
    if hip.own_process and given.get("exchange") is not None:
        raise InvalidValueError(
            "kernels can be exchanged only in the emulator's own process, and the emulator runs in a separate process, "
            "because this one has another HIP library loaded: use a process without it"
        )
    before = settings.get_settings(device)
    after = settings.update_settings(before, **given)
    with settings.use_settings(device, after), _skip_execution(hip, device, after.dry, before.dry):
        yield


def _skip_execution(hip: Hip, device: int, on: bool, before: bool) -> AbstractContextManager[None]:
    if hip.own_process:
        return nullcontext()  # each call sends the settings
    from tilewright.emulator.hip_shim.shim import use_dry_run  # noqa: PLC0415  (loads NumPy)

    return use_dry_run(device, on, before)


@contextmanager
def simulate_time(device: int, launches_us: Sequence[float], other_us: float = 0.0) -> Iterator[Callable[[], int]]:
    """Simulate time on an emulated device inside the `with` block. For tests of time measurement.

    This thread's launches take these microseconds, one after another, and each fill and copy takes `other_us`. Events
    measure the time between them. After the last launch, no time is left. The `with` block gets a function
    that returns the number of remaining launches.
    """
    from tilewright.emulator.hip_shim.shim import open_shim  # noqa: PLC0415  (loads NumPy)

    for value in (*launches_us, other_us):
        if not value >= 0:
            raise InvalidValueError(f"times must be at least 0 µs, got {value}")
    hip_library.load_shim_here()
    shim = open_shim()
    shim.set_launch_times(device, launches_us, other_us)
    try:
        yield lambda: shim.count_remaining_times(device)
    finally:
        shim.clear_launch_times(device)
