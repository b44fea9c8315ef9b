"""The emulated device: it loads code objects and runs launches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import RLock

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.emulator import waitcnt
from tilewright.emulator.bundle import find_code_object
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_object import CodeObject, Symbol, read_code_object
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.descriptor import ENTRY_ALIGNMENT, Descriptor, read_descriptor
from tilewright.emulator.disassembly import disassemble
from tilewright.emulator.entry_state import EntryState, build_argument_memory, build_dispatch_packet, make_first_group
from tilewright.emulator.faults import CodeObjectError, Fault, LaunchFault
from tilewright.emulator.group import POISON, Batch
from tilewright.emulator.inlined_calls import find_source_frames
from tilewright.emulator.kernel_cache import find_kernel_cache, identify
from tilewright.emulator.kernel_metadata import KernelMetadata
from tilewright.emulator.launch import AUTO, LIMIT, MAX_THREADS, NATIVE, NUMPY, Counters, Launch, Mode
from tilewright.emulator.memory import Memory
from tilewright.emulator.native.engine_library import EngineLibrary
from tilewright.emulator.native.lowered import LoweredKernel
from tilewright.emulator.native.native_engine import BATCH_WAVES as NATIVE_BATCH_WAVES
from tilewright.emulator.native.native_engine import NativeBatch, NativeEngine, prepare_native
from tilewright.emulator.profile import ProfileRecorder
from tilewright.emulator.program import Listing, Program, make_listing
from tilewright.emulator.sanitizer.checks import PROGRESS, parse_checks
from tilewright.emulator.sanitizer.findings import CheckFault, Finding

# Waves that run together. A larger batch makes each step cheaper per wave, until the registers no longer fit the
# caches. Work-groups of one batch may wait for each other; those of a later batch have not started.
BATCH_WAVES = 256
# Private memory per lane for kernels whose need is known only at run time. HIP's own default is smaller.
_DYNAMIC_STACK = 16384
_PRIVATE_GRANULE = 16
_BATCH_PRIVATE_BYTES = 256 << 20  # of all waves that run together: 256 waves with a dynamic stack
_ARGUMENT_GRANULE = 16  # HSA runtime specification: the least alignment of argument memory


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel of a loaded module."""

    name: str
    metadata: KernelMetadata
    descriptor: Descriptor
    code: LoadedCode
    program: Program
    code_object: bytes = b""  # with the line table


@dataclass(frozen=True, slots=True)
class Module:
    """A code object in the memory of the device, at `base`."""

    base: int
    kernels: Mapping[str, DeviceKernel]
    symbols: Mapping[str, Symbol]

    def find_variable(self, name: str) -> tuple[int, int] | None:
        """Return address and size of a global variable, or None."""
        symbol = self.symbols.get(name)
        return (self.base + symbol.address, symbol.size) if symbol and symbol.kind == "STT_OBJECT" else None


class EmulatedDevice:
    """A GPU whose kernels run on the CPU. One launch at a time, from any thread."""

    def __init__(self, arch: Arch, memory: Memory) -> None:
        self.arch = arch
        self.memory = memory
        self._lock = RLock()

    def load(self, code: bytes) -> Module:
        """Load a code object, or a bundle's code object for this GPU, into memory."""
        data = find_code_object(code, self.arch.name)
        cache = find_kernel_cache()
        kept = None if cache is None else cache.read_code_object(data)
        code_object = kept or read_code_object(data)
        if code_object.arch != self.arch.name:
            raise CodeObjectError(f"it is for {code_object.arch}, but this is an emulated {self.arch.name}")
        if code_object.extent == 0:
            raise CodeObjectError("it has nothing to load")
        descriptors = {name: self._read_descriptor(code_object, name) for name in code_object.kernels}
        find_listing = functools.cache(lambda: make_listing(disassemble(data, self.arch)))
        if kept is None:
            find_listing()  # an error if LLVM cannot disassemble it
            if cache is not None:
                cache.keep_code_object(code_object)
        with self._lock:
            base = self.memory.allocate(code_object.extent, "code object")
            self._copy_code_object(code_object, base)
            self.memory.mark_written(base, code_object.extent)
        identity = "" if cache is None else identify(data)
        kernels = {
            name: self._make_kernel(code_object.kernels[name], descriptors[name], base, find_listing, identity, data)
            for name in descriptors
        }
        return Module(base, kernels, code_object.symbols)

    def unload(self, module: Module) -> None:
        """Free a module's memory. Its kernels must not be launched any more."""
        with self._lock:
            self.memory.free(module.base)

    def _copy_code_object(self, code_object: CodeObject, base: int) -> None:
        for section in code_object.sections:
            if section.data:
                self.memory.write(base + section.address, section.data)
        for relocation in code_object.relocations:
            value = (base + relocation.addend) % 2**64
            self.memory.write(base + relocation.address, value.to_bytes(8, "little"))

    def _read_descriptor(self, code_object: CodeObject, name: str) -> Descriptor:
        metadata = code_object.kernels[name]
        address, data = code_object.find_descriptor(name)
        descriptor = read_descriptor(data, address, self.arch.name)
        if descriptor.lanes != self.arch.wave_size or metadata.wave_size != descriptor.lanes:
            what = f"kernel {name} has waves of {descriptor.lanes} lanes ({metadata.wave_size} in its metadata)"
            raise CodeObjectError(f"{what}, but the emulated {self.arch.name} has {self.arch.wave_size}")
        if descriptor.entry % ENTRY_ALIGNMENT or not code_object.has_code(descriptor.entry):
            where = f"kernel {name} begins at {descriptor.entry:#x}"
            raise CodeObjectError(f"{where}, which is outside the code or not a multiple of {ENTRY_ALIGNMENT}")
        return descriptor

    def _make_kernel(
        self,
        metadata: KernelMetadata,
        descriptor: Descriptor,
        base: int,
        find_listing: Callable[[], Listing],
        identity: str,
        data: bytes,
    ) -> DeviceKernel:
        code = LoadedCode(self.arch, metadata.name, descriptor.lanes, descriptor.accumulators, base)
        program = Program(find_listing, code, descriptor.vgprs, identity)
        return DeviceKernel(metadata.name, metadata, descriptor, code, program, data)

    def launch(
        self,
        kernel: DeviceKernel,
        launch: Launch,
        mode: Mode = Mode.FAST,
        *,
        detailed: bool = False,
        limit: int = LIMIT,
        batch_waves: int = BATCH_WAVES,
        engine: str = AUTO,
        turned: bool = False,
        profile: ProfileRecorder | None = None,
        checks: str | Iterable[str] = (),
        found: Callable[[Finding], None] | None = None,
    ) -> Counters:
        """Run a kernel to its end. Errors of the kernel raise a `Fault`.

        In strict mode the waves of even work-groups run in ascending order and those of odd ones in descending order.
        With `turned` the orders are exchanged; also, copies to LDS arrive at once instead of at their wait, and a load
        whose register is written before a wait arrives before that write instead of after it.
        `engine` is "numpy", "native" (in C, compiled at its first use), or "auto": the native one if it supports the
        kernel, else NumPy. `profile` gets the counts of each instruction.
        `checks` are words of `sanitizer.checks`; they need the native engine. When the kernel has ended, `found` gets
        each finding; without it, findings raise a `CheckFault`.
        """
        self._check_launch(kernel, launch)
        wanted = parse_checks(checks)
        if wanted and engine == NUMPY:
            raise InvalidValueError(
                f"checks need the native engine, and '{NUMPY}' is given: use '{AUTO}' or '{NATIVE}'"
            )
        with self._lock:
            native = prepare_native(kernel.program, kernel.code, kernel.descriptor, NATIVE if wanted else engine)
            run = _LaunchRun(self, kernel, launch, mode, detailed or profile is not None, turned, profile, wanted)
            try:
                counters = run.run(limit, batch_waves, native)
            except Fault as fault:
                stopped = add_source(fault, kernel)
                if found is None:
                    for finding in run.findings:
                        stopped.add_note(f"found before: {finding}")
                else:
                    _pass_on(run.findings, found)
                raise stopped from fault.__cause__
            finally:
                if not wanted:
                    self.memory.forget_writes()
        if run.findings and found is None:
            raise CheckFault(run.findings)
        if found is not None:
            _pass_on(run.findings, found)
        return counters

    def _check_launch(self, kernel: DeviceKernel, launch: Launch) -> None:
        metadata, place = kernel.metadata, CodePlace(kernel=kernel.name)
        for what, extent in (("grid", launch.grid), ("work-group", launch.block)):
            if min(extent.x, extent.y, extent.z) < 1 or max(extent.x, extent.y, extent.z) >= 1 << 31:
                sizes = f"{extent.x} x {extent.y} x {extent.z}"
                raise LaunchFault(f"the {what} is {sizes}; each must be at least 1 and below 2³¹", place)
        for axis in "xyz":
            threads = getattr(launch.grid, axis) * getattr(launch.block, axis)
            if threads > MAX_THREADS:
                raise LaunchFault(f"{threads} threads along {axis}; a launch has at most {MAX_THREADS}", place)
        most = min(metadata.max_block_threads, self.arch.compute.max_block_threads)
        if launch.block.count > most:
            raise LaunchFault(f"{launch.block.count} threads per work-group; the kernel allows {most}", place)
        lds = kernel.descriptor.lds_bytes + launch.dynamic_lds
        if launch.dynamic_lds < 0 or lds > self.arch.lds.bytes:
            parts = f"{kernel.descriptor.lds_bytes} of the kernel and {launch.dynamic_lds} of the launch"
            raise LaunchFault(f"{lds} bytes of LDS ({parts}); {self.arch.name} has {self.arch.lds.bytes}", place)
        given, least, room = len(launch.arguments), metadata.explicit_bytes, metadata.explicit_room
        if not least <= given <= max(room, least):
            raise LaunchFault(
                f"{given} bytes of arguments; the kernel takes {least} (with padding up to {room})", place
            )


class _LaunchRun:
    """One launch, and the memory that it needs in addition to its arguments."""

    def __init__(
        self,
        device: EmulatedDevice,
        kernel: DeviceKernel,
        launch: Launch,
        mode: Mode,
        detailed: bool,
        turned: bool,
        profile: ProfileRecorder | None,
        checks: frozenset[str],
    ) -> None:
        self.findings: list[Finding] = []
        self._turned = turned
        self._profile = profile
        self._checks = checks
        self._device = device
        self._kernel = kernel
        self._launch = launch
        self._strict = mode is Mode.STRICT
        self._detailed = detailed
        self._counters = Counters()
        self._allocated: list[int] = []

    def run(self, limit: int, batch_waves: int, native: tuple[EngineLibrary, LoweredKernel] | None) -> Counters:
        try:
            start = self._prepare_entry_state()
            if native is None:
                self._run_numpy(start, limit, batch_waves)
            else:
                self._run_native(start, limit, batch_waves, *native)
            self._counters.waves = self._launch.grid.count * start.waves_per_block
            return self._counters
        finally:
            for address in self._allocated:
                self._device.memory.free(address)

    def _run_numpy(self, start: EntryState, limit: int, batch_waves: int) -> None:
        # These take longer to import than most launches on the native engine.
        import numpy as np  # noqa: PLC0415

        from tilewright.emulator.numpy_engine import Budget, NumpyEngine  # noqa: PLC0415

        program, code = self._kernel.program, self._kernel.code
        engine = NumpyEngine(program, code, self._counters, Budget(limit), self._profile)
        total = self._launch.grid.count
        at_once = self._choose_batch(batch_waves, start)
        scratch = self._allocate_scratch(at_once * start.waves_per_block)
        for first in range(0, total, at_once):
            blocks = min(at_once, total - first)
            with np.errstate(all="ignore"):
                batch = self._make_batch(start, blocks, scratch)
                engine.run(make_first_group(start, batch, first, blocks), self._kernel.descriptor.entry)
        engine.count_mix()

    def _run_native(
        self, start: EntryState, limit: int, batch_waves: int, library: EngineLibrary, lowered: LoweredKernel
    ) -> None:
        checks = self._checks - {PROGRESS} if self._launch.host_calls else self._checks  # the host makes progress, too
        checker = None
        if checks:
            from tilewright.emulator.native.launch_checker import LaunchChecker  # noqa: PLC0415 - it needs NumPy

            checker = LaunchChecker(library, self._device.memory, checks, self._launch.grid.count)
        code, counters = self._kernel.code, self._counters
        engine = NativeEngine(library, lowered, code, counters, limit, self._profile, checker)
        total = self._launch.grid.count
        waves = batch_waves if self._private_bytes else max(batch_waves, NATIVE_BATCH_WAVES)
        at_once = self._choose_batch(waves, start)
        scratch = self._allocate_scratch(at_once * start.waves_per_block)
        try:
            for first in range(0, total, at_once):
                engine.run(start, self._make_native_batch(scratch), first, min(at_once, total - first))
        finally:
            if checker is not None:
                self.findings += checker.take_findings(lowered, self._kernel.code, self._kernel.code_object)
        engine.count_mix(self._kernel.program)

    def _allocate(self, data: bytes, label: str) -> int:
        address = self._device.memory.allocate(max(len(data), 1), label, internal=True)
        self._allocated.append(address)
        self._device.memory.write(address, data)
        return address

    def _prepare_entry_state(self) -> EntryState:
        user = self._kernel.descriptor.user
        arguments = build_argument_memory(self._kernel.metadata, self._launch)
        # LLVM loads three words as four, so the last load may end after the last argument.
        kernarg = self._allocate(arguments + bytes(-len(arguments) % _ARGUMENT_GRANULE), "kernel arguments")
        packet = build_dispatch_packet(self._launch, self._kernel.descriptor, kernarg)
        dispatch = self._allocate(packet, "dispatch packet") if user.dispatch else 0
        first, last = 4 * user.preload_offset, 4 * (user.preload_offset + user.preload_length)
        if last > len(arguments) + 3:
            what = f"{last} bytes of arguments are preloaded, but there are {len(arguments)}"
            raise CodeObjectError(what, CodePlace(kernel=self._kernel.name))
        words = tuple(memoryview(arguments + bytes(-len(arguments) % 4)).cast("I")[first // 4 : last // 4])
        return EntryState(self._device.arch.name, self._kernel.descriptor, self._launch, kernarg, dispatch, words)

    @property
    def _private_bytes(self) -> int:
        """Private memory per lane."""
        descriptor = self._kernel.descriptor
        bytes_ = descriptor.private_bytes + (_DYNAMIC_STACK if descriptor.dynamic_stack else 0)
        return -(-bytes_ // _PRIVATE_GRANULE) * _PRIVATE_GRANULE

    def _choose_batch(self, waves: int, start: EntryState) -> int:
        """Return the number of work-groups that run together: those of at most `waves` waves, or at least one."""
        total = self._launch.grid.count
        if self._launch.cooperative:
            return total
        if self._private_bytes:
            waves = min(waves, _BATCH_PRIVATE_BYTES // (start.descriptor.lanes * self._private_bytes))
        return min(max(waves // start.waves_per_block, 1), total)

    def _allocate_scratch(self, waves: int) -> tuple[int, int]:
        """Allocate the private memory of a batch; return its address and size."""
        size = waves * self._kernel.descriptor.lanes * self._private_bytes
        if size == 0:
            return 0, 0
        address = self._device.memory.allocate(size, "private memory", internal=True)
        self._allocated.append(address)
        return address, size

    @property
    def _unset(self) -> int:
        """The first value of memory that a kernel must not read before it writes it."""
        return POISON if self._strict else 0

    @property
    def _lds_bytes(self) -> int:
        return self._kernel.descriptor.lds_bytes + self._launch.dynamic_lds

    def _fill_scratch(self, address: int, size: int) -> None:
        if size:
            view = self._device.memory.view(address, size)
            part = self._unset.to_bytes(4, "little") * min(size // 4, 1 << 18)
            for first in range(0, size, len(part)):
                view[first : first + len(part)] = part[: size - first]

    def _make_native_batch(self, scratch: tuple[int, int]) -> NativeBatch:
        self._fill_scratch(*scratch)
        return NativeBatch(
            memory=self._device.memory,
            lds_bytes=self._lds_bytes,
            strict=self._strict,
            detailed=self._detailed,
            turned=self._turned,
            scratch=scratch[0],
            scratch_bytes=self._private_bytes,
        )

    def _make_batch(self, start: EntryState, blocks: int, scratch: tuple[int, int]) -> Batch:
        from tilewright.emulator.lds import Lds  # noqa: PLC0415 - it needs NumPy

        self._fill_scratch(*scratch)
        return Batch(
            memory=self._device.memory,
            lds=Lds(blocks, self._lds_bytes, self._unset or None),
            counters=self._counters,
            strict=self._strict,
            detailed=self._detailed,
            scratch=scratch[0],
            scratch_bytes=self._private_bytes,
            waves_per_block=start.waves_per_block,
            turned=self._turned,
            counter_of=waitcnt.find_counters(self._device.arch.name),
            capacity_of=waitcnt.find_capacities(self._device.arch.name),
        )


def _pass_on(findings: Iterable[Finding], found: Callable[[Finding], None]) -> None:
    for finding in findings:
        found(finding)


def add_source(fault: Fault, kernel: DeviceKernel) -> Fault:
    """Return a fault with the source line of its instruction, if the code object has a line table."""
    if fault.place.address is None or fault.place.instruction is None:
        return fault
    source, calls = find_source_frames(kernel.code_object, fault.place.address)
    return fault if source is None else fault.add_location(source=source, calls=calls)
