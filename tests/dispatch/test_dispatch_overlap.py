"""Outputs that share memory with another tensor of a call are refused; neighbours and interleaved ones are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import TensorError
from tilewright.dispatch.run_tensors import check_disjoint, check_outputs, list_disjoint_pairs
from tilewright.dispatch.tensors import View
from tilewright.ops import find_op
from tilewright.ops.execution import Tensor

BASE = 0x7000_0000


def view(at: int, shape: Sequence[int], strides: Sequence[int]) -> View:
    return View(BASE + at, tuple(shape), tuple(strides), "fp32", 0, None)


def tensor(name: str, found: View, output: bool = False) -> Tensor:
    return Tensor(name, "fp32", found.shape, found.strides, output)


def check(*views: View, outputs: int = 1, inputs: bool = True) -> None:
    first = len(views) - outputs
    tensors = [tensor(f"t{place}", found, place >= first) for place, found in enumerate(views)]
    check_disjoint(list_disjoint_pairs(tensors, [found.form for found in views], inputs=inputs), tensors, views)


def test_neighbours_are_apart_and_one_common_byte_is_named() -> None:
    check(view(0, [4, 8], [8, 1]), view(128, [4, 8], [8, 1]))
    check(view(128, [4, 8], [8, 1]), view(0, [4, 8], [8, 1]))
    with pytest.raises(TensorError, match=r"t1 is an output, and it shares memory with the input t0: both span the 4 "):
        check(view(0, [4, 8], [8, 1]), view(124, [4, 8], [8, 1]))
    with pytest.raises(TensorError, match=r"from 0x7000007c to 0x70000080"):
        check(view(124, [4, 8], [8, 1]), view(0, [4, 8], [8, 1]))


def test_parts_of_one_packed_tensor_are_apart_though_their_spans_are_not() -> None:
    """Columns 0..3 and 4..7 of rows of eight, and the same with one column in common."""
    check(view(0, [4, 4], [8, 1]), view(16, [4, 4], [8, 1]))
    with pytest.raises(TensorError, match="shares memory"):
        check(view(0, [4, 5], [8, 1]), view(16, [4, 4], [8, 1]))


def test_negative_strides_reach_below_the_address() -> None:
    check(view(128, [4], [-1]), view(132, [4], [1]))
    with pytest.raises(TensorError, match="both span the 16 bytes"):
        check(view(128, [4], [-1]), view(116, [4], [1]))


def test_outputs_may_not_share_memory_either() -> None:
    x, y, z = view(0, [8], [1]), view(64, [8], [1]), view(92, [8], [1])
    with pytest.raises(TensorError, match="t1 is an output, and it shares memory with the output t2"):
        check(x, y, z, outputs=2)
    with pytest.raises(TensorError, match="the output t2"):
        check(x, y, z, outputs=2, inputs=False)
    check(x, y, x, inputs=False)  # of host arrays, which are copied first


def test_inputs_may_share_memory_with_each_other() -> None:
    check(view(0, [8], [1]), view(0, [8], [1]), view(32, [8], [1]))


@pytest.mark.parametrize(
    ("shape", "strides", "repeats"),
    [((4, 4), (4, 1), False), ((4, 4), (0, 1), True), ((4, 4), (2, 1), True), ((1, 4), (0, 1), False)],
)
def test_an_output_has_a_place_for_each_element(
    shape: tuple[int, ...], strides: tuple[int, ...], repeats: bool
) -> None:
    found = view(0, shape, strides)
    if repeats:
        with pytest.raises(TensorError, match="share memory with each other"):
            check_outputs([tensor("c", found, output=True)], [found])
    else:
        check_outputs([tensor("c", found, output=True)], [found])
    check_outputs([tensor("a", found)], [found])


@pytest.fixture
def memory(device: tw.Device) -> Any:
    buffer = device.allocate(512)
    buffer.copy_from(np.arange(128, dtype=np.float32))
    return buffer


def part(buffer: Any, first: int, count: int = 32, step: int = 1) -> View:
    """Elements of a buffer from `first` on."""
    return View(buffer.address + 4 * first, (count,), (step,), "fp32", buffer.device, buffer)


@pytest.mark.compile
def test_an_output_on_its_input_is_refused_on_every_way(registry: tw.Registry, memory: Any) -> None:
    problem = find_op("scale").problem_type(32)
    for _ in range(3):  # before anything is remembered
        with pytest.raises(TensorError, match="y is an output, and it shares memory with the input x"):
            registry.run(problem, part(memory, 0), out=part(memory, 0))
    registry.run(problem, part(memory, 0), out=part(memory, 32))
    assert id(problem) in registry._fast_paths, "the fast path is there"
    for shift in (31, 1, 0):
        with pytest.raises(TensorError, match=f"both span the {4 * (32 - shift)} bytes"):
            registry.run(problem, part(memory, 0), out=part(memory, shift))

    registry.run(problem, part(memory, 64), out=part(memory, 32))
    found = np.empty(128, np.float32)
    memory.copy_to(found)
    np.testing.assert_array_equal(found[32:64], 2 * np.arange(64, 96))


@pytest.mark.compile
def test_interleaved_tensors_run(registry: tw.Registry, memory: Any) -> None:
    problem = find_op("scale").problem_type(32)
    for _ in range(2):
        registry.run(problem, part(memory, 0, step=2), out=part(memory, 1, step=2))
    found = np.empty(128, np.float32)
    memory.copy_to(found)

    np.testing.assert_array_equal(found[1:64:2], 2 * found[0:64:2])
    with pytest.raises(TensorError, match="shares memory with the input x"):
        registry.run(problem, part(memory, 0, step=2), out=part(memory, 2, step=2))


@pytest.mark.compile
def test_host_arrays_are_copied_first_so_an_input_may_be_the_output(registry: tw.Registry, device: tw.Device) -> None:
    x = np.arange(32, dtype=np.float32)

    assert registry.run(find_op("scale").problem_type(32), x, out=x, device=device) is x
    np.testing.assert_array_equal(x, 2 * np.arange(32))
    with pytest.raises(TensorError, match="share memory with each other"):
        registry.run(
            find_op("scale").problem_type(32), x, out=np.lib.stride_tricks.as_strided(x, (32,), (0,)), device=device
        )
