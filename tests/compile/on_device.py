"""A built kernel launched on the emulated device, whether the problem fits it or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from built_kernels import built_unchecked
from tilewright.arch.number_formats import numpy_dtype
from tilewright.base.errors import DeviceError, UnsupportedError
from tilewright.building.store.artifact import Artifact
from tilewright.building.unit import LIBRARY
from tilewright.dispatch.guarded import Guarded
from tilewright.dispatch.launch import Call, functions_of
from tilewright.dispatch.plan import execution_of
from tilewright.emulator.launch import Mode
from tilewright.ops.kernel import Kernel

Inputs = Mapping[str, Any]
WHOLE_NUMBERS = 0  # the seed of inputs whose sums are exact


def device_of(kernel: Kernel) -> tw.Device:
    return tw.Device(f"emulated:{kernel.arch}")


def call_of(kernel: Kernel, artifact: Artifact, problem: Any) -> Call:
    device = device_of(kernel)
    functions = functions_of(device, artifact.checked(LIBRARY), kernel)
    return Call(device, kernel, functions, execution_of(kernel.op), problem)


def as_they_are(inputs: Inputs) -> Inputs:
    return inputs


def computed(
    kernel: Kernel, artifact: Artifact, problem: Any, arranged: Callable[[Inputs], Inputs] = as_they_are
) -> tuple[Guarded, Any]:
    """The output as the kernel leaves it, and as it should be. Inputs are small whole numbers."""
    device, call, execution = device_of(kernel), call_of(kernel, artifact, problem), execution_of(kernel.op)
    inputs = execution.inputs(problem, WHOLE_NUMBERS, device.arch)
    given = arranged(inputs)
    placed = [Guarded(t, numpy_dtype(t.dtype, device.arch), given.get(t.name)) for t in execution.tensors(problem)]
    buffers = [device.allocate(each.nbytes, each.tensor.name) for each in placed]
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_from(each.memory)
    with device.selected(), device.emulating(mode=Mode.STRICT):
        call([buffer.address for buffer in buffers], None)
        device.synchronize()
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_to(each.after)
    assert not any(each.damage() for each in placed if not each.tensor.output)
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
    execution, arch, name = execution_of(kernel.op), device_of(kernel).arch, output.tensor.name
    inputs = execution.inputs(problem, WHOLE_NUMBERS, arch)
    allowed = execution.tolerance(kernel.config, problem, inputs, {name: expected}, arch)[name].limit
    within = np.abs(output.values().astype(np.float64) - expected) <= allowed
    return "right" if within.all() and not output.damage() else "wrong"


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
