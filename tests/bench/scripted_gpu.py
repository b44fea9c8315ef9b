"""The stand-in in the place of AMD's HIP library, and small kernels to time: what tests of measuring start from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from built_kernels import STORE
from tilewright.base import knobs
from tilewright.base.digest import to_canonical_json
from tilewright.bench.record import Task
from tilewright.building.builder import build_kernels
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.tiers import Tiers
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.hip_shim import deferred_errors
from tilewright.emulator.hip_shim.settings import LaunchRecord, record_launches
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.emulator.launch import Launch
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.runtime import hip_library


@contextmanager
def stand_in_as_gpu() -> Iterator[None]:
    """Devices `gpu:0` to `gpu:4` are those of the stand-in, used by the code for GPUs."""
    hip_library.use_gpu_library(open_shim().path)
    try:
        yield
    finally:
        hip_library._process.real = hip_library._process.gpu_library = None
        # Faults of launches on a GPU are told as numbers. What is kept of them here is not for emulated devices.
        deferred_errors._kept.clear()


def gpu_of(arch: str) -> tw.Device:
    """The device of this GPU when the stand-in is in the place of AMD's library."""
    return tw.Device(f"gpu:{[gpu.arch.name for gpu in open_shim().gpus].index(arch)}")


@contextmanager
def launches_of(device: tw.Device) -> Iterator[list[LaunchRecord]]:
    """Every launch of this thread that the stand-in ran, as it saw them."""
    with record_launches(device.index) as launches:
        yield launches


@contextmanager
def captured() -> Iterator[list[Launch]]:
    """Launches that reach emulated devices inside the `with` block, with their arguments."""
    seen: list[Launch] = []
    plain = EmulatedDevice.launch

    def launch(device: EmulatedDevice, kernel: Any, launch: Launch, *rest: Any, **options: Any) -> Any:
        seen.append(launch)
        return plain(device, kernel, launch, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmulatedDevice, "launch", launch)
        yield seen


def small_kernel(arch: str = "gfx90a", **fields: Any) -> Kernel:
    """A kernel of `axpb` that multiplies: 64 threads. One that is `lazy` leaves out the last element."""
    op = find_op("axpb")
    return op.make_kernel(op.make_config(**{"step": "scale", "threads": 64, **fields}), arch)


def small_problem(n: int = 100) -> Any:
    return find_op("axpb").problem_type("scale", n)


def built_small(kernels: list[Kernel], ck: Path) -> dict[Kernel, Artifact]:
    """Artifacts of small kernels, kept between runs of the tests. `ck` is any folder: they include none of CK."""
    (ck / "include" / "ck_tile").mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(knobs.CK_PATH.name, str(ck))
        result = build_kernels(kernels, tiers=Tiers(STORE), jobs=1)
    assert result.failures == {}
    return dict(result.artifacts)


def task_of(kernel: Kernel, problem: Any, device: str, **fields: Any) -> Task:
    """What a sweep would ask for."""
    text = to_canonical_json(dataclasses.asdict(problem))
    return Task(op=kernel.op, arch=kernel.arch, kernel=kernel.slug, problem=text, device=device, **fields)
