"""Problems of several kernels run on the emulated device: their order, the memory between them, several outputs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import TensorError, UnsupportedError
from tilewright.dispatch.launch import CallSequence
from tilewright.dispatch.tensors import View
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

MakeKernel = Callable[..., Kernel]


def problem(n: int, step: str = "whole", **fields: Any) -> Any:
    return find_op("axpb").problem_type(step, n, **fields)


def numbers(n: int, first: int = 1) -> Any:
    return np.arange(first, first + n, dtype=np.float32)


def upload(device: tw.Device, array: Any) -> View:
    buffer = device.allocate(array.nbytes)
    buffer.copy_from(array)
    return tw.view_on(buffer, array.shape, "fp32")


def download(view: View) -> Any:
    array = np.empty(view.shape, np.float32)
    view.owner.copy_to(array)
    return array


def test_host_arrays(staged: tw.Registry, device: tw.Device) -> None:
    x, b = numbers(100), numbers(100, 50)
    y = staged.run(problem(100, factor=3.0), x, b, device=device)
    np.testing.assert_array_equal(y, 3 * x + b)
    out = np.zeros(100, np.float32)
    assert staged.run(problem(100, factor=5.0), x, b, out=out, device=device) is out
    np.testing.assert_array_equal(out, 5 * x + b)


def test_one_stage_alone_is_a_problem_like_any_other(staged: tw.Registry, device: tw.Device) -> None:
    x, b = numbers(70), numbers(70, 9)
    parts = staged.run(problem(70, "scale", factor=4.0, count=3), x, device=device)
    np.testing.assert_array_equal(parts, np.stack([4 * x, 0 * x, 0 * x]))
    np.testing.assert_array_equal(staged.run(problem(70, "add", count=3), parts, b, device=device), 4 * x + b)


def test_device_tensors(staged: tw.Registry, device: tw.Device) -> None:
    asked = problem(100)
    x, b, out = (upload(device, values) for values in (numbers(100), numbers(100, 7), np.zeros(100, np.float32)))
    for turn in range(3):  # made, then remembered
        x.owner.copy_from(numbers(100, turn))
        assert staged.run(asked, x, b, out=out) is out
        np.testing.assert_array_equal(download(out), 2 * numbers(100, turn) + numbers(100, 7))
    made = staged.run(asked, x, b)
    np.testing.assert_array_equal(download(made), download(out))
    with pytest.raises(TensorError, match=r"prepared names 'x', but .* needs no tensor prepared"):
        staged.run(asked, x, b, prepared=("x",))


def test_the_plan_says_what_is_launched_and_what_lies_between(
    staged: tw.Registry, device: tw.Device, axpb: MakeKernel
) -> None:
    plan = staged.plan(problem(100), device)
    assert [stage.kernel for stage in plan.stages] == [axpb("scale"), axpb("add")]
    assert [(each.tensor.name, each.nbytes) for each in plan.intermediates] == [("parts", 1600)]
    assert plan.describe().splitlines() == [
        "step=whole,n=100 on emulated:gfx942: "
        "stage 1 supports the problem unpadded, stage 2 supports the problem unpadded",
        f"1. {axpb('scale').slug}",
        "  problem      n=100,count=4",
        f"2. {axpb('add').slug}",
        "  problem      n=100",
        "between  parts, 4×100 of fp32, 1,600 bytes",
    ]
    alone = staged.plan(problem(100, "add"), device)
    assert alone.intermediates == () and "between" not in alone.describe()
    assert staged.plan(problem(100), device) is plan


def test_kernels_that_are_asked_for_run(staged: tw.Registry, device: tw.Device, axpb: MakeKernel) -> None:
    x, b = numbers(65), numbers(65, 3)
    both = [axpb("scale", parts=3), axpb("add", parts=3).slug]
    with device.emulating(detailed=True), device.recording() as launches:
        y = staged.run(problem(65), x, b, device=device, kernel=both)
    np.testing.assert_array_equal(y, 2 * x + b)
    assert len(launches) == 2
    plan = staged.plan(problem(65), device, kernel=both)
    assert [stage.problem.count for stage in plan.stages] == [4, 3], "the second reads a part of what the first leaves"
    for _ in range(2):  # made, then remembered
        views = [upload(device, array) for array in (x, b, np.zeros(65, np.float32))]
        staged.run(problem(65), *views[:2], out=views[2], kernel=both)
        np.testing.assert_array_equal(download(views[2]), y)
    lazy = axpb("scale", lazy=True)
    with pytest.raises(UnsupportedError, match="lacks a kernel for stage 2"):
        staged.find(step="scale").run(problem(65), x, b, device=device, kernel=lazy)


def test_outputs_come_in_the_order_of_the_tensors(staged: tw.Registry, device: tw.Device) -> None:
    x, b = numbers(64), numbers(64, 5)
    y, z = staged.run(problem(64, both=True), x, b, device=device)
    np.testing.assert_array_equal(y, 2 * x + b)
    np.testing.assert_array_equal(z, -y)
    outs = [np.zeros(64, np.float32), np.zeros(64, np.float32)]
    assert staged.run(problem(64, both=True), x, b, out=outs, device=device) is outs
    np.testing.assert_array_equal(outs[0], y)
    np.testing.assert_array_equal(outs[1], z)
    asked, there = problem(64, both=True), [upload(device, values) for values in (x, b)]
    for _ in range(2):  # made, then remembered
        given = tuple(upload(device, np.zeros(64, np.float32)) for _ in range(2))
        assert staged.run(asked, *there, out=given) is given
        np.testing.assert_array_equal(download(given[1]), z)
    made = staged.run(asked, *there)
    assert isinstance(made, tuple) and [download(view)[0] for view in made] == [y[0], z[0]]
    with pytest.raises(TensorError, match=r"2 outputs \(y, z\), and 1 were passed"):
        staged.run(asked, x, b, out=outs[0], device=device)


def test_what_is_changed_in_place_must_be_given(staged: tw.Registry, device: tw.Device) -> None:
    x, b, old = numbers(64), numbers(64, 5), numbers(64, -20)
    for step, first in (("whole", x), ("add", 2 * x[None])):
        asked = problem(64, step, onto=True)
        spread = np.full(128, -1, np.float32)
        y = spread[::2]
        y[:] = old
        assert staged.run(asked, first, b, out=y, device=device) is y
        np.testing.assert_array_equal(y, old + 2 * x + b)
        assert (spread[1::2] == -1).all()
        out = upload(device, old)
        there = [upload(device, values) for values in (first, b)]
        staged.run(asked, *there, out=out)
        staged.run(asked, *there, out=out)
        np.testing.assert_array_equal(download(out), old + 2 * (2 * x + b), "twice")
        for tensors in ([first, b], there):
            with pytest.raises(TensorError, match="y is updated in place, so it must be passed as out="):
                staged.run(asked, *tensors, device=device)


def test_memory_between_stages_belongs_to_a_thread_and_a_stream(staged: tw.Registry, device: tw.Device) -> None:
    asked = problem(96)
    plan, call = staged._dispatcher.plan(asked, device, None, False)
    assert isinstance(call, CallSequence) and len(plan.stages) == 2
    streams = [None, device.stream(), device.stream()]
    barrier, results = threading.Barrier(8), {}

    def work(number: int) -> None:
        x, b = upload(device, numbers(96, number)), upload(device, numbers(96))
        outs = [upload(device, np.zeros(96, np.float32)) for _ in streams]
        barrier.wait()
        for _ in range(3):
            for stream, out in zip(streams, outs, strict=True):
                staged.run(asked, x, b, out=out, stream=stream)
        device.synchronize()
        expected = 2 * numbers(96, number) + numbers(96)
        results[number] = [np.array_equal(download(out), expected) for out in outs]

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(results.values()) == [[True] * 3] * 8
    places = [buffers[0].address for buffers in call._buffers.values()]
    assert len(places) == len(set(places)) == 8 * 3
