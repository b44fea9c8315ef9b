"""Telling how far a pass over many records is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilewright.base import events

# An event for each of a million records would cost more than the records.
STEP = 1000

T = TypeVar("T")


@contextmanager
def counted(name: str, total: int | None = None) -> Iterator[Callable[[Iterable[T]], Iterator[T]]]:
    """Tell how far a pass over many records is: what it goes through is handed on and counted."""

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
