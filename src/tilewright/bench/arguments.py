"""The arguments of the public functions that measure, as values: kernels, problems and devices make a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError
from tilewright.bench.plan import SweepPlan, parse_problem
from tilewright.bench.replay import PREFIX, ReplayDevice, read_replay
from tilewright.bench.timing import TimingSettings
from tilewright.bench.versions import format_versions, merge_versions
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_list import complete_problem, list_fixed_values, read_problems
from tilewright.registry.members import Kernels, resolve_kernels
from tilewright.runtime.device import read_device

if TYPE_CHECKING:
    pass

# Problems as arguments: problems, mappings of their fields, or a file with a list. Kernels give the missing fields.
Problems = Any
Devices = "Device | str | Sequence[Device | str]"


@dataclass(frozen=True)
class PlannedSweep:
    """A plan, and the file behind a replayed device."""

    plan: SweepPlan
    replay: str | None = None


def make_plan(
    kernels: Kernels | None,
    problems: Problems,
    device: Any,
    settings: TimingSettings,
    replay: Path | str | None = None,
) -> PlannedSweep:
    """The plan of a sweep. Kernels without a GPU are those for the GPUs of the devices.

    A replayed device without kernels or problems replays all that it has.
    """
    names = [device] if isinstance(device, str) or not isinstance(device, Iterable) else list(device)
    replayed = [name for name in names if isinstance(name, str) and name.startswith(PREFIX)]
    if replayed:
        if len(names) > 1 or replay is None:
            raise InvalidValueError(f"{replayed[0]} is a replayed device: pass it alone, with replay=, its records")
        return _make_replay_plan(kernels, problems, read_replay(replayed[0], Path(replay)), settings)
    if replay is not None:
        raise InvalidValueError(f"replay= is for a device whose name starts with {PREFIX}, not for {device!r}")
    if kernels is None or problems is None:
        raise InvalidValueError("only a replayed device knows kernels and problems: pass both")
    found = [read_device(name) for name in names]
    kinds = sorted({each.kind for each in found})
    if len(kinds) > 1:
        raise InvalidValueError(
            f"{', '.join(each.name for each in found)} cannot be measured together: use GPUs or emulated devices"
        )
    devices = {each.name: each.arch.name for each in found}
    chosen = resolve_for_gpus(kernels, list(dict.fromkeys(devices.values())))
    versions = merge_versions(list(devices))
    return PlannedSweep(SweepPlan(read_argument(problems, chosen), chosen, devices, asdict(settings), versions))


def resolve_for_gpus(kernels: Kernels, gpus: Sequence[str]) -> tuple[Kernel, ...]:
    """The kernels for these GPUs. A kernel for another GPU is an error."""
    if isinstance(kernels, Kernel | str) or not isinstance(kernels, Iterable):
        return resolve_kernels(kernels, list(gpus))
    return resolve_kernels(list(kernels), list(gpus))


def _make_replay_plan(
    kernels: Kernels | None, problems: Problems, device: ReplayDevice, settings: TimingSettings
) -> PlannedSweep:
    tasks = [record.task for record in device.records.values()]
    gpus = sorted({task.arch for task in tasks})
    if len(gpus) > 1:
        raise InvalidValueError(f"{device.source} has records of {', '.join(gpus)}: use a table for each GPU")
    recorded = [parse_kernel(slug) for slug in dict.fromkeys(task.kernel for task in tasks)]
    wanted = None if kernels is None else set(resolve_for_gpus(kernels, gpus))
    chosen = [kernel for kernel in recorded if wanted is None or kernel in wanted]
    if not chosen:
        raise InvalidValueError(f"{device.source} has none of these kernels")
    texts = dict.fromkeys((task.op, task.problem) for task in tasks)
    listed = [parse_problem(op, text) for op, text in texts] if problems is None else read_argument(problems, chosen)
    plan = SweepPlan(listed, chosen, {device.name: gpus[0]}, asdict(settings), format_versions(device))
    return PlannedSweep(plan, str(Path(device.source).resolve()))


def read_argument(problems: Problems, kernels: Sequence[Kernel]) -> list[Any]:
    """The problems of an argument, each once: one problem or many, or the file of a list."""
    if isinstance(problems, str | os.PathLike):
        op, fixed = _list_fixed(kernels, f"{problems} holds problems of one op")
        return read_problems(op, Path(problems), None, fixed)
    single = isinstance(problems, Mapping) or not isinstance(problems, Iterable)
    found: dict[Any, None] = {}
    for each in [problems] if single else problems:
        for problem in _complete(each, kernels):
            found[problem] = None
    return list(found)


def _complete(problem: Any, kernels: Sequence[Kernel]) -> list[Any]:
    types = tuple(find_op(name).problem_type for name in dict.fromkeys(kernel.op for kernel in kernels))
    if isinstance(problem, types):
        return [problem]
    if not isinstance(problem, Mapping):
        ops = " or ".join(dict.fromkeys(kernel.op for kernel in kernels))
        raise InvalidValueError(
            f"{problem!r} is not a problem of {ops}. Pass a Problem, a mapping of its fields, or the path of a list"
        )
    op, fixed = _list_fixed(kernels, "a mapping is a problem of one op")
    return complete_problem(find_op(op), problem, fixed)


def _list_fixed(kernels: Sequence[Kernel], what: str) -> tuple[str, list[dict[str, Any]]]:
    """The op of the kernels, and the values that they fix for problems, each combination once."""
    ops = sorted({kernel.op for kernel in kernels})
    if len(ops) > 1:
        raise InvalidValueError(f"{what}, but the kernels are of {', '.join(ops)}")
    op = find_op(ops[0])
    values = (list_fixed_values(op, kernel.config) for kernel in kernels)
    return op.name, list({tuple(each.values()): each for each in values}.values())
