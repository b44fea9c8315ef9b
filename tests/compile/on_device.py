"""A built kernel launched on the emulated device, whether the problem fits it or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built_unchecked, tiered
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.errors import DeviceError, UnsupportedError
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import PoisonedTensor
from tilewright.emulator.launch import Mode
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import Rule

Inputs = Mapping[str, Any]
WHOLE_NUMBERS = 0  # the seed of inputs whose sums are exact


def list_rule_cases(rules: Sequence[Rule], example: Callable[[Rule], Kernel]) -> list[Any]:
    """Parameters of a test of rules by their examples. CI builds examples with the fetched headers only."""
    newer = [pytest.param(rule, marks=pytest.mark.deep) for rule in rules if rule.since]
    return [*tiered((rule for rule in rules if not rule.since), lambda rule: [example(rule)]), *newer]


@contextmanager
def use_headers_of(rule: Rule) -> Iterator[None]:
    """Use CK headers for which the rule holds: what it rejects computes rightly with older ones."""
    if not rule.since:
        yield
        return
    if not (TREES / NEWER).is_dir():
        pytest.skip(ABSENT)
    with use_tree(TREES / NEWER):
        yield


def device_of(kernel: Kernel) -> tw.Device:
    return tw.Device(f"emulated:{kernel.arch}")


def call_of(kernel: Kernel, artifact: Artifact, problem: Any) -> BoundKernel:
    device = device_of(kernel)
    functions = bind_functions(device, artifact.verify_file(LIBRARY), kernel)
    return BoundKernel(device, kernel, functions, get_execution(kernel.op), problem)


def as_they_are(inputs: Inputs) -> Inputs:
    return inputs


def computed(
    kernel: Kernel, artifact: Artifact, problem: Any, arranged: Callable[[Inputs], Inputs] = as_they_are
) -> tuple[PoisonedTensor, Any]:
    """The output as the kernel leaves it, and as it should be. Inputs are small whole numbers."""
    device, call, execution = device_of(kernel), call_of(kernel, artifact, problem), get_execution(kernel.op)
    inputs = execution.inputs(problem, WHOLE_NUMBERS, device.arch)
    given = arranged(inputs)
    placed = [
        PoisonedTensor(t, to_numpy_dtype(t.dtype, device.arch), given.get(t.name)) for t in execution.tensors(problem)
    ]
    buffers = [device.allocate(each.nbytes, each.tensor.name) for each in placed]
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_from(each.memory)
    with device.make_current(), device.emulating(mode=Mode.STRICT):
        call([buffer.address for buffer in buffers], None)
        device.synchronize()
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_to(each.after)
    assert not any(each.describe_stray_writes() for each in placed if not each.tensor.output)
    (output,) = [each for each in placed if each.tensor.output]
    return output, execution.reference(problem, inputs, device.arch)[output.tensor.name]


def outcome(
    kernel: Kernel, artifact: Artifact, problem: Any, arranged: Callable[[Inputs], Inputs] = as_they_are
) -> str:
    """What comes of a problem: right, wrong, or the fault."""
    try:
        output, expected = computed(kernel, artifact, problem, arranged)
    except DeviceError as error:
        return str(error)
    execution, arch, name = get_execution(kernel.op), device_of(kernel).arch, output.tensor.name
    inputs = execution.inputs(problem, WHOLE_NUMBERS, arch)
    allowed = execution.tolerance(kernel.config, problem, inputs, {name: expected}, arch)[name].limit
    within = np.abs(output.get_values().astype(np.float64) - expected) <= allowed
    return "right" if within.all() and not output.describe_stray_writes() else "wrong"


def compare(
    kernel: Kernel,
    change: str,
    fitting: Any,
    other: Any,
    arranged: Callable[[Inputs], Inputs] = as_they_are,
) -> None:
    """A kernel is right about the one problem and refuses the other; changed to take it, it is wrong about it."""
    sound = built_unchecked(kernel)
    assert outcome(kernel, sound, fitting, arranged) == "right"
    with pytest.raises(UnsupportedError):
        call_of(kernel, sound, other)
    tampered = built_unchecked(kernel, change)
    assert outcome(kernel, tampered, fitting, arranged) == "right"
    assert outcome(kernel, tampered, other, arranged) != "right"
