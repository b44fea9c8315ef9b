"""Settings and records of launches on emulated devices. Both belong to the launching thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, choose
from tilewright.emulator.launch import AUTO, ENGINES, Counters, Extent, Mode
from tilewright.emulator.sanitizer.checks import parse_checks

if TYPE_CHECKING:
    from tilewright.emulator.device import DeviceKernel
    from tilewright.emulator.profile import KernelProfile
    from tilewright.emulator.sanitizer.findings import Finding


@dataclass(frozen=True, slots=True)
class ShimSettings:
    """Settings of launches. `detailed` also counts cache lines and bank conflicts; with `profile`, records of launches
    have the counts of each instruction; `limit` is the maximum number of instructions of a launch (None: the device's
    limit); with `dry` launches do nothing and return at once, to measure the host; `engine`, `turned` and `checks` are
    those of `EmulatedDevice.launch`; `exchange` returns the kernel to launch instead of the loaded one, to test whether
    an error in a kernel is detected."""

    mode: Mode = Mode.FAST
    detailed: bool = False
    profile: bool = False
    limit: int | None = None
    dry: bool = False
    engine: str = AUTO
    turned: bool = False
    checks: frozenset[str] = frozenset()
    exchange: Callable[[DeviceKernel], DeviceKernel] | None = None


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One successful launch."""

    kernel: str
    grid: Extent
    block: Extent
    counters: Counters
    mode: Mode
    profile: KernelProfile | None = None  # if the settings ask for it


DEFAULT = ShimSettings()
_process_default = DEFAULT  # of all threads without settings of their own
_watchers: list[Callable[[int, LaunchRecord], None]] = []
_finding_handler: Callable[[Finding], None] | None = None
_settings: ContextVar[Mapping[int, ShimSettings]] = ContextVar("tilewright_emulation", default=MappingProxyType({}))
_records: ContextVar[tuple[tuple[int, list[LaunchRecord]], ...]] = ContextVar("tilewright_records", default=())
_label: ContextVar[str] = ContextVar("tilewright_label", default="")


def get_settings(device: int) -> ShimSettings:
    """Return the current settings for launches of this thread on a device."""
    return _settings.get().get(device, _process_default)


def use_process_settings(settings: ShimSettings) -> None:
    """Use settings for launches of all threads that have none of their own."""
    global _process_default  # noqa: PLW0603 - of the process
    _process_default = settings


def update_settings(old: ShimSettings, **given: Any) -> ShimSettings:
    """Return the settings with the given values; None keeps the old value."""
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted.get("limit", 1) < 1:
        raise InvalidValueError(f"the limit must be at least 1 instruction, got {given['limit']}")
    if not isinstance(wanted.get("mode", old.mode), Mode):
        known = ", ".join(str(mode) for mode in Mode)
        raise InvalidValueError(f"{given['mode']!r} is not a Mode of tilewright.emulator.launch; known are {known}")
    choose("engine", wanted.get("engine", old.engine), ENGINES)
    if "checks" in wanted:
        wanted["checks"] = parse_checks(wanted["checks"])
    return replace(old, **wanted)


@contextmanager
def use_settings(device: int, settings: ShimSettings) -> Iterator[None]:
    """Use settings for launches of this thread on a device inside the `with` block."""
    token = _settings.set({**_settings.get(), device: settings})
    try:
        yield
    finally:
        _settings.reset(token)


@contextmanager
def record_launches(device: int) -> Iterator[list[LaunchRecord]]:
    """Yield a list that gets a record of each launch of this thread on a device."""
    launches: list[LaunchRecord] = []
    token = _records.set((*_records.get(), (device, launches)))
    try:
        yield launches
    finally:
        _records.reset(token)


def record_launch(device: int, launch: LaunchRecord) -> None:
    """Add a launch to all lists that record its device, and pass it to all watchers."""
    for watcher in _watchers:
        watcher(device, launch)
    for wanted, launches in _records.get():
        if wanted == device:
            launches.append(launch)


def watch_launches(watcher: Callable[[int, LaunchRecord], None]) -> None:
    """From now on pass every launch of every thread to `watcher`, with its device."""
    _watchers.append(watcher)


def handle_findings(handler: Callable[[Finding], None]) -> None:
    """From now on pass every finding of every thread to `handler`, instead of raising it when its launch ends."""
    global _finding_handler  # noqa: PLW0603 - of the process
    _finding_handler = handler


def get_finding_handler() -> Callable[[Finding], None] | None:
    """Return the function that gets findings, or None."""
    return _finding_handler


@contextmanager
def use_label(label: str) -> Iterator[None]:
    """Label this thread's allocations inside the `with` block; faults show the label."""
    token = _label.set(label)
    try:
        yield
    finally:
        _label.reset(token)


def get_label() -> str:
    """Return the label of new allocations; empty if there is none."""
    return _label.get()
