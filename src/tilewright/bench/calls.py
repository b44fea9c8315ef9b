"""The public functions that measure, each one call: one kernel, a resumable sweep, and the fastest kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError
from tilewright.base.short_text import format_count
from tilewright.base.user_progress import report_progress
from tilewright.bench.arguments import Problems, make_plan, read_argument, resolve_for_gpus
from tilewright.bench.budget import run_on_budget
from tilewright.bench.executor import Limits, WorkerConfig
from tilewright.bench.local import LocalExecutor
from tilewright.bench.measure import measure_task
from tilewright.bench.plan import SweepPlan, TaskGrid
from tilewright.bench.quarantine import FAILURES, Quarantine
from tilewright.bench.record import Record
from tilewright.bench.results import SweepResult, TuneResult
from tilewright.bench.sources import open_sources
from tilewright.bench.sweep import SweepOptions, SweepSummary, run_plan
from tilewright.bench.timing import TimingSettings
from tilewright.bench.tune import group_times
from tilewright.bench.versions import format_versions
from tilewright.ops.problem_values import dump_problem
from tilewright.registry.members import Kernels
from tilewright.registry.registry import Registry
from tilewright.runtime.device import read_device
from tilewright.runtime.hip_library import require_emulator_extra

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

_USUAL_TIMING = TimingSettings()
_USUAL_LIMITS = Limits()


@report_progress
def measure(kernel: Kernels, problem: Any, device: Device | str, *, settings: TimingSettings = _USUAL_TIMING) -> Record:
    """Measure one kernel on one problem in this process: build it if necessary, verify it, then time it.

    The record has the time on a GPU, or the exact counters of an emulated device; if the kernel cannot be measured, it
    has the reason. The problem may be a mapping of those fields that the kernel leaves open. For several kernels or
    problems, or kernels that may crash, use `sweep`.
    """
    require_emulator_extra("measuring")
    where = read_device(device)
    chosen = resolve_for_gpus(kernel, [where.arch.name])
    problems = read_argument(problem, chosen)
    if len(chosen) != 1 or len(problems) != 1:
        size = f"{format_count(len(chosen), 'kernel')} and {format_count(len(problems), 'problem')}"
        raise InvalidValueError(f"measure takes one kernel and one problem, got {size}: use sweep for several")
    built = Registry(chosen).build()
    artifact = built.artifact(chosen[0])
    grid = TaskGrid(chosen, where.name, (dump_problem(problems[0]),), settings.cold, format_versions(where.name))
    return measure_task(next(grid.iterate_tasks()), where, chosen[0], artifact, problems[0], settings)


@report_progress
def sweep(
    kernels: Kernels | None,
    problems: Problems,
    device: Device | str | Sequence[Device | str],
    *,
    out: Path | str | None = None,
    budget: float | None = None,
    settings: TimingSettings = _USUAL_TIMING,
    limits: Limits = _USUAL_LIMITS,
    jobs: int | None = None,
    workers: int = 1,
    retry_failed: bool = False,
    quarantine: int = FAILURES,
    replay: Path | str | None = None,
) -> SweepResult:
    """Measure every kernel on every problem of its kind, on one or several devices, and keep each result at once.

    Kernels are anything that `build` takes; they are built while others are measured. Problems are problems, mappings
    of the fields that the kernels leave open, or the path of a list. `out` is the folder of the journal: the same call
    with the same folder resumes the sweep. Without it the results are in a temporary folder, and live as long as the
    returned value.

    With `budget`, a number of measurements or a share such as 0.1, a search chooses what to measure: first the kernels
    with the best estimates, then those that may still be faster. `workers` is the number of processes of an emulated or
    replayed device. `replay` has the records behind a device named replay:NAME.
    """
    planned = make_plan(kernels, problems, device, settings, replay)
    _check_plan(planned.plan)
    temporary = None if out is not None else tempfile.TemporaryDirectory(prefix="tilewright-sweep-")
    folder = Path(temporary.name if temporary is not None else out or "")
    how = SweepOptions(retry_failed=retry_failed, quarantine=quarantine)
    config = WorkerConfig(asdict(settings), limits, planned.replay)

    def run_part(part: SweepPlan) -> SweepSummary:
        avoided = Quarantine(quarantine)
        slots = [each for each in planned.plan.devices.items() for _ in range(_count_processes(each[0], workers))]
        executor = LocalExecutor(slots, config, jobs=jobs, refuse=avoided.reject_task)
        return run_plan(part, folder, executor, how, quarantine=avoided)

    summary = run_part(planned.plan) if budget is None else run_on_budget(planned.plan, folder, budget, run_part)
    return SweepResult(folder, planned.plan, summary, open_sources(folder), temporary)


def _check_plan(plan: SweepPlan) -> None:
    if not plan.count:
        raise InvalidValueError(
            "no problem matches these kernels: they differ in type, layout or another field that the kernels fix"
        )
    if not any(name.startswith("replay:") for name in plan.devices):
        require_emulator_extra("measuring")


def _count_processes(device: str, workers: int) -> int:
    if workers < 1:
        raise InvalidValueError(f"workers is {workers}, must be at least 1")
    return 1 if device.startswith("gpu:") else workers


@report_progress
def tune(
    kernels: Kernels | None,
    problems: Problems,
    device: Device | str | Sequence[Device | str],
    *,
    budget: float | None = None,
    out: Path | str | None = None,
    settings: TimingSettings = _USUAL_TIMING,
    jobs: int | None = None,
    replay: Path | str | None = None,
) -> TuneResult:
    """Find the fastest kernel of each problem: a sweep on a GPU or a replayed device, and the winners of its times.

    With `budget`, a number of measurements or a share such as 0.1, a search chooses what to measure, see `sweep`. The
    arguments are those of `sweep`. An emulated device has counters, not times, and is rejected.
    """
    names = [device] if isinstance(device, str) or not isinstance(device, Sequence) else list(device)
    for name in names:
        check_device_has_times(str(name))
    found = sweep(kernels, problems, device, out=out, budget=budget, settings=settings, jobs=jobs, replay=replay)
    return TuneResult(tuple(group_times(found, cold=settings.cold)), found)


def check_device_has_times(name: str) -> None:
    """Raise an error for a device without times, before anything is built: no kernel could win there."""
    if name.partition(":")[0] == "emulated":
        raise InvalidValueError(
            f"tune needs times, and {name} has counters only. Measure on a GPU (gpu:0), or replay its times "
            "(replay:NAME with its records). To record counters, use sweep"
        )
