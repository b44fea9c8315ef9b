"""The steps that use the device, made in a separate process. Arguments and results are plain values."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import DeviceError
from tilewright.bench.executor import ArtifactRef
from tilewright.bench.plan import parse_problem
from tilewright.ops import parse_kernel

if TYPE_CHECKING:
    from tilewright.acceptance.device_runs import Subject
    from tilewright.runtime.device import Device

# Verdicts of `Check` that mean that the device may be unusable.
_UNSOUND = ("fault",)


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel by name, and its place in the store, with which a step loads it."""

    slug: str
    store: str
    key: str

    @classmethod
    def from_plain(cls, values: Mapping[str, str]) -> BuiltKernel:
        """A kernel from plain values: the inverse of `dataclasses.asdict`."""
        return cls(**values)

    def make_subject(self, problem: str) -> Subject:
        """The kernel with a problem, given as canonical JSON."""
        from tilewright.acceptance.device_runs import Subject  # noqa: PLC0415  (loads NumPy)

        kernel = parse_kernel(self.slug)
        return Subject(kernel, ArtifactRef(self.store, self.key).load_artifact(), parse_problem(kernel.op, problem))


@lru_cache(maxsize=4)
def _open_device(name: str) -> Device:
    from tilewright.runtime.device import Device  # noqa: PLC0415  (a step may import torch before it)

    return Device(name)


def read_gpu(device: str) -> dict[str, Any]:
    """The HIP library, its versions, and the GPU as HIP describes it. Whatever cannot be read is None."""
    opened = _open_device(device)
    hip = opened.load_hip()
    found: dict[str, Any] = {
        "hip_library": str(hip.path),
        "hip_runtime": hip.runtime_version(),
        "hip_driver": _read_driver_version(opened),
        "devices": hip.count(),
        "product": hip.product(opened.index),
        "units": hip.units(opened.index),
        "memory_bytes": hip.memory_bytes(opened.index),
        "bus": opened.bus_address(),
    }
    try:
        arch = opened.arch
    except Exception as error:  # an unknown GPU is a fact of the report
        return {**found, "arch": None, "arch_problem": str(error)}
    return {**found, "arch": arch.name, "expected_units": arch.compute.units, "arch_problem": ""}


def _read_driver_version(device: Device) -> int | None:
    number = ctypes.c_int(0)
    try:
        device.call("hipDriverGetVersion", ctypes.byref(number))
    except DeviceError:
        return None  # the driver's version is not needed for anything else
    return number.value


def load_kernel(device: str, built: Mapping[str, str]) -> dict[str, Any]:
    """Load a kernel's library on top of the device's HIP library, and bind its functions."""
    from tilewright.building.compile_job import LIBRARY  # noqa: PLC0415
    from tilewright.dispatch.launch import bind_functions  # noqa: PLC0415

    place = BuiltKernel.from_plain(built)
    artifact = ArtifactRef(place.store, place.key).load_artifact()
    bind_functions(_open_device(device), artifact.verify_file(LIBRARY), parse_kernel(place.slug))
    return {}


def verify_kernel(device: str, built: Mapping[str, str], problem: str, seed: int) -> dict[str, Any]:
    """Run a kernel on a problem and compare every element with the op's reference."""
    from tilewright.dispatch.verify import verify  # noqa: PLC0415  (loads NumPy)
    from tilewright.ops.problem_text import format_problem  # noqa: PLC0415

    subject = BuiltKernel.from_plain(built).make_subject(problem)
    (check,) = verify(subject.kernel, subject.artifact, _open_device(device), [subject.problem], seed)
    return {
        "problem": format_problem(subject.problem, subject.kernel.config),
        "verdict": check.verdict,
        "message": check.message,
        "error_ulps": _to_finite(check.error_ulps),
        "share": _to_finite(check.share),
        "sound": check.verdict not in _UNSOUND,
    }


def compare_kernel(device: str, twin: str, built: Mapping[str, str], problem: str, seed: int) -> dict[str, Any]:
    """Run a kernel on the device and on its emulated twin, and compare the results bit by bit."""
    from tilewright.acceptance.device_runs import compare_runs  # noqa: PLC0415  (loads NumPy)

    opened = _open_device(device)
    opened.load_hip()  # before the emulated device: then that runs in a separate process
    return compare_runs(BuiltKernel.from_plain(built).make_subject(problem), opened, _open_device(twin), seed)


def time_events(device: str) -> dict[str, Any]:
    """Whether events measure time, and the rate of a copy."""
    from tilewright.acceptance.device_times import measure_copy  # noqa: PLC0415  (loads NumPy)

    return measure_copy(_open_device(device))


def time_kernel(device: str, built: Mapping[str, str], problem: str, seed: int) -> dict[str, Any]:
    """The time of a kernel, and the estimate of it."""
    from tilewright.acceptance.device_times import measure_kernel  # noqa: PLC0415  (loads NumPy)

    return measure_kernel(_open_device(device), BuiltKernel.from_plain(built).make_subject(problem), seed)


def capture_graph(device: str, built: Mapping[str, str], problem: str, seed: int) -> dict[str, Any]:
    """Capture a launch in a graph of torch and replay it."""
    import torch  # noqa: F401, PLC0415  (its HIP library must be the first in the process)

    from tilewright.acceptance.graph_capture import capture_and_replay  # noqa: PLC0415

    return capture_and_replay(_open_device(device), BuiltKernel.from_plain(built).make_subject(problem), seed)


def _to_finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


STEPS: Mapping[str, Callable[..., dict[str, Any]]] = {
    step.__name__: step
    for step in (read_gpu, load_kernel, verify_kernel, compare_kernel, time_events, time_kernel, capture_graph)
}
