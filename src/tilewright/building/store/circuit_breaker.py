"""Circuit breaker for a remote tier: every call has a time limit, and a failure pauses calls for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tilewright.base.errors import RemoteError
from tilewright.base.events import Notice, emit

T = TypeVar("T")

# Long enough that a dead remote hardly delays a build of some minutes, short enough to recover.
PAUSE_S = 30.0


@dataclass
class CircuitBreaker:
    """Decides whether a remote may be called now. One per remote and process; threads may share it."""

    pause_s: float = PAUSE_S
    _quiet_until: float = float("-inf")
    _hanging: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def allows_calls(self) -> bool:
        """False during a pause, or while an earlier call still hangs."""
        with self._lock:
            self._hanging = [thread for thread in self._hanging if thread.is_alive()]
            return not self._hanging and time.monotonic() >= self._quiet_until

    def call(self, address: str, work: Callable[[], T], limit_s: float, abandon: Callable[[], None]) -> T:
        """Call `work` and return its result. Raises `RemoteError` if it fails or takes longer than `limit_s`.

        All exceptions count as failures: `work` parses untrusted data, which must not stop a build. After the time
        limit `abandon` is called, which stops `work` if that is possible.
        """
        if not self.allows_calls:
            raise RemoteError(f"{address} is not used for a while after a failure")
        attempt: _Attempt[T] = _Attempt(work)
        try:
            return attempt.wait_for_result(limit_s)
        except _OutOfTime:
            cause = f"no answer within {limit_s:.3g} s"
            self._pause(address, cause, attempt.thread)
            abandon()
            raise RemoteError(f"{address}: {cause}") from None
        except Exception as error:
            cause = str(error) if isinstance(error, (RemoteError, OSError)) else f"{type(error).__name__}: {error}"
            self._pause(address, cause, None)
            raise RemoteError(f"{address}: {cause}") from error

    def _pause(self, address: str, cause: str, hanging: threading.Thread | None) -> None:
        now = time.monotonic()
        with self._lock:
            first = now >= self._quiet_until  # several threads may fail at once; only the first reports it
            self._quiet_until = now + self.pause_s
            if hanging is not None:
                self._hanging.append(hanging)
        if first:
            emit(
                Notice(
                    f"the shared store {address} does not work ({cause}); it is not used for {self.pause_s:g} s, "
                    "and kernels are built here"
                )
            )


class _OutOfTime(Exception):  # noqa: N818  (never leaves this module)
    pass


class _Attempt(Generic[T]):
    """A call in its own thread: reading from a dead network share cannot be interrupted, only abandoned."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="tilewright-remote", daemon=True)

    def wait_for_result(self, limit_s: float) -> T:
        self.thread.start()
        self.thread.join(limit_s)
        if self.thread.is_alive():
            raise _OutOfTime
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _run(self) -> None:
        try:
            self._answer.append(self._work())
        except BaseException as error:  # raised again in `wait_for_result`
            self._error = error
