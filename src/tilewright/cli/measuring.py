"""What `bench`, `sweep` and `tune` have in common: options, and the plan that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.named_kernels import kernels_named
from tilewright.cli.problems import read_problem
from tilewright.cli.settings import setting_option

if TYPE_CHECKING:
    from tilewright.bench.executor import Crew
    from tilewright.bench.plan import Plan
    from tilewright.bench.replay import ReplayDevice
    from tilewright.ops.kernel import Kernel

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PATH = click.Path(exists=True, path_type=Path)


def measuring_options(command: F) -> F:
    """The options that say where and how is measured."""
    for decorate in reversed(
        (
            click.option(
                "--device",
                "device_names",
                multiple=True,
                metavar="DEVICE",
                help="gpu:0, emulated:gfx942, replay:NAME; repeatable. Or TILEWRIGHT_DEVICE.",
            ),
            click.option(
                "--replay", type=PATH, metavar="RECORDS", help="Behind replay:NAME: a table of records, or a journal."
            ),
            setting_option("VALUES", "Values of a field: of an op's kernels, or changes of a set."),
            click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N kernels."),
            click.option("--cold", is_flag=True, help="Times with cold caches. On GPUs."),
            click.option(
                "--runs", type=click.IntRange(1), metavar="N", help="On GPUs: samples at least; 20 without it."
            ),
            click.option("--max-runs", type=click.IntRange(1), metavar="N", help="Samples at most; 1000 without it."),
            click.option(
                "--run-ms", type=click.FloatRange(0), metavar="MS", help="Milliseconds of samples at least; or 20."
            ),
            click.option(
                "--warmup-ms", type=click.FloatRange(0), metavar="MS", help="Milliseconds of warm-up at least; or 20."
            ),
            click.option(
                "--max-warmup-ms", type=click.FloatRange(0), metavar="MS", help="And at most, steady or not; or 1000."
            ),
            click.option(
                "--mode", type=click.Choice(["strict", "fast"]), help="Of emulated devices; or as they are set."
            ),
            click.option("--seed", type=click.IntRange(1), default=1, show_default=True, help="Of the inputs."),
            click.option("--jobs", type=click.IntRange(1), metavar="N", help="Compilers at once."),
            click.option(
                "--workers",
                type=click.IntRange(1),
                metavar="N",
                help="Processes for each device that is no GPU; 1 without it.",
            ),
            click.option(
                "--time-limit",
                type=click.FloatRange(min=0, min_open=True),
                metavar="S",
                help="Seconds that a kernel may take for a problem; it is killed then.",
            ),
            click.option(
                "--reference-limit",
                type=click.FloatRange(min=0, min_open=True),
                metavar="S",
                help="Seconds for the reference of a problem, which count beside; or 3600.",
            ),
            click.option(
                "--memory-limit",
                type=click.FloatRange(min=0, min_open=True),
                metavar="GIB",
                help="Address space of a worker process.",
            ),
        )
    ):
        command = decorate(command)
    return command


@dataclass(frozen=True)
class Measuring:
    """What the common options say. The fields are the names of the options."""

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

    def crew(self) -> Crew:
        from tilewright.bench.executor import Crew, Limits
        from tilewright.bench.measure import Settings

        limits: dict[str, Any] = {}
        if self.time_limit is not None:
            limits["seconds"] = self.time_limit
        if self.reference_limit is not None:
            limits["reference_s"] = self.reference_limit
        if self.memory_limit is not None:
            limits["memory_bytes"] = int(self.memory_limit * 2**30)
        settings = asdict(Settings(seed=self.seed, cold=self.cold, mode=self.mode, **self.timing()))
        return Crew(settings, Limits(**limits), None if self.replay is None else str(self.replay.resolve()))

    def timing(self) -> dict[str, Any]:
        """How much is timed on a GPU, where an option says so."""
        asked = {
            "least_runs": self.runs,
            "max_runs": self.max_runs,
            "least_ms": self.run_ms,
            "least_warmup_ms": self.warmup_ms,
            "max_warmup_ms": self.max_warmup_ms,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def seats(self, devices: Mapping[str, str]) -> list[tuple[str, str]]:
        """A device and its GPU for each worker process."""
        return [(name, arch) for name, arch in devices.items() for _ in range(self._processes(name))]

    def _processes(self, name: str) -> int:
        return 1 if name.startswith("gpu:") else self.workers or 1


def device_names(asked: Measuring) -> list[str]:
    """The devices that are meant. They must be of one kind: what is measured with one is not measured with another."""
    from tilewright.runtime.device import current_device

    names = list(dict.fromkeys(asked.device_names))
    if not names:
        current = current_device()
        if current is None:
            raise InvalidValueError(
                "say where to measure: --device gpu:0, --device emulated:gfx942, or TILEWRIGHT_DEVICE"
            )
        names = [current.name]
    kinds = sorted({name.partition(":")[0] for name in names})
    if len(kinds) > 1 or (kinds == ["replay"] and len(names) > 1):
        raise InvalidValueError(
            f"{', '.join(names)}: a sweep is on GPUs, on emulated devices or on one replayed device. Make one for each"
        )
    if kinds != ["replay"] and asked.replay is not None:
        raise InvalidValueError(f"--replay is for a device replay:NAME, not for {names[0]}")
    if kinds != ["emulated"] and asked.mode is not None:
        raise InvalidValueError(f"--mode is for emulated devices, not for {names[0]}")
    if kinds == ["emulated"] and asked.cold:
        raise InvalidValueError(f"--cold is about times, and {names[0]} has none: it counts")
    if kinds != ["gpu"] and asked.timing():
        raise InvalidValueError(f"--runs, --run-ms, --warmup-ms and their like are for GPUs: {names[0]} is not timed")
    return names


def plan_of(
    asked: Measuring,
    subjects: Sequence[str],
    texts: Sequence[str],
    file: Path | None,
    file_format: str | None,
    cluster: str | None = None,
) -> Plan:
    """What is to be measured, from the words of a command line. GPUs of a cluster are asked there, not here."""
    from tilewright.bench.plan import Plan
    from tilewright.bench.replay import PREFIX, read_replay
    from tilewright.bench.versions import versions_text

    names = device_names(asked)
    if names[0].startswith(PREFIX):
        if asked.replay is None:
            raise InvalidValueError(f"{names[0]} is a replayed device: say from which file (--replay FILE)")
        recording = read_replay(names[0], asked.replay)
        kernels, recorded = _recorded(recording, subjects, asked)
        problems = _problems(kernels, texts, file, file_format) if texts or file else recorded
        return Plan(problems, kernels, {names[0]: kernels[0].arch}, asked.crew().settings, versions_text(recording))
    _check_packages(cluster)
    devices, versions = _devices(names, cluster)
    kernels = _kernels(subjects, asked, list(dict.fromkeys(devices.values())))
    problems = _problems(kernels, texts, file, file_format)
    return Plan(problems, kernels, devices, asked.crew().settings, versions)


def _check_packages(cluster: str | None) -> None:
    """Workers verify what they measure. Those of another machine have packages of their own."""
    from tilewright.bench.cluster.session import LOCAL
    from tilewright.runtime.loaded import need_extras

    if cluster in (None, LOCAL):
        need_extras("measuring")


def _devices(names: Sequence[str], cluster: str | None) -> tuple[dict[str, str], str]:
    """Devices with their GPUs, and the versions that results on them depend on."""
    from tilewright.bench.cluster.session import LOCAL
    from tilewright.bench.versions import common_versions, versions_with
    from tilewright.runtime.device import Device

    if cluster is not None and cluster != LOCAL and names[0].startswith("gpu:"):
        from tilewright.bench.cluster.gpus import gpu_of_cluster

        told = gpu_of_cluster(cluster)
        return {names[0]: told.arch}, versions_with(told.versions)
    return {name: Device(name).arch.name for name in names}, common_versions(names)


def _kernels(subjects: Sequence[str], asked: Measuring, archs: Sequence[str]) -> list[Kernel]:
    if not subjects:
        raise InvalidValueError(
            "name kernels: kernel names, preselected sets, kernel-set files (.toml), or an op with -s"
        )
    named_archs = {subject.split("-")[1] for subject in subjects if subject.count("-") >= 3}
    found = [
        kernel
        for arch in archs
        for kernel in kernels_named(subjects, asked.settings, arch, asked.limit)
        if not named_archs or kernel.arch == arch
    ]
    return list(dict.fromkeys(found))


def _recorded(device: ReplayDevice, subjects: Sequence[str], asked: Measuring) -> tuple[list[Kernel], list[Any]]:
    """Kernels and problems of a recording; of the kernels those that are named, if some are."""
    from tilewright.bench.plan import problem_of
    from tilewright.ops import parse_kernel

    tasks = [record.task for record in device.records.values()]
    archs = sorted({task.arch for task in tasks})
    if len(archs) > 1:
        raise InvalidValueError(f"{device.source} has records of {', '.join(archs)}: make a table for each GPU")
    kernels = [parse_kernel(slug) for slug in dict.fromkeys(task.kernel for task in tasks)]
    if subjects:
        wanted = set(_kernels(subjects, asked, archs))
        kernels = [kernel for kernel in kernels if kernel in wanted]
    kernels = kernels[: asked.limit]
    if not kernels:
        raise InvalidValueError(f"{device.source} has none of these kernels: {', '.join(subjects)}")
    return kernels, [problem_of(*each) for each in dict.fromkeys((task.op, task.problem) for task in tasks)]


def _problems(kernels: Sequence[Kernel], texts: Sequence[str], file: Path | None, file_format: str | None) -> list[Any]:
    """The problems of texts, of which kernels say what they leave open, or of a file."""
    from tilewright.ops import op_named
    from tilewright.ops.problem_list import read_problems

    if bool(texts) == (file is not None):
        raise InvalidValueError("say what is computed: either --problem or --problems")
    if file is None:
        if file_format is not None:
            raise InvalidValueError("--format is that of a file: give --problems FILE")
        pairs = [(kernel, text) for text in texts for kernel in kernels]
        return list(dict.fromkeys(read_problem(op_named(kernel.op), kernel.config, text) for kernel, text in pairs))
    ops = sorted({kernel.op for kernel in kernels})
    if len(ops) > 1:
        raise InvalidValueError(f"{file} holds problems of one op, these kernels are of {', '.join(ops)}")
    return read_problems(ops[0], file, file_format)
