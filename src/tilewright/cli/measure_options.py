"""Options that `bench`, `sweep` and `tune` share, and the plan that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import Option, make_device_option, make_jobs_option
from tilewright.cli.named_kernels import find_named_kernels, resolve_subjects
from tilewright.cli.problems import read_kernel_problems, read_listed_problems
from tilewright.cli.settings import make_setting_option

if TYPE_CHECKING:
    from tilewright.bench.executor import WorkerConfig
    from tilewright.bench.plan import SweepPlan
    from tilewright.bench.replay import ReplayDevice
    from tilewright.ops.kernel import Kernel

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(exists=True, path_type=Path)


def add_measure_options(command: F, *, device_default: bool = True) -> F:
    """Add the options that set where and how kernels are measured."""
    for decorate in reversed(
        (
            make_device_option(
                "device_names",
                "Measure on gpu:0, emulated:gfx942 or replay:NAME. May be repeated.",
                multiple=True,
                default=device_default,
            ),
            click.option(
                "--replay",
                type=PATH,
                metavar="RECORDS",
                help="Records that replay:NAME answers from (a table or a journal).",
            ),
            make_setting_option("VALUES", "Set the values of a field, for an op or to change a set. May be repeated."),
            click.option("--limit", type=click.IntRange(1), metavar="N", help="Use at most N kernels."),
            click.option("--cold", is_flag=True, help="Measure with cold caches (GPUs only)."),
            click.option(
                "--runs",
                cls=Option,
                type=click.IntRange(1),
                metavar="N",
                show_default="20",
                help="Minimum number of samples (GPUs only).",
            ),
            click.option(
                "--max-runs",
                cls=Option,
                type=click.IntRange(1),
                metavar="N",
                show_default="1000",
                help="Maximum number of samples (GPUs only).",
            ),
            click.option(
                "--run-ms",
                cls=Option,
                type=click.FloatRange(0),
                metavar="MS",
                show_default="20",
                help="Take samples for at least this many milliseconds (GPUs only).",
            ),
            click.option(
                "--warmup-ms",
                cls=Option,
                type=click.FloatRange(0),
                metavar="MS",
                show_default="20",
                help="Warm up for at least this many milliseconds (GPUs only).",
            ),
            click.option(
                "--max-warmup-ms",
                cls=Option,
                type=click.FloatRange(0),
                metavar="MS",
                show_default="1000",
                help="Stop warming up after this many milliseconds even if times are not steady (GPUs only).",
            ),
            click.option(
                "--mode",
                cls=Option,
                type=click.Choice(["strict", "fast"]),
                show_default="the device's setting",
                help="Emulator mode (emulated devices only).",
            ),
            click.option(
                "--seed", type=click.IntRange(1), default=1, show_default=True, help="Seed for random inputs."
            ),
            make_jobs_option("Run N compilers in parallel."),
            click.option(
                "--workers",
                cls=Option,
                type=click.IntRange(1),
                metavar="N",
                show_default="1",
                help="Number of processes per emulated or replayed device.",
            ),
            click.option(
                "--time-limit",
                cls=Option,
                type=click.FloatRange(min=0, min_open=True),
                metavar="S",
                show_default="120",
                help="Kill a kernel that takes longer than this many seconds for a problem.",
            ),
            click.option(
                "--reference-limit",
                cls=Option,
                type=click.FloatRange(min=0, min_open=True),
                metavar="S",
                show_default="3600",
                help="Time limit in seconds for computing a problem's reference; not counted against --time-limit.",
            ),
            click.option(
                "--memory-limit",
                cls=Option,
                type=click.FloatRange(min=0, min_open=True),
                metavar="GIB",
                show_default="no limit",
                help="Maximum address space of a worker process.",
            ),
        )
    ):
        command = decorate(command)
    return command


@dataclass(frozen=True)
class MeasureArguments:
    """The values of the common options. The fields have the names of the options."""

    device_names: tuple[str, ...]
    replay: Path | None
    settings: tuple[str, ...]
    limit: int | None
    cold: bool
    runs: int | None
    max_runs: int | None
    run_ms: float | None
    warmup_ms: float | None
    max_warmup_ms: float | None
    mode: str | None
    seed: int
    jobs: int | None
    workers: int | None
    time_limit: float | None
    reference_limit: float | None
    memory_limit: float | None

    def make_worker_config(self) -> WorkerConfig:
        from tilewright.bench.executor import Limits, WorkerConfig
        from tilewright.bench.measure import TimingSettings

        limits: dict[str, Any] = {}
        if self.time_limit is not None:
            limits["seconds"] = self.time_limit
        if self.reference_limit is not None:
            limits["reference_s"] = self.reference_limit
        if self.memory_limit is not None:
            limits["memory_bytes"] = int(self.memory_limit * 2**30)
        settings = asdict(TimingSettings(seed=self.seed, cold=self.cold, mode=self.mode, **self.get_timing()))
        return WorkerConfig(settings, Limits(**limits), None if self.replay is None else str(self.replay.resolve()))

    def get_timing(self) -> dict[str, Any]:
        """The timing settings that options set."""
        asked = {
            "least_runs": self.runs,
            "max_runs": self.max_runs,
            "least_ms": self.run_ms,
            "least_warmup_ms": self.warmup_ms,
            "max_warmup_ms": self.max_warmup_ms,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def list_slots(self, devices: Mapping[str, str]) -> list[tuple[str, str]]:
        """The device and its GPU for each worker process."""
        return [(name, arch) for name, arch in devices.items() for _ in range(self._count_processes(name))]

    def _count_processes(self, name: str) -> int:
        return 1 if name.startswith("gpu:") else self.workers or 1


def resolve_device_names(asked: MeasureArguments) -> list[str]:
    """The devices to measure on. They must be of one kind: results of different kinds are not comparable."""
    from tilewright.runtime.device import current_device

    names = list(dict.fromkeys(asked.device_names))
    if not names:
        current = current_device()
        if current is None:
            raise InvalidValueError(
                "no device is given: use --device gpu:0, --device emulated:gfx942 or TILEWRIGHT_DEVICE"
            )
        names = [current.name]
    kinds = sorted({name.partition(":")[0] for name in names})
    if len(kinds) > 1 or (kinds == ["replay"] and len(names) > 1):
        raise InvalidValueError(
            f"{', '.join(names)} cannot be measured together: use GPUs, emulated devices or one replayed device"
        )
    if kinds != ["replay"] and asked.replay is not None:
        raise InvalidValueError(f"--replay applies to replayed devices only (replay:NAME), not to {names[0]}")
    if kinds != ["emulated"] and asked.mode is not None:
        raise InvalidValueError(f"--mode applies to emulated devices only, not to {names[0]}")
    if kinds == ["emulated"] and asked.cold:
        raise InvalidValueError(f"--cold applies to times only, and {names[0]} has counters instead of times")
    if kinds != ["gpu"] and asked.get_timing():
        raise InvalidValueError(f"--runs, --run-ms, --warmup-ms and the like need a GPU: {names[0]} is not timed")
    return names


def make_plan(
    asked: MeasureArguments,
    subjects: Sequence[str],
    texts: Sequence[str],
    file: Path | None,
    file_format: str | None,
    cluster: str | None = None,
) -> SweepPlan:
    """The tasks to measure, from the arguments of a command. GPUs of a cluster are queried there, not here."""
    from tilewright.bench.plan import SweepPlan
    from tilewright.bench.replay import PREFIX, read_replay
    from tilewright.bench.versions import format_versions

    names = resolve_device_names(asked)
    if names[0].startswith(PREFIX):
        if asked.replay is None:
            raise InvalidValueError(f"{names[0]} is a replayed device and needs records: use --replay FILE")
        recording = read_replay(names[0], asked.replay)
        kernels, recorded = _find_recorded(recording, subjects, asked)
        problems = _read_problems(kernels, texts, file, file_format) if texts or file else recorded
        return SweepPlan(
            problems,
            kernels,
            {names[0]: kernels[0].arch},
            asked.make_worker_config().settings,
            format_versions(recording),
        )
    _check_packages(cluster)
    devices, versions = _find_devices(names, cluster)
    kernels = _find_kernels(subjects, asked, list(dict.fromkeys(devices.values())))
    problems = _read_problems(kernels, texts, file, file_format)
    return SweepPlan(problems, kernels, devices, asked.make_worker_config().settings, versions)


def _check_packages(cluster: str | None) -> None:
    """Check the packages that workers verify results with; those of other machines have their own."""
    from tilewright.bench.cluster.session import LOCAL
    from tilewright.runtime.hip_library import require_emulator_extra

    if cluster in (None, LOCAL):
        require_emulator_extra("measuring")


def _find_devices(names: Sequence[str], cluster: str | None) -> tuple[dict[str, str], str]:
    """Devices with their GPUs, and the software versions that results depend on."""
    from tilewright.bench.cluster.session import LOCAL
    from tilewright.bench.versions import format_gpu_versions, merge_versions
    from tilewright.runtime.device import Device

    if cluster is not None and cluster != LOCAL and names[0].startswith("gpu:"):
        from tilewright.bench.cluster.session import probe_cluster_gpu

        gpu = probe_cluster_gpu(cluster)
        return {names[0]: gpu.arch}, format_gpu_versions(gpu.versions)
    return {name: Device(name).arch.name for name in names}, merge_versions(names)


def _find_kernels(subjects: Sequence[str], asked: MeasureArguments, archs: Sequence[str]) -> list[Kernel]:
    if not subjects:
        raise InvalidValueError(
            "no kernels are given: use kernel names or digests, preselected sets, kernel-set files "
            "(.toml, .json), or an op with -s"
        )
    named = resolve_subjects(subjects)
    found: dict[Kernel, None] = {}
    for arch in archs:
        # A kernel for one of several GPUs is measured there only.
        own = [
            each for each in named if each.kernel is None or each.kernel.arch == arch or each.kernel.arch not in archs
        ]
        if own:
            found.update(dict.fromkeys(find_named_kernels(own, asked.settings, arch, asked.limit)))
    return list(found)


def _find_recorded(
    device: ReplayDevice, subjects: Sequence[str], asked: MeasureArguments
) -> tuple[list[Kernel], list[Any]]:
    """Kernels and problems of a recording; only the named kernels if there are names."""
    from tilewright.bench.plan import parse_problem
    from tilewright.ops import parse_kernel

    tasks = [record.task for record in device.records.values()]
    archs = sorted({task.arch for task in tasks})
    if len(archs) > 1:
        raise InvalidValueError(f"{device.source} has records of {', '.join(archs)}: use a table per GPU")
    kernels = [parse_kernel(slug) for slug in dict.fromkeys(task.kernel for task in tasks)]
    if subjects:
        wanted = set(_find_kernels(subjects, asked, archs))
        kernels = [kernel for kernel in kernels if kernel in wanted]
    kernels = kernels[: asked.limit]
    if not kernels:
        raise InvalidValueError(f"{device.source} has none of these kernels: {', '.join(subjects)}")
    return kernels, [parse_problem(*each) for each in dict.fromkeys((task.op, task.problem) for task in tasks)]


def _read_problems(
    kernels: Sequence[Kernel], texts: Sequence[str], file: Path | None, file_format: str | None
) -> list[Any]:
    """The problems of texts or of a file, completed from the kernels."""
    from tilewright.ops import find_op

    if bool(texts) == (file is not None):
        raise InvalidValueError("no problem is given, or in two ways: use either --problem or --problems")
    if file is None:
        if file_format is not None:
            raise InvalidValueError("--format applies to files only: use it with --problems FILE")
        return read_kernel_problems(kernels, texts)
    ops = sorted({kernel.op for kernel in kernels})
    if len(ops) > 1:
        raise InvalidValueError(f"{file} holds problems of one op, but the kernels are of {', '.join(ops)}")
    return read_listed_problems(find_op(ops[0]), kernels, file, file_format)
