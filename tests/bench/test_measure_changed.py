"""A GEMM kernel with one instruction changed: whenever that gives another result, it is not timed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scripted_gpu import gpu_of, launches_of, stand_in_as_gpu, task_of

import mutations
import tilewright as tw
from built_kernels import built
from tilewright.bench.measure import Settings, measure
from tilewright.bench.record import Record
from tilewright.building.store.artifact import Artifact
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Launch
from tilewright.emulator.stand_in import pending
from tilewright.ops.kernel import Kernel
from tilewright.runtime.emulation import emulating, scripted

pytestmark = pytest.mark.compile

QUICK = Settings(least_runs=3, least_ms=0, least_warmup_ms=0)
PROBLEM = tw.gemm.Problem(m=128, n=192, k=96, dtype="fp16", layout="rcr")
VERIFYING = 2
TIMING = 4 * (1 + 5) + 1 + 3  # launches of a kernel that is right: four rows to warm up, samples, and what leads them
CHANGES = 16


@pytest.fixture(scope="module")
def subject() -> tuple[Kernel, Artifact]:
    kernel = tw.kernel_of(tw.gemm.config(**mutations.CONFIG), "gfx942")
    (artifact,) = built([kernel])
    return kernel, artifact


@contextmanager
def changed_to(mutation: mutations.Mutation) -> Iterator[None]:
    """The device runs the kernel's code with one line changed."""
    plain = EmulatedDevice.launch
    changed: dict[int, Any] = {}

    def launch(device: EmulatedDevice, kernel: Any, launch: Launch, *rest: Any, **options: Any) -> Any:
        if id(kernel) not in changed:
            program = kernel.program.changed(mutation.line.address, mutation.text)
            changed[id(kernel)] = dataclasses.replace(kernel, program=program)
        options["limit"] = mutations.LIMIT  # a changed loop may never end
        return plain(device, changed[id(kernel)], launch, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmulatedDevice, "launch", launch)
        yield


def on_gpu(subject: tuple[Kernel, Artifact]) -> tuple[Record, int, int]:
    """The record, how many launches there were, and how many times of the script were used."""
    kernel, artifact = subject
    gpu = gpu_of("gfx942")
    script = [250.0] * (VERIFYING + TIMING)
    with scripted(gpu.index, script) as left, launches_of(gpu) as launches:
        found = measure(task_of(kernel, PROBLEM, gpu.name), gpu, kernel, artifact, PROBLEM, QUICK)
        return found, len(launches), len(script) - left()


def test_changed_kernels_are_timed_only_when_they_are_right(subject: tuple[Kernel, Artifact]) -> None:
    with stand_in_as_gpu():
        # Only NumPy's engine tells which lines were reached.
        with mutations.captured() as seen, emulating(gpu_of("gfx942").index, engine="numpy"):
            plain, launches, spent = on_gpu(subject)
        assert plain.ok and launches == spent == VERIFYING + TIMING
        lines = seen[0][1].program.reached
        statuses = []
        for mutation in mutations.random_mutations(lines, CHANGES, seed=4):
            with changed_to(mutation):
                found, launches, spent = on_gpu(subject)
            statuses.append(found.status)
            if found.ok:
                assert found.times is not None and spent == VERIFYING + TIMING, mutation
            else:
                assert found.times is None and launches <= spent <= VERIFYING, mutation
    # The others change what this problem does not have: tails, signs, large sizes.
    assert statuses.count("wrong") >= 4 and statuses.count("ok") <= 10


def test_a_fault_on_a_gpu_is_not_told_of_an_emulated_device_afterwards() -> None:
    device = tw.Device("emulated:gfx942")
    with stand_in_as_gpu():
        pending.keep(device.index, RuntimeError("of a launch before"))
    device.synchronize()
