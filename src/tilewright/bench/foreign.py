"""Import measurements of other tools as records of our kernels and problems, in the formats that ops can read."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import FileProblem, InvalidValueError, choose
from tilewright.bench.record import OK, Record, Task, TimeStats
from tilewright.ops import list_ops
from tilewright.ops.measurement_files import ImportedTime, MeasurementReader
from tilewright.ops.problem_values import dump_problem

# Fewer values do not have deciles: minimum and maximum are used instead.
DECILES_FROM = 10
# Public measurements of other kernels than ours, by their folder in ../shared/data.
NOT_OURS: Mapping[str, str] = {
    "hipblaslt_mi250x_fp16_sweep": "it holds Tensile GEMMs, whose kernels are assembly with other parameters",
    "aiter_fmoe_profile": "it holds fused mixture of experts, which is not an op of Tilewright",
    "aiter_tuned_gemm_winners": "it holds only winners of classic CK, assembly or Triton, without config fields",
    "aiter_configs_2026-08": "it holds winners of aiter's tuner by compiled kernel name, without config fields",
    "aiter_attention_backends": "it holds backends by name, without the tile or any other kernel field",
    "miopen": "it holds MIOpen solvers, without kernel fields; its perf-db has no times",
}


@dataclass(frozen=True)
class ImportResult:
    """The content of a file: records, the rejected rows with the reasons, and notes for the user."""

    records: Sequence[Record]
    refused: Sequence[FileProblem] = ()
    notes: Sequence[str] = ()


def list_formats() -> dict[str, MeasurementReader]:
    """The formats that ops can read, sorted by name."""
    return dict(sorted(each for op in list_ops() for each in op.measurement_readers.items()))


def read_foreign(name: str, path: Path | str, **options: Any) -> ImportResult:
    """The records of a file in the format `name`. Raises an error for options that the format does not have."""
    known = list_formats()
    if name in NOT_OURS:
        raise InvalidValueError(f"{name} cannot be imported: {NOT_OURS[name]}. Formats: {', '.join(known)}.")
    reader = known[choose("format", name, known)]
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        choose(f"option of the format {name}", option, reader.options)
    found = reader.read(Path(path), **given)
    return ImportResult(_make_records(found.rows, reader.source, f"import:{name}"), found.refused, found.notes)


def _make_records(rows: Iterable[ImportedTime], source: str, worker: str) -> list[Record]:
    """One record per task, with the median and spread of its times in microseconds."""
    repeats: dict[Task, list[float]] = {}
    for row in rows:
        repeats.setdefault(_make_task(row, source), []).append(row.us)
    return [
        Record(task=task, status=OK, kind="time", times=_compute_times(us), worker=worker)
        for task, us in repeats.items()
    ]


def _make_task(row: ImportedTime, source: str) -> Task:
    return Task(
        op=row.kernel.op,
        arch=row.kernel.arch,
        kernel=row.kernel.slug,
        problem=dump_problem(row.problem),
        device=f"imported:{source}",
        versions=row.versions,
    )


def _compute_times(us: Sequence[float]) -> TimeStats:
    low, high = min(us), max(us)
    if len(us) >= DECILES_FROM:
        deciles = statistics.quantiles(us, n=10, method="inclusive")
        low, high = deciles[0], deciles[-1]
    return TimeStats(
        us=statistics.median(us),
        us_min=min(us),
        us_max=max(us),
        us_p10=low,
        us_p90=high,
        runs=len(us),
        warmups=0,
    )
