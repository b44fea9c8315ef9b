"""Time all launches of a problem together, on a GPU with events."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError
from tilewright.base.user_progress import report_progress
from tilewright.bench.record import TimeStats
from tilewright.bench.timing import TimingSettings, compute_time_stats, time_calls
from tilewright.dispatch.plan import get_execution
from tilewright.runtime.device import read_device
from tilewright.runtime.hip_library import require_emulator_extra

if TYPE_CHECKING:
    from tilewright.registry.registry import Registry
    from tilewright.runtime.device import Device
    from tilewright.select.selection import KernelArg

_USUAL_TIMING = TimingSettings()


@report_progress
def time_plan(
    registry: Registry,
    problem: Any,
    device: Device | str,
    *,
    kernel: KernelArg = None,
    settings: TimingSettings = _USUAL_TIMING,
) -> TimeStats:
    """Time the plan of a problem as a whole: all of its launches, one after another, in one stream of a GPU.

    The plan is that of `Registry.run` for device tensors, with random inputs. Its results are not checked: verify them
    first (`tilewright verify --together`). Caches are hot, since a stage reads what the one before wrote.
    """
    require_emulator_extra("measuring")
    where = read_device(device)
    if where.kind == "emulated":
        raise InvalidValueError(f"{where.name} measures counters, not times: a plan is timed on a GPU")
    if settings.cold:
        raise InvalidValueError("cold applies to single kernels: a stage of a plan reads what the one before wrote")
    from tilewright.arch.number_formats import to_numpy_dtype  # noqa: PLC0415  (loads NumPy)
    from tilewright.bench.gpu_time import EventClock, allocate_tensors  # noqa: PLC0415  (loads NumPy)
    from tilewright.dispatch.poisoned_tensor import PoisonedTensor  # noqa: PLC0415  (loads NumPy)

    plan, call = registry.bind(problem, where, kernel=kernel)
    first = plan.stages[0]
    execution = get_execution(first.kernel.op)
    inputs = dict(execution.inputs(problem, settings.seed, where.arch))
    for preparation in first.preparations:
        inputs[preparation.tensor] = preparation.apply(inputs[preparation.tensor])
    tensors = [
        PoisonedTensor(each, to_numpy_dtype(each.dtype, where.arch), inputs.get(each.name))
        for each in execution.tensors(problem)
    ]
    with allocate_tensors(where, tensors) as addresses:
        stream = where.stream()
        timing = time_calls(EventClock(where, stream), functools.partial(call, addresses, stream), settings)
        stream.synchronize()
    return compute_time_stats(timing.samples, warmups=timing.warmups)
