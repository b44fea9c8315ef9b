"""Results by columns, the input of a report: a few dozen bytes per record instead of a kilobyte."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.bench.record import OK, STATUSES, Record, Task

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]

TIME, COUNTERS = "time", "counters"
GPU = "gpu"
# A device with this prefix runs kernels on the CPU: it has counters and no times.
EMULATED = "emulated"


@dataclass(frozen=True, order=True)
class ResultContext:
    """The properties that comparable results share: op, GPU, device, state of caches, software."""

    op: str
    arch: str
    device: str  # gpu, emulated:gfx942, replay:NAME
    cold: bool
    versions: str

    @staticmethod
    def from_task(task: Task) -> ResultContext:
        kind, _, rest = task.device.partition(":")
        return ResultContext(task.op, task.arch, kind if kind == "gpu" else f"{kind}:{rest}", task.cold, task.versions)

    @property
    def recorded(self) -> bool:
        """Whether results were replayed or imported: nothing was run or verified for them here."""
        return self.device.partition(":")[0] not in (GPU, EMULATED)

    @property
    def kind(self) -> str:
        """The measurement of such a device: times or counters."""
        return COUNTERS if self.device.partition(":")[0] == EMULATED else TIME


@dataclass(frozen=True, eq=False)
class ResultGroup:
    """The results of one `ResultContext`, sorted by problem and kernel. Missing values are nan."""

    where: ResultContext
    kernels: tuple[str, ...]
    problems: tuple[str, ...]
    messages: tuple[str, ...]
    kernel: Codes
    problem: Codes
    status: Codes  # index in STATUSES
    message: Codes
    us: Floats
    us_p10: Floats
    us_p90: Floats
    share: Floats
    counters: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.kernel)

    @property
    def ok(self) -> Flags:
        return np.asarray(self.status == STATUSES.index(OK))

    def count(self, *statuses: str) -> int:
        """The number of results that have one of these statuses."""
        return int(np.isin(self.status, [STATUSES.index(each) for each in statuses]).sum())


def group_records(records: Iterable[Record]) -> tuple[ResultGroup, ...]:
    """Records by group, in the order of their names. Two records with one key are an error: merge them first."""
    found: dict[ResultContext, _ColumnBuilder] = {}
    places: dict[tuple[str, str, str, bool, str], _ColumnBuilder] = {}
    for record in records:
        task = record.task
        place = (task.op, task.arch, task.device, task.cold, task.versions)
        columns = places.get(place)
        if columns is None:
            where = ResultContext.from_task(task)
            columns = places[place] = found.setdefault(where, _ColumnBuilder(where))
        columns.add(record)
    return tuple(found[where].build_group() for where in sorted(found))


class _TextTable:
    """Texts by number, in the order of their arrival."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def encode(self, text: str) -> int:
        return self.number.setdefault(text, len(self.number))

    def sort_texts(self) -> tuple[tuple[str, ...], Codes]:
        """The sorted texts, and the new index of each number."""
        order = sorted(self.number)
        place = np.empty(len(order), np.int32)
        place[[self.number[text] for text in order]] = np.arange(len(order), dtype=np.int32)
        return tuple(order), place


_NUMBERS = ("us", "us_p10", "us_p90", "share")
_NONE = -1  # a missing counter


class _ColumnBuilder:
    def __init__(self, where: ResultContext) -> None:
        self.where = where
        self.texts = {name: _TextTable() for name in ("kernel", "problem", "message")}
        self.codes = {name: array("i") for name in ("kernel", "problem", "message", "status")}
        self.numbers = {name: array("d") for name in _NUMBERS}
        self.counters: dict[str, array[int]] = {}

    def add(self, record: Record) -> None:
        if record.kind not in (self.where.kind, "none"):
            raise InvalidValueError(
                f"a result of {record.task.kernel} on {record.task.device} holds {record.kind}, but such a device "
                f"measures {self.where.kind}. Counters are not times: correct the device or the kind of the record."
            )
        task, times = record.task, record.times
        self.codes["kernel"].append(self.texts["kernel"].encode(task.kernel))
        self.codes["problem"].append(self.texts["problem"].encode(task.problem))
        self.codes["message"].append(self.texts["message"].encode(record.message))
        self.codes["status"].append(STATUSES.index(record.status))
        numbers = (None, None, None) if times is None else (times.us, times.us_p10, times.us_p90)
        for name, value in zip(_NUMBERS, (*numbers, record.share), strict=True):
            self.numbers[name].append(np.nan if value is None else value)
        for name in record.counters:
            if name not in self.counters:
                self.counters[name] = array("q", [_NONE]) * (len(self.codes["status"]) - 1)
        for name, column in self.counters.items():
            column.append(record.counters.get(name, _NONE))

    def build_group(self) -> ResultGroup:
        columns: dict[str, Any] = {}
        texts: dict[str, tuple[str, ...]] = {}
        for name, words in self.texts.items():
            texts[name], place = words.sort_texts()
            columns[name] = place[np.frombuffer(self.codes[name], np.int32)]
        columns["status"] = np.frombuffer(self.codes["status"], np.int32)
        columns |= {name: np.frombuffer(values, np.float64) for name, values in self.numbers.items()}
        order = np.lexsort((columns["kernel"], columns["problem"]))
        columns = {name: column[order] for name, column in columns.items()}
        self._check_single(columns, texts)
        counters = {}
        for name in sorted(self.counters):
            values = np.frombuffer(self.counters[name], np.int64)[order]
            counters[name] = np.where(values == _NONE, np.nan, values.astype(np.float64))
        return ResultGroup(
            where=self.where,
            kernels=texts["kernel"],
            problems=texts["problem"],
            messages=texts["message"],
            counters=counters,
            **columns,
        )

    def _check_single(self, columns: Mapping[str, Any], texts: Mapping[str, tuple[str, ...]]) -> None:
        kernel, problem = columns["kernel"], columns["problem"]
        twice = np.flatnonzero((np.diff(kernel) == 0) & (np.diff(problem) == 0))
        if len(twice):
            which = f"{texts['kernel'][kernel[twice[0]]]} for {texts['problem'][problem[twice[0]]]}"
            raise InvalidValueError(
                f"there are {len(twice):,} more records than results, the first for {which}: "
                f"merge them first (`tilewright data merge`, or tilewright.bench.journal.merge_records)"
            )
