"""The short way to a launch: when there is one, that it is taken, and what it costs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bench_dispatch
import tilewright as tw
from tilewright.dispatch.fast_path import make_argument_template
from tilewright.ops import find_op
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


@pytest.mark.compile
def test_dispatch_costs_little_more_than_the_call(registry: tw.Registry, scale: Callable[..., Kernel]) -> None:
    only = registry.find(factor=2)
    measured = min(
        (bench_dispatch.measure_overhead(only, find_op("scale").problem_type(256), rounds=40) for _ in range(3)),
        key=lambda overhead: overhead.ratio,
    )
    assert measured.kernel == scale(2).slug
    print(f"{measured.run_ns:.0f} ns beside {measured.bare_ns:.0f} ns, {measured.ratio:.2f}×")
    assert measured.ratio <= GENEROUS
