"""Exceptions that arose below a C function, kept until Python can raise them.

HIP's functions give numbers. What the number stands for waits here, by device and by the thread that called. What left
a callback before it could say for which device it worked waits for the thread's next call on any device.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

_kept: dict[tuple[int | None, int], list[BaseException]] = {}  # by device and thread


def keep(device: int | None, error: BaseException, thread: int | None = None) -> None:
    """Keep what went wrong in a call of this thread, or of another; without a device, for any of them."""
    _kept.setdefault((device, threading.get_ident() if thread is None else thread), []).append(error)


def keep_what_leaves(callbacks: Collection[Callable[..., Any]]) -> None:
    """From now on keep exceptions that leave these callbacks of ctypes, which only prints them.

    A signal's exception, such as that of Ctrl-C, may be raised before the first line of a callback, where no `try` can
    catch it. ctypes gives it to `sys.unraisablehook`: the only place that gets to know of it.
    """
    before = sys.unraisablehook
    names = {repr(callback) for callback in callbacks}

    def hook(lost: Any) -> None:
        # Python 3.13 has the callback's name in the text alone.
        ours = lost.object in callbacks or any(name in (lost.err_msg or "") for name in names)
        if ours and lost.exc_value is not None:
            keep(None, lost.exc_value)
        else:
            before(lost)

    sys.unraisablehook = hook


def has_own(device: int) -> bool:
    """Whether something is kept for this thread on a device."""
    thread = threading.get_ident()
    return (device, thread) in _kept or (None, thread) in _kept


def take_own() -> list[tuple[int | None, BaseException]]:
    """All that was kept for this thread, each with its device; nothing of it is kept any more."""
    thread = threading.get_ident()
    keys = [key for key in _kept if key[1] == thread]
    return [(key[0], error) for key in keys for error in _kept.pop(key)]


def raise_own(device: int, what: str) -> None:
    """Raise what was kept for this thread on a device, if anything: the first, with those that followed as notes."""
    thread = threading.get_ident()
    errors = [*_kept.pop((None, thread), []), *_kept.pop((device, thread), [])]
    if errors:
        _raise(errors, f"raised by: {what}")


def raise_orphan(device: int) -> None:
    """Raise what was kept for a thread that has ended without asking, if there is such a one."""
    living = {thread.ident for thread in threading.enumerate()}
    lost = [key for key in _kept if key[0] in (device, None) and key[1] not in living]
    for key in lost:
        errors = _kept.pop(key, None)
        if errors:
            _raise(errors, "raised by a thread that has ended")


def _raise(errors: list[BaseException], note: str) -> None:
    first, *later = errors
    first.add_note(note)
    for error in later:
        first.add_note(f"after it: {type(error).__name__}: {error}")
    raise first
