"""Exceptions that were raised below a C function, kept until Python can raise them.

HIP functions return status numbers. The exception behind a number is kept here, by device and calling thread. An
exception that left a callback before its device was known is kept for the thread's next call on any device.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

_kept: dict[tuple[int | None, int], list[BaseException]] = {}  # by device and thread
_handler: Callable[[int | None, BaseException], None] | None = None


def use_handler(handler: Callable[[int | None, BaseException], None]) -> None:
    """From now on pass every exception to `handler`, with its device, instead of keeping it for Python."""
    global _handler  # noqa: PLW0603 - one per process, as the shim is
    _handler = handler


def keep_error(device: int | None, error: BaseException, thread: int | None = None) -> None:
    """Keep an exception of a call of this thread, or of another; without a device, for any device."""
    if _handler is not None:
        _handler(device, error)
        return
    _kept.setdefault((device, threading.get_ident() if thread is None else thread), []).append(error)


def keep_uncaught_errors(callbacks: Collection[Callable[..., Any]]) -> None:
    """From now on keep exceptions that leave these ctypes callbacks; ctypes itself only prints them.

    The exception of a signal, such as Ctrl-C, may be raised before the first line of a callback, where no `try` can
    catch it. ctypes passes it to `sys.unraisablehook` and nowhere else.
    """
    before = sys.unraisablehook
    names = {repr(callback) for callback in callbacks}

    def handle_unraisable(lost: Any) -> None:
        # Python 3.13 names the callback only in the text.
        ours = lost.object in callbacks or any(name in (lost.err_msg or "") for name in names)
        if ours and lost.exc_value is not None:
            keep_error(None, lost.exc_value)
        else:
            before(lost)

    sys.unraisablehook = handle_unraisable


def has_errors(device: int) -> bool:
    """Whether an exception is kept for this thread on a device."""
    thread = threading.get_ident()
    return (device, thread) in _kept or (None, thread) in _kept


def take_errors() -> list[tuple[int | None, BaseException]]:
    """Take all exceptions that are kept for this thread, each with its device."""
    thread = threading.get_ident()
    keys = [key for key in _kept if key[1] == thread]
    return [(key[0], error) for key in keys for error in _kept.pop(key)]


def raise_errors(device: int, what: str) -> None:
    """Raise the first exception that is kept for this thread on a device, if any, with the others as notes."""
    thread = threading.get_ident()
    errors = [*_kept.pop((None, thread), []), *_kept.pop((device, thread), [])]
    if errors:
        _raise_first(errors, f"raised by: {what}")


def raise_orphaned(device: int) -> None:
    """Raise the exceptions that are kept for a thread that has ended, if any."""
    living = {thread.ident for thread in threading.enumerate()}
    lost = [key for key in _kept if key[0] in (device, None) and key[1] not in living]
    for key in lost:
        errors = _kept.pop(key, None)
        if errors:
            _raise_first(errors, "raised by a thread that has ended")


def _raise_first(errors: list[BaseException], note: str) -> None:
    first, *later = errors
    first.add_note(note)
    for error in later:
        first.add_note(f"after it: {type(error).__name__}: {error}")
    raise first
