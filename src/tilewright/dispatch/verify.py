"""Is what a kernel computes right? Runs it on a device and holds every element against the op's reference.

Imports NumPy: import this module only where kernels are to be verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilewright.arch.number_formats import Floats, numpy_dtype, spacing
from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, InvalidValueError, UnsupportedError
from tilewright.base.events import task
from tilewright.building.store.artifact import Artifact
from tilewright.building.unit import LIBRARY
from tilewright.dispatch.guarded import Guarded
from tilewright.dispatch.launch import Call, Functions, functions_of
from tilewright.dispatch.plan import execution_of
from tilewright.ops import fits
from tilewright.ops.execution import Tensor
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.emulator.counters import Counters
    from tilewright.emulator.launch import Mode
    from tilewright.runtime.device import Device

# ok: every element within its tolerance. wrong: not so, or something was written that is none of the outputs.
# fault: the device stopped the kernel. unsupported: the kernel does not compute such a problem.
Verdict = Literal["ok", "wrong", "fault", "unsupported"]
# Ops give inputs of a special kind for this seed where they have some: GEMM whole numbers, whose sums are exact.
SPECIAL_SEED = 0


@dataclass(frozen=True, slots=True)
class Check:
    """What came of one problem. Errors are the worst of all elements and of all inputs that were tried."""

    kernel: Kernel
    problem: Any
    verdict: Verdict
    message: str = ""
    error_ulps: float = 0.0  # in ulps of the output's type, see _ulps
    share: float = 0.0  # of the tolerance: above 1 is wrong
    worst: tuple[int, ...] = ()  # the element with the largest share
    counters: Counters | None = None  # of one launch, on an emulated device

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"


@dataclass(frozen=True, slots=True)
class _Difference:
    """An output held against the reference."""

    tensor: str
    share: float = 0.0
    error_ulps: float = 0.0
    worst: tuple[int, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class _Subject:
    """A kernel on a device, loaded and bound."""

    kernel: Kernel
    device: Device
    mode: Mode | None
    functions: Functions = field(repr=False)


def verify(
    kernel: Kernel,
    artifact: Artifact,
    device: Device,
    problems: Sequence[Any],
    seed: int = 1,
    mode: Mode | None = None,
) -> list[Check]:
    """Run a built kernel on problems and check each. `mode` is how an emulated device runs (None: as it is set).

    Each problem is computed twice: with the op's special inputs (seed 0) and with random ones. The second time waves
    run in the other order, in strict mode. Outputs, the gaps between their lines and those between lines of the inputs
    are poisoned before, so that what is not written, written beside its place or read from there is seen. Memory is
    exactly as large as the tensors.
    """
    if kernel.arch != device.arch.name:
        raise InvalidValueError(f"{kernel.slug} is a kernel for {kernel.arch}, {device.name} is a {device.arch.name}")
    functions = functions_of(device, artifact.checked(LIBRARY), kernel)
    subject = _Subject(kernel, device, mode, functions)
    with task(f"verifying {kernel.slug}", len(problems)) as advance:
        checks = []
        for problem in problems:
            checks.append(_check(subject, problem, seed))
            advance(str(problem))
    return checks


def _check(subject: _Subject, problem: Any, seed: int) -> Check:
    kernel = subject.kernel
    refused = fits(kernel.config, problem, kernel.arch)
    if refused:
        return Check(kernel, problem, "unsupported", str(refused[0]))
    try:
        runs = [_run(subject, problem, each) for each in dict.fromkeys((SPECIAL_SEED, seed))]
    except UnsupportedError as error:
        return Check(kernel, problem, "unsupported", f"the rules accept it, the library does not: {error}")
    except DeviceError as error:
        return Check(kernel, problem, "fault", str(error))
    differences = [difference for found, _ in runs for difference in found]
    worst = max(differences, key=lambda d: (bool(d.message), d.share))
    return Check(
        kernel,
        problem,
        "wrong" if worst.message else "ok",
        worst.message,
        max(d.error_ulps for d in differences),
        worst.share,
        worst.worst,
        runs[-1][1],
    )


def _run(subject: _Subject, problem: Any, seed: int) -> tuple[list[_Difference], Counters | None]:
    """One launch and all that is wrong with its result."""
    kernel, device = subject.kernel, subject.device
    execution, arch = execution_of(kernel.op), device.arch
    inputs = execution.inputs(problem, seed, arch)
    expected = execution.reference(problem, inputs, arch)
    allowed = execution.tolerance(kernel.config, problem, inputs, expected, arch)
    prepared = dict(inputs)
    for preparation in execution.preparations(kernel.config, problem):
        prepared[preparation.tensor] = preparation.apply(prepared[preparation.tensor])
    call = Call(device, kernel, subject.functions, execution, problem)
    tensors = execution.tensors(problem)
    with ExitStack() as freed:
        placed = [Guarded(t, numpy_dtype(t.dtype, arch), prepared.get(t.name)) for t in tensors]
        buffers = [freed.enter_context(device.allocate(each.nbytes, each.tensor.name)) for each in placed]
        for buffer, each in zip(buffers, placed, strict=True):
            buffer.copy_from(each.memory)
        counters = _launch(subject, call, [buffer.address for buffer in buffers], turned=seed != SPECIAL_SEED)
        for buffer, each in zip(buffers, placed, strict=True):
            buffer.copy_to(each.after)
    found = [
        _Difference(each.tensor.name, message=f"{said} (seed {seed})") for each in placed if (said := each.damage())
    ]
    found += [_compared(each, expected, allowed, seed, device) for each in placed if each.tensor.output]
    return found, counters


def _launch(subject: _Subject, call: Call, addresses: Sequence[int], turned: bool) -> Counters | None:
    device = subject.device
    if device.kind != "emulated":
        if subject.mode is not None:
            raise InvalidValueError(f"a mode is for emulated devices; {device.name} runs as it does")
        with device.selected():
            call(addresses, None)
        device.synchronize()
        return None
    settings = device.emulating(mode=subject.mode, detailed=True, turned=turned)
    with device.selected(), settings, device.recording() as launches:
        call(addresses, None)
        device.synchronize()
    return reduce(add, (launch.counters for launch in launches)) if launches else None


def _compared(
    placed: Guarded, expected: Mapping[str, Any], allowed: Mapping[str, Any], seed: int, device: Device
) -> _Difference:
    """The output's element that is worst, in shares of its tolerance."""
    tensor = placed.tensor
    wanted = np.asarray(expected[tensor.name], dtype=np.float64)
    limit = np.asarray(allowed[tensor.name], dtype=np.float64)
    found = placed.values().astype(np.float64)
    error = np.abs(found - wanted)
    error[~np.isfinite(found)] = np.inf
    share = np.divide(error, limit, out=np.where(error > 0, np.inf, 0.0), where=limit > 0)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(share)), share.shape))
    ulps = float((error / _ulps(wanted, tensor.dtype, device.arch)).max())
    message = ""
    if share[worst] > 1:
        off = int(np.count_nonzero(share > 1))
        missing = int(np.count_nonzero(placed.untouched()))
        message = (
            f"{_element(tensor, worst)} is {found[worst]:.8g}, should be {wanted[worst]:.8g} ± {limit[worst]:.3g}; "
            f"{off:,} of {share.size:,} elements are wrong"
            + (f", {missing:,} were never written" if missing else "")
            + f" (seed {seed})"
        )
    return _Difference(tensor.name, float(share[worst]), ulps, worst, message)


def _ulps(wanted: Floats, dtype: str, arch: Arch) -> Floats:
    """One ulp of each element. A small element, left when large terms cancel, has that of the root mean square."""
    typical = np.sqrt(np.mean(wanted * wanted))
    return spacing(np.maximum(np.abs(wanted), typical), dtype, arch)


def _element(tensor: Tensor, index: tuple[int, ...]) -> str:
    return f"{tensor.name}[{', '.join(map(str, index))}]"
