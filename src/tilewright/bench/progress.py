"""Report the progress of a pass over many records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilewright.base import events

# One event per record would cost more than the record itself.
STEP = 1000

T = TypeVar("T")


@contextmanager
def report_progress(name: str, total: int | None = None) -> Iterator[Callable[[Iterable[T]], Iterator[T]]]:
    """Report the progress of a pass over many records: yields a function that passes items on and counts them."""

    def count(items: Iterable[T]) -> Iterator[T]:
        for number, item in enumerate(items, 1):
            if number % STEP == 0:
                events.emit(events.Advanced(name, STEP))
            yield item

    events.emit(events.Started(name, total))
    try:
        yield count
    finally:
        events.emit(events.Finished(name))
