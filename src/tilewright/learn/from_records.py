"""Convert records of sweeps to a table of measurements: times, and kernels that failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.base.errors import InvalidValueError
from tilewright.bench.gpu_model import SingleModelCheck
from tilewright.bench.record import OK, Record
from tilewright.learn.measurements import Measurement, Measurements, make_table

# The status of a failure in measurements. Records of untried or unknown tasks prove nothing and get no row.
STATUSES: Mapping[str, str | None] = {
    OK: OK,
    "wrong": "wrong",
    "fault": "failed",
    "unsupported": "unsupported",
    "build_failed": "failed",
    "timeout": "timeout",
    "crashed": "failed",
    "out_of_memory": "failed",
    "quarantined": None,
    "not_recorded": None,
}
EMULATED = "emulated:"


def to_measurements(records: Iterable[Record], *, cold: bool | None = None) -> Measurements:
    """A table of the times and failures of records. `cold` selects those with cold caches, or with warm ones.

    Raises `InvalidValueError` for records of an emulated device, which have no time, for cold and warm times in one
    table, which does not distinguish them, and for times of two GPU models of one architecture.
    """
    rows: list[Measurement] = []
    kinds: set[bool] = set()
    models = SingleModelCheck()
    for record in records:
        if record.kind == "counters" or record.task.device.startswith(EMULATED):
            raise InvalidValueError(
                f"the record of {record.task.kernel} on {record.task.device} has counters and no time, so "
                "a model cannot learn from it"
            )
        status = STATUSES[record.status]
        if status is None or cold not in (None, record.task.cold):
            continue
        kinds.add(record.task.cold)
        models.check(record.task)
        rows.append(_make_row(record, status))
    if len(kinds) > 1:
        raise InvalidValueError("some times are with cold caches and some with warm ones: choose (cold=True or False)")
    return make_table(rows)


def _make_row(record: Record, status: str) -> Measurement:
    task, times = record.task, record.times
    return Measurement(
        op=task.op,
        arch=task.arch,
        kernel=task.kernel,
        problem=task.problem,
        us=None if times is None else times.us,
        status=status,
        source=f"{task.device} {task.versions}".rstrip(),
        runs=1 if times is None else times.runs,
        us_min=None if times is None else times.us_min,
        us_max=None if times is None else times.us_max,
    )
