"""Measurements of other tools as records of our kernels and problems, in the formats that ops read."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import FileProblem, InvalidValueError, choose
from tilewright.bench.record import OK, Record, Task, Times
from tilewright.ops import all_ops
from tilewright.ops.measured import Measured, MeasurementReader
from tilewright.ops.problem_values import problem_json

# Of fewer figures there are no deciles: the extremes stand for them.
DECILES_FROM = 10
# Public sets that are measured, but not on kernels of ours, by their folder in ../shared/data.
NOT_OURS: Mapping[str, str] = {
    "hipblaslt_mi250x_fp16_sweep": "GEMMs of Tensile: its kernels are assembly with other parameters",
    "aiter_fmoe_profile": "fused mixture of experts, which is no op of Tilewright",
    "aiter_tuned_gemm_winners": "winners only, of classic CK, assembly or Triton, without the fields of a config",
    "aiter_configs_2026-08": "winners of aiter's tuner by the name of a compiled kernel, without fields of a config",
    "aiter_attention_backends": "backends by name, without the tile or any other field of a kernel",
    "miopen": "solvers of MIOpen, without the fields of a kernel; its perf-db has no times",
}


@dataclass(frozen=True)
class Imported:
    """What a file gave: records, the rows that are none of ours and why, and what else a user should know."""

    records: Sequence[Record]
    refused: Sequence[FileProblem] = ()
    notes: Sequence[str] = ()


def formats() -> dict[str, MeasurementReader]:
    """The formats that ops read, by name and in its order."""
    return dict(sorted(each for op in all_ops() for each in op.measurement_readers.items()))


def read_foreign(name: str, path: Path | str, **options: Any) -> Imported:
    """The records of a file in the format `name`. Options that the format does not have are errors."""
    known = formats()
    if name in NOT_OURS:
        raise InvalidValueError(f"{name} cannot be imported: {NOT_OURS[name]}. Formats: {', '.join(known)}.")
    reader = known[choose("format", name, known)]
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        choose(f"option of the format {name}", option, reader.options)
    found = reader.read(Path(path), **given)
    return Imported(_records(found.rows, reader.source, f"import:{name}"), found.refused, found.notes)


def _records(rows: Iterable[Measured], source: str, worker: str) -> list[Record]:
    """One record for each task, with the median of its times in microseconds and their spread."""
    repeats: dict[Task, list[float]] = {}
    for row in rows:
        repeats.setdefault(_task(row, source), []).append(row.us)
    return [Record(task=task, status=OK, kind="time", times=_times(us), worker=worker) for task, us in repeats.items()]


def _task(row: Measured, source: str) -> Task:
    return Task(
        op=row.kernel.op,
        arch=row.kernel.arch,
        kernel=row.kernel.slug,
        problem=problem_json(row.problem),
        device=f"imported:{source}",
        versions=row.versions,
    )


def _times(us: Sequence[float]) -> Times:
    low, high = min(us), max(us)
    if len(us) >= DECILES_FROM:
        deciles = statistics.quantiles(us, n=10, method="inclusive")
        low, high = deciles[0], deciles[-1]
    return Times(
        us=statistics.median(us),
        us_min=min(us),
        us_max=max(us),
        us_p10=low,
        us_p90=high,
        runs=len(us),
        warmups=0,
    )
