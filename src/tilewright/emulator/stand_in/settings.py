"""How launches on emulated devices run, and what was recorded of them. Both belong to the thread that launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, choose
from tilewright.emulator.counters import Counters
from tilewright.emulator.launch import AUTO, ENGINES, Extent, Mode

if TYPE_CHECKING:
    from tilewright.emulator.device import Kernel


@dataclass(frozen=True, slots=True)
class Settings:
    """`detailed` counts cache lines and bank conflicts, too; `limit` is the most instructions that a launch may run
    (None: the device's own); with `dry` launches do nothing and return at once, to measure what the host does;
    `engine` and `turned` are those of `EmulatedDevice.launch`; `exchange` gives the kernel that is launched instead of
    the loaded one, to ask whether a kernel with an error would be noticed."""

    mode: Mode = Mode.FAST
    detailed: bool = False
    limit: int | None = None
    dry: bool = False
    engine: str = AUTO
    turned: bool = False
    exchange: Callable[[Kernel], Kernel] | None = None


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch that ended well."""

    kernel: str
    grid: Extent
    block: Extent
    counters: Counters
    mode: Mode


DEFAULT = Settings()
_settings: ContextVar[Mapping[int, Settings]] = ContextVar("tilewright_emulation", default=MappingProxyType({}))
_records: ContextVar[tuple[tuple[int, list[LaunchRecord]], ...]] = ContextVar("tilewright_records", default=())
_label: ContextVar[str] = ContextVar("tilewright_label", default="")


def settings_of(device: int) -> Settings:
    """What is in force for launches of this thread on a device."""
    return _settings.get().get(device, DEFAULT)


def changed(old: Settings, **given: Any) -> Settings:
    """Settings with other values where one is given that is not None."""
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted.get("limit", 1) < 1:
        raise InvalidValueError(f"a limit of {given['limit']} instructions lets nothing run; it must be at least 1")
    if not isinstance(wanted.get("mode", old.mode), Mode):
        known = ", ".join(str(mode) for mode in Mode)
        raise InvalidValueError(f"{given['mode']!r} is no Mode of tilewright.emulator.launch; there are {known}")
    choose("engine", wanted.get("engine", old.engine), ENGINES)
    return replace(old, **wanted)


@contextmanager
def in_force(device: int, settings: Settings) -> Iterator[None]:
    """Launches of this thread on a device run so inside the `with` block."""
    token = _settings.set({**_settings.get(), device: settings})
    try:
        yield
    finally:
        _settings.reset(token)


@contextmanager
def recording(device: int) -> Iterator[list[LaunchRecord]]:
    """A list that gets a record of each launch of this thread on a device."""
    launches: list[LaunchRecord] = []
    token = _records.set((*_records.get(), (device, launches)))
    try:
        yield launches
    finally:
        _records.reset(token)


def record(device: int, launch: LaunchRecord) -> None:
    """Put a launch into all lists that are open for it."""
    for wanted, launches in _records.get():
        if wanted == device:
            launches.append(launch)


@contextmanager
def naming(label: str) -> Iterator[None]:
    """What this thread allocates inside the `with` block has this name in faults."""
    token = _label.set(label)
    try:
        yield
    finally:
        _label.reset(token)


def current_label() -> str:
    """The name for what is allocated now; empty when there is none."""
    return _label.get()
