"""Handle Ctrl-C and a batch scheduler's SIGTERM: finish and keep running work, then end."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tilewright.base.events import Notice, emit
from tilewright.bench.executor import Executor

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(executor: Executor) -> Iterator[threading.Event]:
    """Inside the `with` block the first signal stops the executor; a second one interrupts at once.

    The first signal sets the event. Only for the main thread of a program, as Python delivers signals to no other.
    """
    stopping = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        # In a thread: the interrupted code may hold a lock that stopping needs, or be writing to the stream that the
        # notice goes to. Listeners belong to a context, which the thread copies.
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
        emit(Notice(f"{name}: running tasks are finished and kept, then the sweep ends. Repeat to end it at once."))
    finally:
        executor.stop()
