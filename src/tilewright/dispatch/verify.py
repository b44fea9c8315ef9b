"""Verifies kernels: runs them on a device and compares every element with the op's reference.

Imports NumPy: import this module only to verify kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal

from tilewright.arch.blockwise import keep_freed_memory
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, DeviceMemoryError, InvalidValueError, UnsupportedError, require
from tilewright.base.events import report_task
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.comparison import Difference, compare_output
from tilewright.dispatch.launch import BoundKernel, CallSequence, Functions, bind_functions, bind_selection
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import POISON, PoisonedTensor, count_bytes
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.dispatch.select_stages import select_stages
from tilewright.ops import fits
from tilewright.ops.execution import Tensor
from tilewright.ops.kernel import Kernel
from tilewright.runtime.device import Device
from tilewright.runtime.device_objects import get_stream_handle
from tilewright.select.select import select_kernels

if TYPE_CHECKING:
    from tilewright.emulator.launch import Counters, Mode
    from tilewright.runtime.device_objects import Buffer

# ok: every element is within its tolerance. wrong: some are not, or there are stray writes.
# fault: the device stopped the kernel. unsupported: the kernel does not support the problem.
Verdict = Literal["ok", "wrong", "fault", "unsupported"]
# The limit of an error: that of its element, or that of the root mean square of all.
Bound = Literal["element", "rms"]
# Ops may have special inputs for this seed: GEMM has integers, whose sums are exact.
SPECIAL_SEED = 0


@dataclass(frozen=True, slots=True)
class Check:
    """The result for one problem. Errors are the worst of all outputs and all inputs."""

    kernel: Kernel
    problem: Any
    verdict: Verdict
    message: str = ""
    error_ulps: float = 0.0  # in ulps of the output's type, see `ReferenceCache.get_ulps`
    element_share: float = 0.0  # the largest ratio of an element's error to its limit: above 1 is wrong
    rms_share: float = 0.0  # the ratio of an output's root mean square error to its limit: above 1 is wrong
    error_abs: float = 0.0  # the largest absolute error of an element
    error_rel: float = 0.0  # an output's largest error divided by its largest expected value
    worst: tuple[int, ...] = ()  # the element with the largest share
    counters: Counters | None = None  # of one run, on an emulated device
    later: tuple[Kernel, ...] = ()  # the kernels after the first, if the problem needs several
    memory_full: bool = False  # a fault that the kernel did not cause: too little device memory for the tensors

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"

    @property
    def share(self) -> float:
        """The larger of both shares."""
        return max(self.element_share, self.rms_share)

    @property
    def bound(self) -> Bound:
        """The limit that has the larger share."""
        return "element" if self.element_share >= self.rms_share else "rms"


@dataclass(frozen=True)
class _Subject:
    """The subject of a check: a kernel on a device, or several in order. `bind` returns the call."""

    kernels: tuple[Kernel, ...]
    device: Device
    mode: Mode | None
    bind: Callable[[], BoundKernel | CallSequence] = field(repr=False)
    references: ReferenceCache | None = None

    def make_check(self, problem: Any, verdict: Verdict, message: str = "", **found: Any) -> Check:
        return Check(self.kernels[0], problem, verdict, message, later=self.kernels[1:], **found)


def verify(
    kernel: Kernel,
    artifact: Artifact,
    device: Device,
    problems: Sequence[Any],
    seed: int = 1,
    mode: Mode | None = None,
    references: ReferenceCache | None = None,
) -> list[Check]:
    """Run a built kernel on problems and check each. `mode` is the mode of an emulated device (None: its setting).

    Pass the same `references` for several kernels to compute a problem's reference only once.

    Each problem is computed twice: with the op's special inputs (seed 0) and with random ones. The second time waves
    run in reverse order, in strict mode. Outputs, and the gaps between lines of outputs and inputs, are poisoned
    before, so that missing writes, stray writes and stray reads are found. Memory is exactly as large as the tensors.
    """
    require("the kernel", kernel, Kernel)
    require("the artifact", artifact, Artifact)
    require("the device", device, Device)
    functions = _load_functions({kernel: artifact}, device)[kernel]
    execution = get_execution(kernel.op)
    keep_freed_memory()

    def check(problem: Any) -> Check:
        refused = fits(kernel.config, problem, kernel.arch)
        if refused:
            return Check(kernel, problem, "unsupported", str(refused[0]))
        call = partial(BoundKernel, device, kernel, functions, execution, problem)
        subject = _Subject((kernel,), device, mode, call, references)
        return _check_problem(subject, problem, seed)

    return _check_each(f"verifying {kernel.slug}", check, problems)


def compute_reference(kernel: Kernel, problem: Any, seed: int, arch: Arch, references: ReferenceCache) -> None:
    """Compute the reference and tolerances of a later `verify` in advance, if the kernel supports the problem."""
    if not fits(kernel.config, problem, kernel.arch):
        for each in _list_seeds(seed):
            references.get_tolerances((kernel,), problem, each, arch)


def verify_plan(
    artifacts: Mapping[Kernel, Artifact],
    device: Device,
    problems: Sequence[Any],
    seed: int = 1,
    mode: Mode | None = None,
) -> list[Check]:
    """Run whole problems, each with as many of these kernels as it needs, and check each as `verify` does.

    The kernels are of one op, the preferred first. Memory between the stages is also poisoned before each run.
    """
    kernels = tuple(artifacts)
    if not kernels:
        raise InvalidValueError("no kernels were given for these problems: pass at least one")
    functions = _load_functions(artifacts, device)
    execution = get_execution(kernels[0].op)

    def check(problem: Any) -> Check:
        selection = select_stages(problem, execution, lambda stage: select_kernels(stage, device.arch, kernels))
        try:
            taken = (selection.best.kernel, *(part.best.kernel for part in selection.stages[1:]))
        except UnsupportedError as error:
            return Check(kernels[0], problem, "unsupported", str(error))
        subject = _Subject(taken, device, mode, lambda: bind_selection(selection, device, functions.__getitem__)[1])
        return _check_problem(subject, problem, seed)

    return _check_each(f"verifying plans of {len(kernels)} kernels", check, problems)


def _load_functions(artifacts: Mapping[Kernel, Artifact], device: Device) -> dict[Kernel, Functions]:
    for kernel in artifacts:
        if kernel.arch != device.arch.name:
            raise InvalidValueError(
                f"{kernel.slug} is a kernel for {kernel.arch}, {device.name} is a {device.arch.name}"
            )
    return {kernel: bind_functions(device, each.verify_file(LIBRARY), kernel) for kernel, each in artifacts.items()}


def _check_each(what: str, check: Callable[[Any], Check], problems: Sequence[Any]) -> list[Check]:
    with report_task(what, len(problems)) as advance:
        checks = []
        for problem in problems:
            checks.append(check(problem))
            advance(str(problem))
    return checks


def _list_seeds(seed: int) -> list[int]:
    """The seeds that a problem is computed with."""
    return list(dict.fromkeys((SPECIAL_SEED, seed)))


def _check_problem(subject: _Subject, problem: Any, seed: int) -> Check:
    try:
        runs = _run_problem(subject, problem, _list_seeds(seed))
    except UnsupportedError as error:
        return subject.make_check(problem, "unsupported", f"the rules accept it, but the library rejects it: {error}")
    except DeviceError as error:
        return subject.make_check(problem, "fault", str(error), memory_full=isinstance(error, DeviceMemoryError))
    differences = [difference for found, _ in runs for difference in found]
    worst = max(differences, key=lambda d: (bool(d.message), d.element_share))
    return subject.make_check(
        problem,
        "wrong" if worst.message else "ok",
        worst.message,
        error_ulps=max(d.error_ulps for d in differences),
        element_share=max(d.element_share for d in differences),
        rms_share=max(d.rms_share for d in differences),
        error_abs=max(d.error_abs for d in differences),
        error_rel=max(d.error_rel for d in differences),
        worst=worst.worst,
        counters=runs[-1][1],
    )


def _run_problem(
    subject: _Subject, problem: Any, seeds: Sequence[int]
) -> list[tuple[list[Difference], Counters | None]]:
    """Launch all kernels of a problem with the inputs of each seed, and compare the results.

    All runs use the same buffers, which each fills anew. Only the last one counts cache lines and bank conflicts,
    which takes a third of an emulated run.
    """
    device = subject.device
    tensors = get_execution(subject.kernels[0].op).tensors(problem)
    sizes = [(count_bytes(each, to_numpy_dtype(each.dtype, device.arch)), each.name) for each in tensors]
    with device.make_current(), ExitStack() as freed:  # once for all calls of the device
        buffers = [freed.enter_context(device.allocate(*each)) for each in sizes]
        return [_run_seed(subject, problem, tensors, buffers, each, counted=each == seeds[-1]) for each in seeds]


def _run_seed(
    subject: _Subject, problem: Any, tensors: Sequence[Tensor], buffers: Sequence[Buffer], seed: int, *, counted: bool
) -> tuple[list[Difference], Counters | None]:
    first, arch = subject.kernels[0], subject.device.arch
    execution = get_execution(first.op)
    # Nothing is cached between runs unless the caller passes a cache: a problem may fill half the memory.
    references = subject.references or ReferenceCache()
    expected = references.get_expected(first.op, problem, seed, arch)
    allowed = references.get_tolerances(subject.kernels, problem, seed, arch)
    prepared = dict(expected.inputs)
    if len(subject.kernels) == 1:  # several kernels use unprepared tensors
        for preparation in execution.preparations(first.config, problem):
            prepared[preparation.tensor] = preparation.apply(prepared[preparation.tensor])
    call = subject.bind()
    _check_given(tensors, expected.inputs)
    placed = [PoisonedTensor(t, to_numpy_dtype(t.dtype, arch), prepared.get(t.name)) for t in tensors]
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_from(each.memory)
    addresses = [buffer.address for buffer in buffers]
    counters = _launch(subject, call, addresses, turned=seed != SPECIAL_SEED, detailed=counted)
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_to(each.after)
    found = [
        Difference(each.tensor.name, message=f"{said} (seed {seed})")
        for each in placed
        if (said := each.describe_stray_writes())
    ]
    for each in placed:
        if each.tensor.output:
            ulps = references.get_ulps(first.op, problem, seed, arch, each.tensor)
            found.append(compare_output(each, expected.outputs, allowed, ulps, seed))
    return found, counters


def _check_given(tensors: Sequence[Tensor], inputs: Mapping[str, Any]) -> None:
    for tensor in tensors:
        if (not tensor.output or tensor.updated) and tensor.name not in inputs:
            what = "no old contents" if tensor.updated else "no values"
            raise InvalidValueError(f"the op's `inputs` return {what} for {tensor.name}, only {', '.join(inputs)}")


def _launch(
    subject: _Subject, call: BoundKernel | CallSequence, addresses: Sequence[int], *, turned: bool, detailed: bool
) -> Counters | None:
    device = subject.device
    if isinstance(call, CallSequence):
        for buffer in call.get_buffers(get_stream_handle(None)):
            buffer.fill(POISON)
    if device.kind != "emulated":
        if subject.mode is not None:
            raise InvalidValueError(f"a mode applies to emulated devices only; {device.name} is a GPU")
        with device.make_current():
            call(addresses, None)
        device.synchronize()
        return None
    settings = device.emulating(mode=subject.mode, detailed=detailed, turned=turned)
    with device.make_current(), settings, device.recording() as launches:
        call(addresses, None)
        device.synchronize()
    return reduce(add, (launch.counters for launch in launches)) if launches else None
