"""Measure one kernel on one problem on one device: first verify it, then time it. The unit of every sweep.

docs/measuring.md is the contract of this module.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import DeviceError, DeviceMemoryError, InvalidValueError, UnsupportedError
from tilewright.bench.record import OK, Record, Task, format_message
from tilewright.bench.replay import ReplayDevice
from tilewright.bench.timing import TimingSettings

if TYPE_CHECKING:
    from tilewright.building.store.artifact import Artifact
    from tilewright.dispatch.reference_cache import ReferenceCache
    from tilewright.dispatch.verify import Check
    from tilewright.emulator.launch import Counters
    from tilewright.ops.kernel import Kernel
    from tilewright.runtime.device import Device

__all__ = ["TimingSettings", "collect_counts", "get_worker_name", "measure_task"]

OUT_OF_MEMORY = "out_of_memory"


def measure_task(
    task: Task,
    device: Device | ReplayDevice,
    kernel: Kernel | None,
    artifact: Artifact | None,
    problem: Any,
    settings: TimingSettings,
    references: ReferenceCache | None = None,
) -> Record:
    """Measure a task and return its record. Whatever goes wrong with the kernel is a status, never an exception.

    The kernel runs on poisoned outputs, and every element is compared with the reference. Only a correct kernel is
    measured: its time on a GPU, its exact counters on an emulated device. A replayed device returns recorded results;
    it needs no kernel, artifact or problem. To measure several kernels on one problem after another, pass the same
    `references` each time: the problem's reference is then computed once.
    """
    _check_request(task, device, settings)
    started, clock = time.time(), time.perf_counter()
    if isinstance(device, ReplayDevice):
        found = device.get_result(task)
    else:
        if kernel is None or artifact is None:
            raise InvalidValueError(f"{device.name} runs kernels: it needs {task.kernel} built, not only its name")
        if kernel.slug != task.kernel:
            raise InvalidValueError(f"the task is for kernel {task.kernel}, but the kernel is {kernel.slug}")
        found = _collect_outcome(partial(_measure_kernel, device, kernel, artifact, problem, settings, references))
    found["message"] = format_message(found.get("message", ""))
    return Record(task=task, worker=get_worker_name(), started=started, took_s=time.perf_counter() - clock, **found)


def get_worker_name() -> str:
    """Host and process, as records name them."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _check_request(task: Task, device: Device | ReplayDevice, settings: TimingSettings) -> None:
    if task.device != device.name:
        raise InvalidValueError(f"the task is for {task.device}, not for {device.name}")
    if task.cold != settings.cold:
        raise InvalidValueError(
            f"the task has cold={task.cold}, the settings have cold={settings.cold}: they must agree"
        )
    if device.kind == "emulated" and settings.cold:
        raise InvalidValueError(f"cold applies to times only, and {device.name} measures counters")
    if device.kind != "emulated" and settings.mode is not None:
        raise InvalidValueError(f"mode={settings.mode} applies to emulated devices only, not to {device.name}")


def _collect_outcome(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result fields of a record. Errors of the device or the host become a status."""
    try:
        return measured()
    except MemoryError as error:
        return {"status": OUT_OF_MEMORY, "message": f"the host has not enough memory: {error}"}
    except DeviceMemoryError as error:
        return {"status": OUT_OF_MEMORY, "message": str(error)}
    except UnsupportedError as error:
        return {"status": "unsupported", "message": str(error)}
    except DeviceError as error:
        return {"status": "fault", "message": f"verified, but failed while it was timed: {error}"}


def _measure_kernel(
    device: Device,
    kernel: Kernel,
    artifact: Artifact,
    problem: Any,
    settings: TimingSettings,
    references: ReferenceCache | None,
) -> dict[str, Any]:
    from tilewright.dispatch.reference_cache import ReferenceCache  # noqa: PLC0415  (loads NumPy)
    from tilewright.dispatch.verify import verify  # noqa: PLC0415  (see above)
    from tilewright.emulator.launch import Mode  # noqa: PLC0415  (needed by few)

    mode = None if settings.mode is None else Mode(settings.mode)
    references = references or ReferenceCache()
    (check,) = verify(kernel, artifact, device, [problem], settings.seed, mode, references)
    if not check.ok:
        status = OUT_OF_MEMORY if check.memory_full else check.verdict
        return {"status": status, "message": check.message, **_extract_errors(check)}
    if device.kind == "emulated":
        return {"status": OK, "kind": "counters", "counters": collect_counts(check.counters), **_extract_errors(check)}
    from tilewright.bench.gpu_time import measure_times  # noqa: PLC0415  (loads NumPy)

    times, note = measure_times(device, kernel, artifact, problem, settings, references)
    return {"status": OK, "kind": "time", "times": times, "message": note, **_extract_errors(check)}


def _extract_errors(check: Check) -> dict[str, Any]:
    """How much of the tolerance was used; empty if nothing was compared."""
    if check.verdict not in (OK, "wrong"):
        return {}
    return {"share": check.share, "error_ulps": check.error_ulps}


def collect_counts(counters: Counters | None) -> dict[str, int]:
    """Counters as one flat table, sorted by name, without the engine's own step count."""
    if counters is None:
        raise InvalidValueError("the emulated device counted nothing: the kernel launched nothing")
    found: dict[str, int] = {}
    for field in fields(counters):
        value = getattr(counters, field.name)
        if isinstance(value, dict):
            found |= {f"{field.name}_{name}": int(each) for name, each in value.items()}
        elif field.name != "steps":
            found[field.name] = int(value)
    return dict(sorted(found.items()))
