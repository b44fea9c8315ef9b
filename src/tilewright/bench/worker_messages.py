"""Parse lines of a worker process as messages. Kernel code shares the process, so a line may hold anything.

The parser never fails: every line is a message, possibly an `InvalidLine` with a reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tilewright.base.errors import InvalidValueError
from tilewright.bench.field_checks import FLAG, NUMBER, TEXT, check_object, format_quoted
from tilewright.bench.record import Record

# A record has about a thousand bytes, including its message and all counters. This bounds the length of one line.
LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Ready:
    """The process can work."""


@dataclass(frozen=True)
class Begun:
    """The reference is computed; the kernel's time limit starts now."""

    key: str


@dataclass(frozen=True)
class Alive:
    """A heartbeat."""


@dataclass(frozen=True)
class Done:
    """The record of a task, and whether the process can be trusted with the next."""

    record: Record
    sound: bool


@dataclass(frozen=True)
class InvalidLine:
    """A line that no worker writes."""

    why: str


Message = Ready | Begun | Alive | Done | InvalidLine


def read_message(line: bytes) -> Message:
    """The message of a line without its line end. Never raises, whatever the line holds."""
    if len(line) > LONGEST_LINE:
        return reject_long_line(len(line))
    try:
        value = json.loads(line.decode())
    except RecursionError:
        return InvalidLine(f"JSON that is nested too deeply: {format_quoted(line)}")
    except ValueError as error:  # not UTF-8, not JSON, or a number with more digits than Python reads
        return InvalidLine(f"invalid JSON ({error}): {format_quoted(line)}")
    try:
        return _parse_message(value)
    except InvalidValueError as error:
        return InvalidLine(f"an invalid message: {error}")


def reject_long_line(size: int) -> InvalidLine:
    """A line, or the beginning of one, that is longer than any message."""
    return InvalidLine(f"a line of {size:,} bytes; the limit is {LONGEST_LINE:,}")


def _parse_message(value: object) -> Message:
    if not isinstance(value, dict):
        raise InvalidValueError(f"it is {format_quoted(value)}")
    if "done" in value:
        fields = check_object("an answer", value, ("done", "sound"))
        if not FLAG.holds(fields["sound"]):
            raise InvalidValueError(f"sound is {format_quoted(fields['sound'])}, must be {FLAG.wanted}")
        return Done(Record.from_json(fields["done"]), fields["sound"])
    if value.keys() == {"ready"} and NUMBER.holds(value["ready"]):
        return Ready()
    if value.keys() == {"begun"} and TEXT.holds(value["begun"]):
        return Begun(value["begun"])
    if value.keys() == {"alive"} and NUMBER.holds(value["alive"]):
        return Alive()
    raise InvalidValueError(f"it is {format_quoted(value)}")
