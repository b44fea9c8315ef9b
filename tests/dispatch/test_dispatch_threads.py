"""Many threads at once: one registry, one plan, everybody's own result."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ops import find_op

pytestmark = pytest.mark.compile

THREADS = 64


def together(work: Any) -> list[Any]:
    """What `work(number)` gives in each of many threads that begin at the same time."""
    results: list[Any] = [None] * THREADS
    barrier = threading.Barrier(THREADS)

    def begin(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        raise failures[0]
    return results


def test_64_threads_share_a_registry(registry: tw.Registry, device: tw.Device) -> None:
    problem = find_op("scale").problem_type(70)

    def work(number: int) -> bool:
        there = tw.Device("emulated:gfx90a") if number % 4 == 3 else device
        factor = 13 if number % 4 == 3 else 2
        x, y = there.allocate(280), there.allocate(280)
        views = tw.view_on(x, (70,), "fp32"), tw.view_on(y, (70,), "fp32")
        for turn in range(3):
            values = np.arange(70, dtype=np.float32) + 100 * number + turn
            x.copy_from(values)
            registry.run(problem, views[0], out=views[1])
            found = np.empty(70, np.float32)
            y.copy_to(found)
            if not np.array_equal(found, factor * values):
                return False
        return True

    assert together(work) == [True] * THREADS


def test_64_threads_with_host_arrays_and_a_workspace(registry: tw.Registry, device: tw.Device) -> None:
    needy = registry.find(scratch=256).kernels[0]

    def work(number: int) -> bool:
        values = np.arange(64, dtype=np.float32) * number
        problem = find_op("scale").problem_type(64)
        return np.array_equal(registry.run(problem, values, device=device, kernel=needy), 11 * values)

    assert together(work) == [True] * THREADS


def test_64_threads_with_device_tensors_and_a_workspace(registry: tw.Registry, device: tw.Device) -> None:
    """On the fast path, which all of them share: each launch has its own tensors and its thread's workspace."""
    problem, needy = find_op("scale").problem_type(64), registry.find(scratch=256).kernels[0]

    def work(number: int) -> bool:
        x, y = (tw.view_on(device.allocate(256), (64,), "fp32") for _ in range(2))
        values = np.arange(64, dtype=np.float32) + 100 * number
        x.owner.copy_from(values)
        found = np.empty(64, np.float32)
        for _ in range(3):
            y.owner.fill(0)
            registry.run(problem, x, out=y, kernel=needy)
            y.owner.copy_to(found)
            if not np.array_equal(found, 11 * values):
                return False
        return True

    assert together(work) == [True] * THREADS
    assert id(problem) in registry._fast_paths


def test_64_threads_make_one_plan(registry: tw.Registry, device: tw.Device) -> None:
    problem = find_op("scale").problem_type(77)
    plans = together(lambda _: registry.plan(problem, device))
    assert len({id(plan) for plan in plans}) == 1
