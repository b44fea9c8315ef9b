"""Run launches with the native engine. Results, counters and faults are those of emulator/numpy_engine.py."""

from __future__ import annotations

import _thread
import ctypes
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tilewright.base.errors import DeviceError, choose
from tilewright.base.knobs import job_count
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.descriptor import Descriptor
from tilewright.emulator.entry_state import EntryState, compute_thread_ids, make_scalar_registers
from tilewright.emulator.faults import (
    AlignmentFault,
    BarrierFault,
    CodeFault,
    EndlessLoopFault,
    Fault,
    LdsFault,
    MemoryFault,
    SpinFault,
    TrapFault,
)
from tilewright.emulator.group import POISON
from tilewright.emulator.hardware import generation
from tilewright.emulator.instruction import SCALARS
from tilewright.emulator.kernel_cache import find_kernel_cache
from tilewright.emulator.launch import ENGINES, NATIVE, NUMPY, Counters
from tilewright.emulator.memory import Memory
from tilewright.emulator.native.engine_library import EngineLibrary, find_engine
from tilewright.emulator.native.layout import LANES, AddressRange, CountsRecord, FaultRecord, NativeLaunch
from tilewright.emulator.native.lower_control import make_capacities
from tilewright.emulator.native.lowered import SPARE_REGISTERS, LoweredKernel, UnsupportedInstruction, make_array
from tilewright.emulator.profile import InstructionCounts, ProfileRecorder
from tilewright.emulator.program import Program
from tilewright.emulator.relative_moves import PAIR_INDEX
from tilewright.emulator.wave_paths import PathRecorder, WavePath

if TYPE_CHECKING:
    from tilewright.emulator.native.launch_checker import LaunchChecker

# Waves whose first registers are created together.
BATCH_WAVES = 16384
# In the order of the enumeration in types.h.
_CODES = (
    "none", "memory", "lds", "alignment", "unknown", "loop", "barrier", "jump", "rounding", "descriptor", "scratch",
    "trap", "no room", "atomic", "inactive", "halves", "spin", "index", "count", "outside",
)  # fmt: skip
_lowered: WeakKeyDictionary[Program, LoweredKernel | UnsupportedInstruction] = WeakKeyDictionary()


def prepare_native(
    program: Program, code: LoadedCode, descriptor: Descriptor, engine: str
) -> tuple[EngineLibrary, LoweredKernel] | None:
    """Return the library and the lowered kernel for the native engine; None if the NumPy engine runs the kernel.

    `engine` is one of `ENGINES`.
    """
    if choose("engine", engine, ENGINES) == NUMPY:
        return None
    compiled = find_engine()
    if compiled is None:
        if engine == NATIVE:
            raise DeviceError("the native engine needs a clang that can compile it: see `tilewright doctor`")
        return None
    lowered = _lower_once(program, code, descriptor)
    if isinstance(lowered, UnsupportedInstruction):
        if engine == NATIVE:
            raise DeviceError(
                f"the native engine does not support '{lowered.instruction.text}' of {code.kernel}; NumPy does"
            )
        return None
    return compiled, lowered


def _lower_once(program: Program, code: LoadedCode, descriptor: Descriptor) -> LoweredKernel | UnsupportedInstruction:
    found = _lowered.get(program)
    if found is None:
        found = _lowered[program] = _lower_or_read(program, code, descriptor)
    return found


def _lower_or_read(
    program: Program, code: LoadedCode, descriptor: Descriptor
) -> LoweredKernel | UnsupportedInstruction:
    cache = find_kernel_cache() if program.identity else None
    kept = None if cache is None else cache.read_kernel(program.identity, code)
    if kept is not None:
        return kept
    from tilewright.emulator.native.lower import lower  # noqa: PLC0415 - takes long to import

    made = lower(program, code, descriptor.entry, descriptor.vgprs)
    if cache is not None:
        cache.keep_kernel(program.identity, code, made)
    return made


@dataclass(frozen=True, slots=True)
class NativeBatch:
    """State that the waves of a batch of work-groups share. The engine has its own LDS."""

    memory: Memory
    lds_bytes: int
    strict: bool
    detailed: bool
    turned: bool
    scratch: int  # address of the private memory of the batch's first wave
    scratch_bytes: int  # per lane


class NativeEngine:
    """One launch of one kernel. Batches run one after another; work-groups of a batch may wait for each other."""

    def __init__(
        self,
        library: EngineLibrary,
        lowered: LoweredKernel,
        code: LoadedCode,
        counters: Counters,
        limit: int,
        profile: ProfileRecorder | None = None,
        checker: LaunchChecker | None = None,
    ) -> None:
        self._checker = checker
        self._library = library
        self._profile = profile
        self._profiled = None if profile is None else (CountsRecord * len(lowered.records))()
        self._paths: array[int] | None = None  # see types.h
        self._lowered = lowered
        self._code = code
        self._counters = counters
        self._limit = limit
        self._executed = (ctypes.c_uint64 * len(lowered.records))()

    def run(self, start: EntryState, batch: NativeBatch, first_block: int, blocks: int) -> None:
        """Run work-groups to their end."""
        scalars = make_scalar_registers(start, batch, first_block, blocks)
        launch = self._make_launch(start, batch, scalars)
        # Only the first vector register has an initial value; the engine fills the others itself.
        vectors = compute_thread_ids(start, LANES)
        listed = batch.memory.list_ranges()
        ranges = make_array(AddressRange, [AddressRange(first, last) for first, last in listed])
        launch.vectors, launch.scalars = vectors.buffer_info()[0], scalars.buffer_info()[0]
        launch.ranges = ranges
        launch.range_count = len(listed)
        launch.first_block, launch.blocks = first_block, blocks
        if self._profile is not None:
            self._keep_paths(launch, self._profile.paths)
        if self._checker is not None:
            self._checker.connect(launch, self._code.arch.name)
        if self._run_interruptible(launch):
            raise _make_fault(launch, self._lowered, self._code, batch.memory)
        self._add_counters(launch)

    def _run_interruptible(self, launch: NativeLaunch) -> int:
        """Run C code so that the main thread still handles Ctrl-C, which Python delivers only between its own steps."""
        if threading.current_thread() is not threading.main_thread():
            return self._library.run(launch)
        codes: list[int] = []
        running = _thread.allocate_lock()  # a threading.Event takes twice as long
        running.acquire()

        def run_library() -> None:
            try:
                codes.append(self._library.run(launch))
            finally:
                running.release()

        # Thread.start waits until the thread runs, which is slower than a small launch.
        _thread.start_new_thread(run_library, ())
        try:
            while not running.acquire(timeout=1.0):
                pass
        except BaseException:
            launch.stop = 1
            running.acquire()
            raise
        return codes[0]

    def _make_launch(self, start: EntryState, batch: NativeBatch, scalars: array[int]) -> NativeLaunch:
        lowered, arch, descriptor = self._lowered, self._code.arch, start.descriptor
        return NativeLaunch(
            code=lowered.records,
            code_count=len(lowered.records),
            registers=descriptor.vgprs + SPARE_REGISTERS,
            at=lowered.index.buffer_info()[0],
            at_count=len(lowered.index),
            code_base=self._code.base,
            permutations=lowered.permutations,
            matrices=lowered.matrices,
            first_vectors=1,
            waves_per_block=start.waves_per_block,
            lds_bytes=batch.lds_bytes,
            scratch_bytes=batch.scratch_bytes,
            scratch=batch.scratch,
            lanes=descriptor.lanes,
            strict=batch.strict,
            turned=batch.turned,
            detailed=batch.detailed,
            float_mode=descriptor.mode,
            entry=lowered.find_entry(descriptor.entry),
            poison=POISON,
            line_bytes=arch.memory.line_bytes,
            banks=arch.lds.banks,
            threads=self._choose_thread_count(
                batch.strict or self._checker is not None, len(scalars) // SCALARS // start.waves_per_block
            ),
            matrix_flush=arch.numbers.halves_flushed,
            dma_mask=(1 << (arch.lds.bytes - 1).bit_length()) - 1,
            limit=self._limit,
            capacity=make_capacities(arch.name),
            gfx9=generation(arch.name) == "gfx9",
            cooperative=start.launch.cooperative,
            executed=ctypes.addressof(self._executed),
            profile=None if self._profiled is None else ctypes.addressof(self._profiled),
        )

    def _keep_paths(self, launch: NativeLaunch, wanted: PathRecorder) -> None:
        """Let the engine keep the paths of the first waves of the grid; batches share the memory for them."""
        launch.path_waves = wanted.blocks * launch.waves_per_block
        launch.path_room = wanted.most_runs
        if self._paths is None:
            self._paths = array("I", bytes(4 * launch.path_waves * (2 + 2 * launch.path_room)))
        launch.paths = self._paths.buffer_info()[0]

    def _choose_thread_count(self, ordered: bool, blocks: int) -> int:
        """Return more than one only if the order of work-groups has no effect: not with atomics, nor if `ordered`.

        The threads of a launch share its profile, so that a launch with a profile has one thread.
        """
        alone = ordered or self._lowered.has_atomics or self._profiled is not None
        return 1 if alone else min(job_count(), blocks)

    def _add_counters(self, launch: NativeLaunch) -> None:
        counters = self._counters
        read, written, lds_read, lds_written = launch.bytes
        counters.global_read_bytes += read
        counters.global_write_bytes += written
        counters.lds_read_bytes += lds_read
        counters.lds_write_bytes += lds_written
        counters.cache_lines += launch.cache_lines
        counters.bank_conflict_cycles += launch.conflict_cycles
        counters.atomics += launch.atomics

    def count_mix(self, program: Program) -> None:
        """Add the executed instructions to the counters, and record them in the program."""
        counters, lowered = self._counters, self._lowered
        executed = self._executed[: lowered.count]
        program.record_reached(compress(lowered.addresses, executed))
        total: Counter[str] = Counter(counters.instructions)
        for name, members in lowered.classes.items():
            if count := sum(map(executed.__getitem__, members)):
                total[name] += count
        counters.instructions = dict(total)
        counters.steps += sum(executed)
        counters.matrix_flops += sum(executed[number] * flops for number, flops in lowered.flops.items())
        counters.barriers += sum(executed[number] for number in lowered.barriers)
        if self._profile is not None:
            self._add_profile(self._profile, executed)
        ctypes.memset(self._executed, 0, ctypes.sizeof(self._executed))

    def _add_profile(self, profile: ProfileRecorder, executed: Sequence[int]) -> None:
        assert self._profiled is not None
        for number in compress(range(len(executed)), executed):
            own = self._profiled[number]
            read, written, lds_read, lds_written = own.bytes
            counts = InstructionCounts(
                executed=executed[number],
                lanes=own.lanes,
                global_read_bytes=read,
                global_write_bytes=written,
                lds_read_bytes=lds_read,
                lds_write_bytes=lds_written,
                cache_lines=own.cache_lines,
                bank_conflict_cycles=own.conflict_cycles,
                atomics=own.atomics,
            )
            profile.at(self._lowered.addresses[number]).add(counts)
        ctypes.memset(self._profiled, 0, ctypes.sizeof(self._profiled))
        self._add_paths(profile.paths)

    def _add_paths(self, wanted: PathRecorder) -> None:
        assert self._paths is not None
        addresses, stride = self._lowered.addresses, 2 + 2 * wanted.most_runs
        for wave in range(len(self._paths) // stride):
            count, cut, *places = self._paths[wave * stride : wave * stride + 2 + 2 * self._paths[wave * stride]]
            if count:
                runs = tuple(zip((addresses[number] for number in places[::2]), places[1::2], strict=True))
                wanted.add_path(wave, WavePath(runs, bool(cut)))


def _make_fault(launch: NativeLaunch, lowered: LoweredKernel, code: LoadedCode, memory: Memory) -> Exception:
    """Return the exception for the fault of a launch."""
    found = launch.fault
    name = _CODES[found.code]
    if name == "no room":
        return DeviceError(f"the engine has no memory for a work-group, which needs {found.size} bytes")
    instruction = lowered.instructions[found.instruction]
    fault = _translate_fault(name, launch, lowered, code, memory)
    nowhere = isinstance(fault, CodeFault) and fault.place.address is not None
    known: dict[str, object] = {"kernel": code.kernel, "block": found.block, "wave": found.wave}
    if found.lane >= 0:
        known["lane"] = found.lane
    if not nowhere:
        known |= {"address": instruction.address, "instruction": instruction.text}
    return fault.add_location(**known)


def _translate_fault(
    name: str, launch: NativeLaunch, lowered: LoweredKernel, code: LoadedCode, memory: Memory
) -> Fault:
    found: FaultRecord = launch.fault
    size, address = found.size, found.address
    offset = address - 2**64 if address >> 63 else address
    available, own = launch.lds_bytes, launch.scratch_bytes
    if name == "memory":
        return MemoryFault(f"{size} bytes at {address:#x}: {memory.describe_address(address, size)}")
    if name == "jump":
        return _make_jump_fault(offset, found.instruction, lowered, code)
    endless = "wait at a barrier that never completes: not all waves of their work-groups signal it"
    kinds: dict[str, tuple[type[Fault], str]] = {
        "lds": (LdsFault, f"{size} bytes at {offset:#x} of the LDS of the work-group, which has {available} bytes"),
        "scratch": (
            MemoryFault,
            f"{size} bytes at offset {offset} of the private memory of a lane, which has {own}",
        ),
        "alignment": (
            AlignmentFault,
            f"a scalar load of {size}-byte elements at {address:#x}, which is not a multiple of {size}",
        ),
        "atomic": (
            AlignmentFault,
            f"an atomic access of {size} bytes at an address that is {address % max(size, 1)} past a multiple",
        ),
        "barrier": (BarrierFault, f"{size} waves {endless}"),
        "spin": (
            SpinFault,
            f"{size} waves of the work-group go round in a loop, and no wave changes what they wait for",
        ),
        "loop": (EndlessLoopFault, f"{size} instructions of waves, the limit is {launch.limit}"),
    }
    if name in kinds:
        kind, what = kinds[name]
        return kind(what)
    return _make_unknown_fault(name, found, lowered, code)


def _make_jump_fault(offset: int, index: int, lowered: LoweredKernel, code: LoadedCode) -> Fault:
    if index in lowered.faults:
        return lowered.faults[index]
    if 0 <= offset < 1 << 32:
        return CodeFault(f"no instruction exists at {offset:#x}", CodePlace(address=offset))
    return CodeFault(f"a jump to {(offset + code.base) % 2**64:#x}, which is outside the code object")


def _make_unknown_fault(name: str, found: FaultRecord, lowered: LoweredKernel, code: LoadedCode) -> Fault:
    """Return the fault for something that the emulated device does not support."""
    instruction = lowered.instructions[found.instruction]
    if name == "unknown":
        return lowered.faults[found.instruction]
    if name == "trap":
        return TrapFault(f"the kernel stopped itself with trap {instruction.operands[0].value}")
    words = ", ".join(f"{word:#010x}" for word in found.words)
    what = {
        "rounding": "rounding other than to the nearest",
        "descriptor": f"the buffer descriptor {words}",
        "inactive": f"{instruction.mnemonic} with lanes that exec disables",
        "count": f"{instruction.mnemonic} with M0 that is not 0",
        "outside": "a scalar atomic that returns from outside of its buffer",
        "index": PAIR_INDEX if found.size else "a register index beyond the registers of the kernel",
        "halves": "A or B that differs between lanes 0 to 15 and lanes 16 to 31",
    }
    return code.unknown(what[name], instruction)
