"""Lines of a worker process as messages. A kernel's code shares the process, so a line may hold anything at all.

The reader is total: every line is a message, if only `Garbage` with a reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tilewright.base.errors import InvalidValueError
from tilewright.bench.field_checks import FLAG, NUMBER, TEXT, checked_object, quoted
from tilewright.bench.record import Record

# A record has some thousand bytes, its message and all counters included. This bounds what is read of one line.
LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Ready:
    """The process can work."""


@dataclass(frozen=True)
class Begun:
    """The reference is there; from now on the time is the kernel's."""

    key: str


@dataclass(frozen=True)
class Alive:
    """A sign of life."""


@dataclass(frozen=True)
class Done:
    """The record of a task, and whether the process can be trusted with the next."""

    record: Record
    sound: bool


@dataclass(frozen=True)
class Garbage:
    """A line that no worker writes."""

    why: str


Message = Ready | Begun | Alive | Done | Garbage


def read_message(line: bytes) -> Message:
    """The message of a line without its end. Never raises, whatever the line holds."""
    if len(line) > LONGEST_LINE:
        return too_long(len(line))
    try:
        value = json.loads(line.decode())
    except RecursionError:
        return Garbage(f"JSON that is nested too deeply: {quoted(line)}")
    except ValueError as error:  # no UTF-8, no JSON, or a number of more digits than Python reads
        return Garbage(f"what is no JSON ({error}): {quoted(line)}")
    try:
        return _message_of(value)
    except InvalidValueError as error:
        return Garbage(f"what is no message: {error}")


def too_long(size: int) -> Garbage:
    """A line, or the beginning of one, that is longer than any message."""
    return Garbage(f"a line of {size:,} bytes; {LONGEST_LINE:,} are allowed")


def _message_of(value: object) -> Message:
    if not isinstance(value, dict):
        raise InvalidValueError(f"it is {quoted(value)}")
    if "done" in value:
        fields = checked_object("an answer", value, ("done", "sound"))
        if not FLAG.holds(fields["sound"]):
            raise InvalidValueError(f"sound is {quoted(fields['sound'])}, must be {FLAG.wanted}")
        return Done(Record.of_json(fields["done"]), fields["sound"])
    if value.keys() == {"ready"} and NUMBER.holds(value["ready"]):
        return Ready()
    if value.keys() == {"begun"} and TEXT.holds(value["begun"]):
        return Begun(value["begun"])
    if value.keys() == {"alive"} and NUMBER.holds(value["alive"]):
        return Alive()
    raise InvalidValueError(f"it is {quoted(value)}")
