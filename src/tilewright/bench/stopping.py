"""Ctrl-C and a batch scheduler's SIGTERM: finish what runs, keep it, and end."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tilewright.base.events import Noticed, emit
from tilewright.bench.executor import Executor

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(executor: Executor) -> Iterator[threading.Event]:
    """Inside the `with` block the first signal stops the executor; a second one interrupts at once.

    The event is set by the first. For the main thread of a program only: Python hands signals to no other.
    """
    stopping = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        # In a thread: the code that was interrupted may hold a lock that stopping needs, or be writing to the stream
        # that the notice goes to. Listeners belong to a context, and it takes that along.
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(_stop, executor, number), name="tilewright stops", daemon=True
        ).start()

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(executor: Executor, number: int) -> None:
    name = signal.Signals(number).name
    try:
        emit(Noticed(f"{name}: what runs is finished and kept, then the sweep ends. Once more ends it at once."))
    finally:
        executor.stop()
