"""The short way to a launch: when there is one, that it is taken, and what it costs."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bench_dispatch
import tilewright as tw
from built_kernels import built
from tilewright.base.errors import TensorError
from tilewright.dispatch.fast_path import make_argument_template
from tilewright.dispatch.tensors import View
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.kernel import Kernel

# What CI must not exceed. The machine may be busy, and its figures noisy: tools/bench_dispatch.py has the real ones.
GENEROUS = 8.0


class Args(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("again", ctypes.c_void_p),
    )


def in_order(args: Any, addresses: Any) -> None:
    args.a, args.b = addresses


def turned_round(args: Any, addresses: Any) -> None:
    args.b, args.a = addresses


def twice(args: Any, addresses: Any) -> None:
    args.a, args.b, args.again = *addresses, addresses[0]


def one_only(args: Any, addresses: Any) -> None:
    args.a = addresses[0]


def with_alignment(args: Any, addresses: Any) -> None:
    args.a, args.b = addresses
    args.n = 7 if addresses[0] % 16 else 0


def with_order(args: Any, addresses: Any) -> None:
    args.a, args.b = addresses
    args.n = addresses[0] < addresses[1]


def with_distance(args: Any, addresses: Any) -> None:
    args.a, args.n = addresses[0], addresses[1] - addresses[0]


def maker(point: Callable[[Any, Any], None]) -> Callable[[Any], Args]:
    def make(addresses: Any) -> Args:
        args = Args(size=48, n=5)
        point(args, addresses)
        return args

    return make


@pytest.mark.parametrize("point", [in_order, turned_round, twice, one_only])
def test_addresses_may_be_anywhere_in_a_struct(point: Callable[[Any, Any], None]) -> None:
    template = make_argument_template(maker(point), 2)
    assert template is not None
    addresses = (4096, 8192)
    made = template.pack(*(addresses[part] if isinstance(part, int) else part for part in template.parts))
    assert made == bytes(maker(point)(addresses))


@pytest.mark.parametrize("point", [with_alignment, with_order, with_distance])
def test_an_op_that_does_something_else_is_called_each_time(point: Callable[[Any, Any], None]) -> None:
    assert make_argument_template(maker(point), 2) is None


@pytest.mark.compile
def test_the_short_way_is_taken_and_left(registry: tw.Registry, device: tw.Device) -> None:
    problem = find_op("scale").problem_type(32)
    x, out = (tw.view_on(device.allocate(128), (32,), "fp32") for _ in range(2))
    x.owner.copy_from(np.arange(32, dtype=np.float32))
    other = tw.Device("emulated:gfx90a")
    elsewhere = tw.view_on(other.allocate(128), (32,), "fp32")
    elsewhere.owner.copy_from(np.arange(32, dtype=np.float32))

    def result(view: Any) -> Any:
        found = np.empty(32, np.float32)
        view.owner.copy_to(found)
        view.owner.fill(0)
        return found[5]

    registry.run(problem, x, out=out)
    way = registry._fast_paths[id(problem)]
    assert result(registry.run(problem, x, out=out)) == 10
    other.activate()  # the thread's device is another one: the launch must not go there
    assert result(registry.run(problem, x, out=out)) == 10
    assert registry._fast_paths[id(problem)] is way, "still the same fast path"
    assert result(registry.run(problem, elsewhere)) == 65
    assert registry._fast_paths[id(problem)] is not way, "the last forms have it"
    assert result(registry.run(problem, x, out=out)) == 10
    assert result(registry.run(problem, x, out=out, kernel=registry.kernels[0])) == 10
    np.testing.assert_array_equal(registry.run(problem, np.ones(32, np.float32), device=device), np.full(32, 2))


def upload(device: tw.Device, array: Any) -> View:
    view = tw.view_on(device.allocate(array.nbytes), array.shape, {2: "fp16", 4: "fp32"}[array.itemsize])
    view.owner.copy_from(array)
    return view


def download(view: View) -> Any:
    array = np.empty(view.shape, {"fp16": np.float16, "fp32": np.float32}[view.dtype])
    view.owner.copy_to(array)
    return array


@pytest.mark.compile
def test_a_kernel_with_a_workspace_has_one_for_each_stream(registry: tw.Registry, device: tw.Device) -> None:
    problem, needy = find_op("scale").problem_type(64), registry.find(scratch=256).kernels[0]
    values = np.arange(64, dtype=np.float32)
    x, out = upload(device, values), upload(device, 0 * values)
    registry.run(problem, x, out=out, kernel=needy)
    path = registry._fast_paths[id(problem)]
    _, call = registry._dispatcher.plan(problem, device, needy, False)
    first, second = device.stream(), device.stream()
    for stream in (None, first, second.handle, None):
        out.owner.fill(0)
        registry.run(problem, x, out=out, kernel=needy, stream=stream)
        device.synchronize()
        np.testing.assert_array_equal(download(out), 11 * values)
    assert registry._fast_paths[id(problem)] is path
    assert len({buffer.address for buffer in call._workspaces.values()}) == 3


@pytest.mark.compile
def test_a_plan_of_several_kernels_has_a_fast_path(staged: tw.Registry, device: tw.Device) -> None:
    problem = find_op("axpb").problem_type("whole", 64, factor=3.0)
    values = np.arange(64, dtype=np.float32)
    x, b, out = (upload(device, values + offset) for offset in (0, 100, 0))
    moved = upload(device, values + 7)
    staged.run(problem, x, b, out=out)
    assert id(problem) in staged._fast_paths
    for given, first in ((x, values), (moved, values + 7), (x, values)):
        out.owner.fill(0)
        assert staged.run(problem, given, b, out=out) is out
        np.testing.assert_array_equal(download(out), 3 * first + values + 100)
    with pytest.raises(TensorError, match="shares memory"):
        staged.run(problem, x, b, out=x)


@pytest.fixture(scope="module")
def attention() -> tw.Registry:
    kernel = parse_kernel(bench_dispatch.ATTENTION)
    (artifact,) = built([kernel])
    return tw.Registry((kernel,), {kernel: artifact})


@pytest.mark.compile
def test_attention_with_two_outputs_has_a_fast_path(attention: tw.Registry, device: tw.Device) -> None:
    problem = tw.fmha.Problem(family="forward", dtype="fp16", seqlen_q=64, hdim_q=32, mask="top_left", lse=True)
    draw = np.random.default_rng(0).standard_normal
    arrays = [[draw((1, 64, 1, 32)).astype(np.float16) for _ in range(3)] for _ in range(2)]
    expected = [attention.run(problem, *each, device=device) for each in arrays]
    inputs = [[upload(device, array) for array in each] for each in arrays]
    outputs = [tuple(upload(device, 0 * array) for array in expected[0]) for _ in range(2)]
    attention.run(problem, *inputs[0], out=outputs[0])
    path = attention._fast_paths[id(problem)]

    for turn in (0, 1, 0, 0, 1):
        for output in outputs[turn]:
            output.owner.fill(0)
        assert attention.run(problem, *inputs[turn], out=outputs[turn]) is outputs[turn]
        for output, reference in zip(outputs[turn], expected[turn], strict=True):
            np.testing.assert_array_equal(download(output), reference)

    o, lse = outputs[0]
    with pytest.raises(TensorError, match="o is an output, and it shares memory with the input q"):
        attention.run(problem, *inputs[0], out=(inputs[0][0], lse))
    with pytest.raises(TensorError, match="2 outputs"):
        attention.run(problem, *inputs[0], out=o)
    with pytest.raises(TensorError, match="is not a tensor"):
        attention.run(problem, *inputs[0], out=(each for each in outputs[0]))
    listed = [o, lse]
    assert attention.run(problem, *inputs[0], out=listed) is listed
    assert attention._fast_paths[id(problem)] is path


@pytest.mark.compile
def test_the_fast_path_keeps_no_tensor_alive(registry: tw.Registry, device: tw.Device) -> None:
    problem, values = find_op("scale").problem_type(64), np.arange(64, dtype=np.float32)
    x, out = upload(device, values), upload(device, values)
    for _ in range(3):
        registry.run(problem, x, out=out)
    buffers = [weakref.ref(view.owner) for view in (x, out)]
    del x, out
    gc.collect()
    assert [buffer() for buffer in buffers] == [None, None]


def measure_best(registry: tw.Registry, problem: Any) -> bench_dispatch.Overhead:
    """The overhead in the round that was disturbed least."""
    rounds = (bench_dispatch.measure_overhead(registry, problem, rounds=40) for _ in range(3))
    best = min(rounds, key=lambda overhead: overhead.ratio)
    print(f"{best.run_ns:.0f} ns beside {best.bare_ns:.0f} ns, {best.ratio:.2f}×; in turn {best.ratio_in_turn:.2f}×")
    return best


@pytest.mark.compile
def test_dispatch_costs_little_more_than_the_call(registry: tw.Registry, scale: Callable[..., Kernel]) -> None:
    measured = measure_best(registry.find(factor=2), find_op("scale").problem_type(256))
    assert measured.kernel == scale(2).slug
    assert measured.ratio <= GENEROUS


@pytest.mark.compile
def test_dispatch_of_five_tensors_costs_little_more(attention: tw.Registry) -> None:
    measured = measure_best(attention, bench_dispatch.make_attention_problem())
    assert measured.ratio <= GENEROUS
    assert measured.ratio_in_turn <= GENEROUS
