"""Measure the time of a verified kernel on a GPU: tensors in memory, hot or cold, and events around its launches.

The clock and power under load are read with AMD's `amdsmi`, if it is installed. Imports NumPy: import this module only
where kernels are timed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.events import Notice, emit
from tilewright.bench.record import TimeStats
from tilewright.bench.timing import MAX_BATCH, TimingSettings, compute_time_stats, time_calls
from tilewright.building.compile_job import LIBRARY
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import PoisonedTensor

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.building.store.artifact import Artifact
    from tilewright.dispatch.reference_cache import ExpectedOutputs, ReferenceCache
    from tilewright.ops.kernel import Kernel
    from tilewright.runtime.device import Device
    from tilewright.runtime.device_objects import Buffer, Stream, StreamEvent

AMDSMI = "amdsmi"
# Alignment of the tensors of a set: that of hipMalloc, and one page, so that sets share no cache line.
ALIGNMENT = 4096
# Enough launches for the shortest samples; more sets would only cost memory and time to fill.
MAX_SETS = MAX_BATCH


def measure_times(
    device: Device,
    kernel: Kernel,
    artifact: Artifact,
    problem: Any,
    settings: TimingSettings,
    references: ReferenceCache,
) -> tuple[TimeStats, str]:
    """The kernel's times on a problem, and a note for readers of the times. Correctness is not checked here.

    `references` holds the inputs that the kernel was verified with.
    """
    execution = get_execution(kernel.op)
    call = BoundKernel(
        device, kernel, bind_functions(device, artifact.verify_file(LIBRARY), kernel), execution, problem
    )
    tensors = _prepare_tensors(
        kernel, problem, references.get_expected(kernel.op, problem, settings.seed, device.arch), device.arch
    )
    size = sum(_round_to_alignment(each.nbytes) for each in tensors)
    count = count_tensor_sets(size, device.arch) if settings.cold else 1
    with ExitStack() as freed:
        memory = freed.enter_context(device.allocate(size * count, f"{count} sets of tensors"))
        stream = device.stream()
        launches = [
            call.prepare_launch(_copy_tensors(memory, tensors, number * size), stream) for number in range(count)
        ]
        turn = RotatingLaunches(launches)
        before = None
        if settings.cold and size * (count - 1) < cache_bytes(device.arch):
            sweep = freed.enter_context(device.allocate(cache_bytes(device.arch), "the buffer that flushes the caches"))
            before = _make_cache_flush(sweep, stream, turn)
        readings: list[Reading] = []
        read = open_monitor(device)
        clock = EventClock(
            device,
            stream,
            max_batch=count if before is not None else MAX_BATCH,
            before=before,
            busy=None if read is None else lambda: readings.append(read()),
        )
        timing = time_calls(clock, turn, settings)
        stream.synchronize()
    last = readings[-1] if readings else Reading()
    times = compute_time_stats(timing.samples, warmups=timing.warmups, clock_mhz=last.clock_mhz, power_w=last.power_w)
    return times, timing.note


class RotatingLaunches:
    """Launches in rotation: each call makes the next one, and the first again after the last."""

    __slots__ = ("_launches", "_next")

    def __init__(self, launches: Sequence[Callable[[], None]]) -> None:
        self._launches = launches
        self._next = 0

    def __call__(self) -> None:
        number = self._next
        self._next = number + 1 if number + 1 < len(self._launches) else 0
        self._launches[number]()

    def reset(self) -> None:
        """Make the next call the first launch."""
        self._next = 0


def cache_bytes(arch: Arch) -> int:
    """The size of the GPU's shared caches: L2 of all dies, and the last level (MALL)."""
    return arch.memory.l2_bytes * arch.compute.dies + arch.memory.mall_bytes


def count_tensor_sets(size: int, arch: Arch) -> int:
    """The number of tensor sets, of `size` bytes each, that a cold measurement rotates through.

    Enough that the other sets fill the caches before a set is used again; at most MAX_SETS, and at least two.
    """
    return max(2, min(-(-cache_bytes(arch) // size) + 1, MAX_SETS))


def _make_cache_flush(sweep: Buffer, stream: Any, turn: RotatingLaunches) -> Callable[[], None]:
    """The step before each sample if the sets do not fill the caches.

    It flushes them with another buffer and restarts the rotation, so that no sample uses a set twice.
    """

    def flush_caches() -> None:
        sweep.fill(0, stream, wait=False)
        turn.reset()

    return flush_caches


def _prepare_tensors(kernel: Kernel, problem: Any, expected: ExpectedOutputs, arch: Arch) -> list[PoisonedTensor]:
    """The tensors' memory as in verification: random inputs, poisoned outputs and gaps."""
    execution = get_execution(kernel.op)
    inputs = dict(expected.inputs)
    for preparation in execution.preparations(kernel.config, problem):
        inputs[preparation.tensor] = preparation.apply(inputs[preparation.tensor])
    return [
        PoisonedTensor(each, to_numpy_dtype(each.dtype, arch), inputs.get(each.name))
        for each in execution.tensors(problem)
    ]


@contextmanager
def allocate_tensors(device: Device, tensors: Sequence[PoisonedTensor]) -> Iterator[list[int]]:
    """Memory of a device with one set of tensors, for as long as the block lasts; yields their addresses."""
    size = sum(_round_to_alignment(each.nbytes) for each in tensors)
    with device.allocate(size, "a set of tensors") as memory:
        yield _copy_tensors(memory, tensors, 0)


def _copy_tensors(memory: Buffer, tensors: Sequence[PoisonedTensor], start: int) -> list[int]:
    """Copy the tensors into memory one after another, and return their addresses."""
    addresses = []
    for each in tensors:
        memory.copy_from(each.memory, at=start)
        addresses.append(memory.address + start)
        start += _round_to_alignment(each.nbytes)
    return addresses


def _round_to_alignment(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _EventPair(NamedTuple):
    """The events of a sample, and the functions that record them in the stream."""

    start: StreamEvent
    stop: StreamEvent
    record_start: Callable[[], None]
    record_stop: Callable[[], None]


class EventClock:
    """A `Clock` of a device. All samples of a request are put into the stream before any is waited for.

    A GPU must have work queued before a sample: otherwise it waits for the host during the sample, and that time would
    count. So each series of samples begins with untimed launches, as many as one sample has. With `before`, that
    function provides the work: it is called before each sample, outside its time. `busy` is called once while samples
    wait in the stream, so that it reads the GPU under load.
    """

    def __init__(
        self,
        device: Device,
        stream: Stream | None,
        *,
        max_batch: int = MAX_BATCH,
        before: Callable[[], None] | None = None,
        busy: Callable[[], None] | None = None,
    ) -> None:
        self.device = device
        self.stream = stream
        self.max_batch = max_batch
        self._before = before
        self._busy = busy
        self._pairs: list[_EventPair] = []

    def take_samples(self, call: Callable[[], None], count: int, batch: int) -> list[float]:
        while len(self._pairs) < count:
            self._pairs.append(self._create_pair())
        pairs = self._pairs[:count]
        with self.device.make_current():
            if self._before is None:
                for _ in range(batch):
                    call()
            for pair in pairs:
                if self._before is not None:
                    self._before()
                pair.record_start()
                for _ in range(batch):
                    call()
                pair.record_stop()
        if self._busy is not None:
            self._busy()
        pairs[-1].stop.synchronize()
        return [pair.stop.elapsed_ms(pair.start) * 1000 / batch for pair in pairs]

    def _create_pair(self) -> _EventPair:
        start, stop = self.device.event(), self.device.event()
        return _EventPair(start, stop, start.make_recorder(self.stream), stop.make_recorder(self.stream))


@dataclass(frozen=True, slots=True)
class Reading:
    """A GPU's readings; None if it does not report one."""

    clock_mhz: float | None = None
    power_w: float | None = None


def open_monitor(device: Device) -> Callable[[], Reading] | None:
    """A function that reads a GPU's clock and power now; None without `amdsmi`.

    The GPU is found by its PCI bus address, as HIP and amdsmi number GPUs differently.
    """
    if importlib.util.find_spec(AMDSMI) is None:
        return None
    smi = importlib.import_module(AMDSMI)
    try:
        handle = _get_handle(device.bus_address())
    except smi.AmdSmiException as error:
        emit(Notice(f"clock and power of {device.name} will not be recorded: amdsmi reports {error}"))
        return None

    def read() -> Reading:
        try:
            return Reading(_read_clock(smi, handle), _read_power(smi, handle))
        except smi.AmdSmiException as error:
            emit(Notice(f"clock and power of {device.name} cannot be read: amdsmi reports {error}"))
            return Reading()

    return read


@cache
def _get_handle(address: str) -> Any:
    """amdsmi's handle of the GPU at an address. The library is opened once and stays open in this process."""
    smi = importlib.import_module(AMDSMI)
    smi.amdsmi_init()
    return smi.amdsmi_get_processor_handle_from_bdf(address)


def _read_clock(smi: Any, handle: Any) -> float | None:
    """The engine clock in MHz. It was called cur_clk before ROCm 6.2."""
    info = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)
    return _find_number(info, "clk", "cur_clk")


def _read_power(smi: Any, handle: Any) -> float | None:
    """The socket power in watts. GPUs report one of the two values, and N/A for the other."""
    return _find_number(smi.amdsmi_get_power_info(handle), "current_socket_power", "average_socket_power")


def _find_number(info: dict[str, Any], *names: str) -> float | None:
    """The first of these that is a number above 0."""
    for name in names:
        value = info.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
    return None
