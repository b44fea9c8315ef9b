"""A GEMM kernel with one instruction changed: whenever that gives another result, it is not timed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scripted_gpu import gpu_of, launches_of, stand_in_as_gpu, task_of

import tilewright as tw
from built_kernels import built
from tests.proof.mutating.changes import Mutation, draw_mutations, is_supported_by
from tests.proof.mutating.judge import MIN_LIMIT
from tests.proof.mutating.kernels import make_gemm
from tilewright.bench.measure import TimingSettings, measure_task
from tilewright.bench.record import Record
from tilewright.building.store.artifact import Artifact
from tilewright.emulator.hip_shim import deferred_errors
from tilewright.ops.kernel import Kernel
from tilewright.runtime.device import apply_settings, simulate_time

pytestmark = pytest.mark.compile

QUICK = TimingSettings(least_runs=3, least_ms=0, least_warmup_ms=0)
PROBLEM = tw.gemm.Problem(m=128, n=192, k=96, dtype="fp16", layout="rcr")
VERIFYING = 2
TIMING = 4 * (1 + 5) + 1 + 3  # launches of a kernel that is right: four rows to warm up, samples, and what leads them
CHANGES = 16


@pytest.fixture(scope="module")
def subject() -> tuple[Kernel, Artifact]:
    kernel = make_gemm()
    (artifact,) = built([kernel])
    return kernel, artifact


@contextmanager
def changed_to(mutation: Mutation) -> Iterator[None]:
    """The device runs the kernel's code with one line changed."""
    changed: dict[str, Any] = {}

    def exchange(kernel: Any) -> Any:
        if kernel.name not in changed:
            program = kernel.program.replace_instruction(mutation.line.address, mutation.text)
            changed[kernel.name] = dataclasses.replace(kernel, program=program)
        return changed[kernel.name]

    # A changed loop may never end.
    gpu = gpu_of("gfx942")
    with apply_settings(gpu.load_hip(), gpu.index, exchange=exchange, limit=MIN_LIMIT):
        yield


def on_gpu(subject: tuple[Kernel, Artifact]) -> tuple[Record, int, int]:
    """The record, how many launches there were, and how many times of the script were used."""
    kernel, artifact = subject
    gpu = gpu_of("gfx942")
    script = [250.0] * (VERIFYING + TIMING)
    with simulate_time(gpu.index, script) as left, launches_of(gpu) as launches:
        found = measure_task(task_of(kernel, PROBLEM, gpu.name), gpu, kernel, artifact, PROBLEM, QUICK)
        return found, len(launches), len(script) - left()


def test_changed_kernels_are_timed_only_when_they_are_right(subject: tuple[Kernel, Artifact]) -> None:
    with stand_in_as_gpu():
        seen: list[Any] = []
        with apply_settings(
            gpu_of("gfx942").load_hip(), gpu_of("gfx942").index, exchange=lambda kernel: seen.append(kernel) or kernel
        ):
            plain, launches, spent = on_gpu(subject)
        assert plain.ok and launches == spent == VERIFYING + TIMING
        program = seen[0].program
        statuses = []
        for mutation in draw_mutations(program.reached, CHANGES, 4, lambda each: is_supported_by(program, each)):
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
        deferred_errors.keep_error(device.index, RuntimeError("of a launch before"))
    device.synchronize()
