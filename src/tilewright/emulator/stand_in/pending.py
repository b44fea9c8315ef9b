"""Exceptions that arose below a C function, kept until Python can raise them.

HIP's functions give numbers. What the number stands for waits here, by device and by the thread that called.
"""

from __future__ import annotations

import threading

_kept: dict[tuple[int, int], list[BaseException]] = {}  # by device and thread


def keep(device: int, error: BaseException) -> None:
    """Keep what went wrong in a call of this thread."""
    _kept.setdefault((device, threading.get_ident()), []).append(error)


def has_own(device: int) -> bool:
    """Whether something is kept for this thread on a device."""
    return (device, threading.get_ident()) in _kept


def raise_own(device: int, what: str) -> None:
    """Raise what was kept for this thread on a device, if anything: the first, with those that followed as notes."""
    errors = _kept.pop((device, threading.get_ident()), None)
    if errors:
        _raise(errors, f"raised by: {what}")


def raise_orphan(device: int) -> None:
    """Raise what was kept for a thread that has ended without asking, if there is such a one."""
    living = {thread.ident for thread in threading.enumerate()}
    lost = [key for key in _kept if key[0] == device and key[1] not in living]
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
