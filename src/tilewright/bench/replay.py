"""A device that returns earlier measurements: the whole path from sweep to selection without a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.digest import digest_value
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError
from tilewright.bench.gpu_model import SingleModelCheck, get_gpu_model
from tilewright.bench.record import Record, Task

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

PREFIX = "replay:"
NOT_RECORDED = "not_recorded"

# The fields that decide which record is returned: not the device and the versions, which are the recording's.
_Wanted = tuple[str, str, str, str, bool]


@dataclass(frozen=True, eq=False)
class ReplayDevice:
    """Recorded times under a device name. Recorded failures are returned, too."""

    name: str
    records: dict[_Wanted, Record] = field(repr=False)
    source: str = ""

    def __post_init__(self) -> None:
        if not self.name.startswith(PREFIX) or self.name == PREFIX:
            raise InvalidValueError(f"{self.name!r} is not a replayed device: its name must be {PREFIX}NAME")

    @property
    def kind(self) -> str:
        return "replay"

    @cached_property
    def digest(self) -> str:
        """The digest of all records: another recording gives other results."""
        answers = (
            [*wanted, record.status, record.message, None if record.times is None else record.times.us]
            for wanted, record in self.records.items()
        )
        return digest_value(sorted(answers, key=lambda answer: answer[:5]))

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The recorded GPU models, if the records have them."""
        models = {get_gpu_model(record.task.versions) for record in self.records.values() if record.ok}
        return tuple(sorted(model for model in models if model is not None))

    def get_result(self, task: Task) -> dict[str, Any]:
        """The result fields of a task's record."""
        found = self.records.get(_make_lookup_key(task))
        if found is None:
            return {"status": NOT_RECORDED, "message": f"{self.source or self.name} has no such measurement"}
        fields = ("status", "kind", "message", "times", "share", "error_ulps")
        return {name: getattr(found, name) for name in fields}


def make_replay_device(name: str, records: Iterable[Record], source: str = "") -> ReplayDevice:
    """A device from records. For one task a measurement wins over a failure, else the later record counts.

    Counters are rejected, as they must not be taken for times. So are times of two GPU models of one architecture,
    which are not comparable.
    """
    kept: dict[_Wanted, Record] = {}
    models = SingleModelCheck()
    for record in records:
        if record.kind == "counters":
            raise InvalidValueError(
                f"{source or name} has counters of {record.task.device}, but a replayed device returns times: "
                "leave them out (tilewright data query … WHERE kind = 'time')"
            )
        if record.ok:
            models.check(record.task)
        wanted = _make_lookup_key(record.task)
        other = kept.get(wanted)
        if other is None or (record.ok, record.started) >= (other.ok, other.started):
            kept[wanted] = record
    if not kept:
        raise InvalidValueError(f"{source or name} has no records: there is nothing to replay")
    return ReplayDevice(name if name.startswith(PREFIX) else PREFIX + name, kept, source)


def read_replay(name: str, path: Path) -> ReplayDevice:
    """A device from a Parquet file of records, or from a journal: its folder, or one of its files."""
    return make_replay_device(name, _read_records(path), str(path))


def open_device(name: str, replay: Path | None = None) -> Device | ReplayDevice:
    """Open a device by name; `replay` is the file behind a replayed one."""
    if name.startswith(PREFIX):
        if replay is None:
            raise InvalidValueError(f"{name} is a replayed device: pass its file (--replay FILE)")
        return read_replay(name, replay)
    from tilewright.runtime.device import Device  # noqa: PLC0415  (a replayed device needs none)

    return Device(name)


def _read_records(path: Path) -> Iterable[Record]:
    from tilewright.bench.journal import SUFFIX, read_journal  # noqa: PLC0415  (one of two)

    if path.is_dir() or path.suffix == SUFFIX:
        contents = read_journal(path)
        if contents.damaged:
            problems = [FileProblem(f"{each.file}:{each.line}", each.why) for each in contents.damaged]
            raise FileFormatError(path, problems)
        return contents.records
    from tilewright.bench.table import read_table  # noqa: PLC0415  (loads pyarrow)

    return read_table(path)


def _make_lookup_key(task: Task) -> _Wanted:
    return (task.op, task.arch, task.kernel, task.problem, task.cold)
