"""The result of one kernel on one problem: a time, counters, or the reason for neither. One line of a journal."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tilewright.base.digest import digest_value
from tilewright.base.errors import InvalidValueError, choose
from tilewright.bench.field_checks import (
    COUNT,
    COUNTERS,
    FLAG,
    NUMBER,
    OPTIONAL_NUMBER,
    TEXT,
    UNBOUNDED,
    FieldKind,
    check_fields,
    check_object,
    format_quoted,
)

SCHEMA = 1
# Longer messages help nobody, and every journal line is read again on each resume.
LONGEST_MESSAGE = 2000

OK = "ok"
# Reasons for a missing measurement. wrong: verification failed. fault: the device stopped the kernel. unsupported: the
# kernel does not support the problem. build_failed: it does not compile. timeout: it took longer than allowed.
# crashed: its process died. out_of_memory: on the device or in the process. quarantined: it was not tried, because it
# had failed too often. not_recorded: a replayed device has no such measurement.
STATUSES = (
    OK,
    "wrong",
    "fault",
    "unsupported",
    "build_failed",
    "timeout",
    "crashed",
    "out_of_memory",
    "quarantined",
    "not_recorded",
)
# The content of a record. time: microseconds on a GPU, or recorded ones of a replayed device. counters: exact counts of
# an emulated device, which has no time. none: a failure.
KINDS = ("time", "counters", "none")


def format_message(reason: object) -> str:
    """A reason as records store it: cut to `LONGEST_MESSAGE`, with characters that UTF-8 cannot encode escaped.

    File names that are not UTF-8 appear in error messages as unpaired surrogates.
    """
    return str(reason)[:LONGEST_MESSAGE].encode(errors="backslashreplace").decode()


def get_device_group(device: str) -> str:
    """The group of identical devices: the GPUs of a sweep, which are of one model, or one device by its name."""
    kind = device.partition(":")[0]
    return kind if kind == "gpu" else device


@dataclass(frozen=True, kw_only=True)
class Task:
    """A measurement to make: a kernel by name, a problem as canonical JSON, and a device.

    `cold` requests times with cold caches. `versions` are those of all software that the result depends on, and the GPU
    model (`format_versions`): results with other versions are different results.
    """

    op: str
    arch: str
    kernel: str
    problem: str
    device: str  # gpu:0, emulated:gfx942, replay:NAME
    cold: bool = False
    versions: str = ""

    def __post_init__(self) -> None:
        check_fields("task", self, _TASK_KINDS)

    @classmethod
    def create_interned(cls, fields: Mapping[str, Any]) -> Task:
        """A task whose texts are in memory only once, however many tasks share them, as in a sweep."""
        own = dict(fields)
        for name, value in fields.items():
            if isinstance(value, str):
                own[name] = sys.intern(value)
        return cls(**own)

    @cached_property
    def key(self) -> str:
        """The identity of the result: equal for tasks that need not be measured twice.

        The index of a GPU is not part of it: GPUs of one model are identical, and the model is in `versions`.
        """
        where = get_device_group(self.device)
        return digest_value([self.op, self.arch, self.kernel, self.problem, where, self.cold, self.versions])


@dataclass(frozen=True, kw_only=True)
class TimeStats:
    """Statistics of the measured repeats in microseconds: in steady state, after verification."""

    us: float  # median
    us_min: float
    us_max: float
    us_p10: float
    us_p90: float
    runs: int
    warmups: int
    clock_mhz: float | None = None  # engine clock during timing, if amdsmi reports it
    power_w: float | None = None

    def __post_init__(self) -> None:
        check_fields("times", self, _TIMES_KINDS)
        if not 0 < self.us_min <= self.us <= self.us_max:
            raise InvalidValueError(f"{self.us_min}, {self.us}, {self.us_max} µs must be the minimum, median, maximum")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One result. `message` is the reason of a failure; `share` is the used share of the tolerance, 1 is all of it."""

    task: Task
    status: str
    kind: str = "none"
    message: str = ""
    times: TimeStats | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    share: float | None = None
    error_ulps: float | None = None
    worker: str = ""  # host and process
    started: float = 0.0  # seconds since 1970
    took_s: float = 0.0

    def __post_init__(self) -> None:
        check_fields("record", self, _OWN_KINDS)
        choose("status", self.status, STATUSES)
        choose("kind of record", self.kind, KINDS)
        if self.times is not None and self.counters:
            raise InvalidValueError("a record holds a time or counters, not both")
        wanted = "time" if self.times is not None else "counters" if self.counters else "none"
        if self.kind != wanted:
            raise InvalidValueError(f"a record of kind {self.kind} holds {wanted}")
        if (self.status == OK) != (self.kind != "none"):
            raise InvalidValueError(
                f"status {self.status} does not match {self.kind}: only correct kernels are measured"
            )

    @property
    def key(self) -> str:
        return self.task.key

    @property
    def ok(self) -> bool:
        return self.status == OK

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in a journal line."""
        return {
            "schema": SCHEMA,
            "key": self.key,
            **_check_names(self, _OWN),
            "task": _check_names(self.task, _TASK),
            "times": None if self.times is None else _check_names(self.times, _TIMES),
            "counters": dict(self.counters),
            **{name: _encode_number(getattr(self, name)) for name in _UNBOUNDED},
        }

    @classmethod
    def from_json(cls, value: object) -> Record:
        """The inverse of `to_json`: raises `InvalidValueError` for anything else."""
        if isinstance(value, dict) and value.get("schema") != SCHEMA:
            raise InvalidValueError(
                f"the record has schema {format_quoted(value.get('schema'))}, this version reads {SCHEMA}"
            )
        fields = dict(check_object("record", value, _JSON))
        key, times = fields.pop("key"), fields.pop("times")
        del fields["schema"]
        for name in _UNBOUNDED:
            if isinstance(fields[name], str):
                fields[name] = float(choose(name, fields[name], _NOT_FINITE))
        fields["task"] = Task.create_interned(check_object("task", fields["task"], _TASK))
        record = cls(times=None if times is None else TimeStats(**check_object("times", times, _TIMES)), **fields)
        if key != record.key:
            raise InvalidValueError(f"the record's key is {format_quoted(key)}, but its task has {record.key}")
        return record


# `dataclasses.asdict` would copy every value, which takes ten times as long.
_TASK, _TIMES, _OWN = (tuple(field.name for field in dataclasses.fields(kind)) for kind in (Task, TimeStats, Record))
_JSON = ("schema", "key", *_OWN)
# An output that was never written has no finite error. JSON has no number for it: the line holds the text "inf".
_UNBOUNDED = ("share", "error_ulps")
_NOT_FINITE = ("inf", "-inf", "nan")

_TASK_KINDS = {name: FLAG if name == "cold" else TEXT for name in _TASK}
_TIMES_KINDS = {
    **dict.fromkeys(("us", "us_min", "us_max", "us_p10", "us_p90"), NUMBER),
    **dict.fromkeys(("runs", "warmups"), COUNT),
    **dict.fromkeys(("clock_mhz", "power_w"), OPTIONAL_NUMBER),
}
_OWN_KINDS = {
    "task": FieldKind(lambda value: isinstance(value, Task), "a task"),
    "times": FieldKind(lambda value: value is None or isinstance(value, TimeStats), "times or nothing"),
    **dict.fromkeys(("status", "kind", "message", "worker"), TEXT),
    "counters": COUNTERS,
    **dict.fromkeys(_UNBOUNDED, UNBOUNDED),
    **dict.fromkeys(("started", "took_s"), NUMBER),
}


def _check_names(value: object, names: Sequence[str]) -> dict[str, Any]:
    own = vars(value)
    return {name: own[name] for name in names}


def _encode_number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(float(value))
