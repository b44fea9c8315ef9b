"""Run a kernel on two devices with the same inputs and compare the results bit by bit.

Imports NumPy: import this module only in a process that runs kernels.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.acceptance.agreement import AGREES, DISAGREES, FAULT, TWIN_FAULT, UNSUPPORTED
from tilewright.acceptance.bit_comparison import BitDifference, compare_bits, describe_spans
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.errors import DeviceError, UnsupportedError
from tilewright.building.compile_job import LIBRARY
from tilewright.dispatch.comparison import compare_output
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import PoisonedTensor
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.dispatch.verify import SPECIAL_SEED
from tilewright.ops.problem_text import format_problem

if TYPE_CHECKING:
    from tilewright.building.store.artifact import Artifact
    from tilewright.ops.kernel import Kernel
    from tilewright.runtime.device import Device


@dataclass(frozen=True)
class Subject:
    """A built kernel, and the memory of a problem's tensors before the launch."""

    kernel: Kernel
    artifact: Artifact
    problem: Any

    def prepare_tensors(self, inputs: Mapping[str, Any], device: Device) -> list[PoisonedTensor]:
        """The tensors as in verification: the kernel's form of the inputs, poisoned outputs and gaps."""
        execution = get_execution(self.kernel.op)
        values = dict(inputs)
        for preparation in execution.preparations(self.kernel.config, self.problem):
            values[preparation.tensor] = preparation.apply(values[preparation.tensor])
        return [
            PoisonedTensor(each, to_numpy_dtype(each.dtype, device.arch), values.get(each.name))
            for each in execution.tensors(self.problem)
        ]

    def bind(self, device: Device) -> BoundKernel:
        """The kernel, loaded for a device and bound to the problem."""
        functions = bind_functions(device, self.artifact.verify_file(LIBRARY), self.kernel)
        return BoundKernel(device, self.kernel, functions, get_execution(self.kernel.op), self.problem)


def run_once(subject: Subject, device: Device, inputs: Mapping[str, Any]) -> list[PoisonedTensor]:
    """Run a kernel once; returns its tensors with their contents after the launch."""
    tensors, call = subject.prepare_tensors(inputs, device), subject.bind(device)
    with ExitStack() as freed:
        buffers = [freed.enter_context(device.allocate(each.nbytes, each.tensor.name)) for each in tensors]
        for buffer, each in zip(buffers, tensors, strict=True):
            buffer.copy_from(each.memory)
        with device.make_current():
            call([buffer.address for buffer in buffers], None)
        device.synchronize()
        for buffer, each in zip(buffers, tensors, strict=True):
            buffer.copy_to(each.after)
    return tensors


def compare_runs(subject: Subject, device: Device, twin: Device, seed: int) -> dict[str, Any]:
    """Run a kernel twice on the device and once on its emulated twin, and compare all three.

    Whatever fails is in the answer: `message` says what, and `sound` is false if the device may be unusable.
    """
    found: dict[str, Any] = {"problem": format_problem(subject.problem, subject.kernel.config), "seed": seed}
    references = ReferenceCache()
    expected = references.get_expected(subject.kernel.op, subject.problem, seed, device.arch)
    clock = time.perf_counter()
    try:
        mine = run_once(subject, device, expected.inputs)
        again = run_once(subject, device, expected.inputs)
    except UnsupportedError as error:
        return {**found, "verdict": UNSUPPORTED, "message": str(error)}
    except DeviceError as error:
        return {**found, "verdict": FAULT, "message": str(error), "sound": False}
    found["device_s"] = round(time.perf_counter() - clock, 3)
    clock = time.perf_counter()
    try:
        with twin.recording() as launches:
            twins = run_once(subject, twin, expected.inputs)
    except DeviceError as error:
        return {**found, "verdict": TWIN_FAULT, "message": str(error)}
    found["emulated_s"] = round(time.perf_counter() - clock, 3)
    repeatable = all(np.array_equal(a.after, b.after) for a, b in zip(mine, again, strict=True))
    differences = _compare_tensors(subject, mine, twins, seed, references, device)
    strays = [said for each in mine if (said := each.describe_stray_writes())]
    # Both runs: one may be right by chance.
    own = mine if repeatable else [*mine, *again]
    right = _is_right(subject, own, seed, references, device), _is_right(subject, twins, seed, references, device)
    messages = [*strays, *(describe_difference(difference, tensor.tensor.shape) for difference, tensor in differences)]
    if not repeatable:
        messages.append("two runs on the device with the same inputs gave different results")
    return {
        **found,
        "verdict": DISAGREES if differences or strays else AGREES,
        "message": "; ".join(messages),
        "repeatable": repeatable,
        "strays": len(strays),
        "atomics": sum(launch.counters.atomics for launch in launches),
        "device_right": right[0],
        "emulated_right": right[1],
        "differences": [difference.to_json() for difference, _ in differences],
    }


def _compare_tensors(
    subject: Subject,
    mine: Sequence[PoisonedTensor],
    twins: Sequence[PoisonedTensor],
    seed: int,
    references: ReferenceCache,
    device: Device,
) -> list[tuple[BitDifference, PoisonedTensor]]:
    """The outputs that differ. Elements that the op leaves undefined are not compared."""
    allowed = references.get_tolerances((subject.kernel,), subject.problem, seed, device.arch)
    found = []
    for own, other in zip(mine, twins, strict=True):
        if not own.tensor.output:
            continue
        limit = np.asarray(allowed[own.tensor.name].limit, dtype=np.float64)
        difference = compare_bits(
            own.tensor.name,
            own.tensor.dtype,
            own.get_values(),
            other.get_values(),
            defined=np.broadcast_to(np.isfinite(limit), own.tensor.shape),
            untouched=own.find_untouched() & ~other.find_untouched(),
        )
        if difference is not None:
            found.append((difference, own))
    return found


def _is_right(
    subject: Subject, tensors: Sequence[PoisonedTensor], seed: int, references: ReferenceCache, device: Device
) -> bool:
    """Whether all outputs are within the tolerance of the op's reference."""
    op, problem, arch = subject.kernel.op, subject.problem, device.arch
    expected = references.get_expected(op, problem, seed, arch).outputs
    allowed = references.get_tolerances((subject.kernel,), problem, seed, arch)
    return not any(
        compare_output(each, expected, allowed, references.get_ulps(op, problem, seed, arch, each.tensor), seed).message
        for each in tensors
        if each.tensor.output
    )


def describe_difference(difference: BitDifference, shape: Sequence[int]) -> str:
    """One sentence about a tensor that differs."""
    index, mine, twin = difference.shown[0]
    where = f"{difference.tensor}[{', '.join(map(str, index))}]"
    size = "no finite pair" if difference.max_ulps is None else f"at most {difference.max_ulps:,.0f} ulp"
    parts = [
        f"{difference.different:,} of {difference.elements:,} elements of {difference.tensor} differ ({size}), the "
        f"first is {where}: {mine:.8g} on the device, {twin:.8g} emulated"
    ]
    if difference.untouched:
        parts.append(f"{difference.untouched:,} have the bytes of unwritten memory on the device")
    if difference.nans:
        parts.append(f"{difference.nans:,} are NaN on one side only")
    if place := describe_spans(shape, difference.spans):
        parts.append(place)
    return ", ".join(parts)


def list_seeds(seed: int) -> list[int]:
    """The seeds of a comparison: the op's special inputs, then random ones."""
    return list(dict.fromkeys((SPECIAL_SEED, seed)))
