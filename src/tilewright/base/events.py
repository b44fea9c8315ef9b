"""Progress events. The library emits them and listeners display them; nothing here prints.

A listener is any callable that takes an event. Listeners belong to the current context (`contextvars`), so threads and
nested calls do not affect each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Event:
    """Base class of all events."""


@dataclass(frozen=True)
class Started(Event):
    """A task of `total` steps began; `total` is None if it is unknown."""

    task: str
    total: int | None = None


@dataclass(frozen=True)
class Advanced(Event):
    """`done` more steps of a started task are finished; `detail` names the last one."""

    task: str
    done: int = 1
    detail: str = ""


@dataclass(frozen=True)
class Working(Event):
    """The current items of a started task, and its remaining time in seconds; None if that is unknown."""

    task: str
    on: tuple[str, ...]
    left_s: float | None


@dataclass(frozen=True)
class Finished(Event):
    """A started task ended."""

    task: str


@dataclass(frozen=True)
class Notice(Event):
    """Information for the user that is not an error: the work continues."""

    message: str


@dataclass(frozen=True)
class Detail(Event):
    """A detail of the work, such as the command of a compiler; shown on request only."""

    message: str


Listener = Callable[[Event], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("tilewright_listeners", default=())


def emit(event: Event) -> None:
    """Send an event to all listeners of this context. A listener's exception reaches the caller."""
    for listener in _listeners.get():
        listener(event)


def has_listener() -> bool:
    """Whether someone listens in this context."""
    return bool(_listeners.get())


@contextmanager
def add_listener(listener: Listener) -> Iterator[None]:
    """Add a listener for the duration of a `with` block."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


class Advance(Protocol):
    """The callback of a task: call it once per finished step."""

    def __call__(self, detail: str = "") -> None: ...


@contextmanager
def report_task(name: str, total: int | None = None) -> Iterator[Advance]:
    """Emit the start and end of a task. The `with` block gets a callback that reports finished steps."""

    def advance(detail: str = "") -> None:
        emit(Advanced(name, 1, detail))

    emit(Started(name, total))
    try:
        yield advance
    finally:
        emit(Finished(name))
