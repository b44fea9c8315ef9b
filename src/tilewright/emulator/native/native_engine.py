"""Run launches with the native engine. Results and counters are the same as those of emulator/numpy_engine.py."""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tilewright.base.knobs import job_count
from tilewright.emulator.access.buffer_descriptor import is_gfx9
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.entry_state import EntryState, compute_thread_ids, make_scalar_registers
from tilewright.emulator.group import POISON, Batch
from tilewright.emulator.launch import Counters
from tilewright.emulator.native.faults import make_fault
from tilewright.emulator.native.layout import LANES, AddressRange, NativeLaunch
from tilewright.emulator.native.library import EngineLibrary
from tilewright.emulator.native.lower import SPARE_REGISTERS, LoweredKernel
from tilewright.emulator.native.lower_control import make_capacities
from tilewright.emulator.program import Program

# Waves whose first registers are created together.
BATCH_WAVES = 16384


class NativeEngine:
    """One launch of one kernel. Batches run one after another; work-groups of a batch may wait for each other."""

    def __init__(
        self, library: EngineLibrary, lowered: LoweredKernel, code: LoadedCode, counters: Counters, limit: int
    ) -> None:
        self._library = library
        self._lowered = lowered
        self._code = code
        self._counters = counters
        self._limit = limit
        self._executed = np.zeros(len(lowered.records), np.uint64)

    def run(self, start: EntryState, batch: Batch, first_block: int, blocks: int) -> None:
        """Run work-groups to their end."""
        scalars = make_scalar_registers(start, batch, first_block, blocks)
        launch = self._make_launch(start, batch, scalars)
        # Only the first vector register has an initial value; the engine fills the others itself.
        vectors = np.zeros((start.waves_per_block, LANES), np.uint32)
        vectors[:, : start.descriptor.lanes] = compute_thread_ids(start)
        ranges = batch.memory.list_ranges()
        launch.vectors, launch.scalars = vectors.ctypes.data, scalars.ctypes.data
        launch.ranges = ranges.ctypes.data_as(ctypes.POINTER(AddressRange))
        launch.range_count = len(ranges)
        launch.first_block, launch.blocks = first_block, blocks
        if self._run_interruptible(launch):
            raise make_fault(launch, self._lowered, self._code, batch.memory)
        self._add_counters(launch)

    def _run_interruptible(self, launch: NativeLaunch) -> int:
        """Run C code so that the main thread still handles Ctrl-C, which Python delivers only between its own steps."""
        if threading.current_thread() is not threading.main_thread():
            return self._library.run(launch)
        codes: list[int] = []
        ended = threading.Event()

        def run_library() -> None:
            try:
                codes.append(self._library.run(launch))
            finally:
                ended.set()

        # Thread.start waits until the thread runs, which is slower than a small launch.
        _thread.start_new_thread(run_library, ())
        try:
            while not ended.wait(1.0):
                pass
        except BaseException:
            launch.stop = 1
            ended.wait()
            raise
        return codes[0]

    def _make_launch(self, start: EntryState, batch: Batch, scalars: NDArray[np.uint32]) -> NativeLaunch:
        lowered, arch, descriptor = self._lowered, self._code.arch, start.descriptor
        return NativeLaunch(
            code=lowered.records,
            code_count=len(lowered.records),
            registers=descriptor.vgprs + SPARE_REGISTERS,
            at=lowered.index.ctypes.data,
            at_count=len(lowered.index),
            code_base=self._code.base,
            permutations=lowered.permutations,
            matrices=lowered.matrices,
            first_vectors=1,
            waves_per_block=start.waves_per_block,
            lds_bytes=batch.lds.size,
            scratch_bytes=batch.scratch_bytes,
            scratch=batch.scratch,
            lanes=descriptor.lanes,
            strict=batch.strict,
            turned=batch.turned,
            detailed=batch.detailed,
            float_mode=descriptor.float_mode,
            entry=lowered.find_entry(descriptor.entry),
            poison=POISON,
            line_bytes=arch.memory.line_bytes,
            banks=arch.lds.banks,
            threads=self._choose_thread_count(batch.strict, len(scalars) // start.waves_per_block),
            matrix_flush=arch.numbers.halves_flushed,
            dma_mask=(1 << (arch.lds.bytes - 1).bit_length()) - 1,
            limit=self._limit,
            capacity=make_capacities(arch.name),
            gfx9=is_gfx9(self._code),
            executed=self._executed.ctypes.data,
        )

    def _choose_thread_count(self, strict: bool, blocks: int) -> int:
        """Return more than one only if the order of work-groups has no effect: not with atomics or in strict mode."""
        return 1 if strict or self._lowered.has_atomics else min(job_count(), blocks)

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
        executed = self._executed[: lowered.count].astype(np.int64)
        program.record_reached(lowered.addresses[executed > 0].tolist())
        total: Counter[str] = Counter(counters.instructions)
        for name, members in lowered.classes.items():
            if count := int(executed[members].sum()):
                total[name] += count
        counters.instructions = dict(total)
        counters.steps += int(executed.sum())
        counters.matrix_flops += int((executed * lowered.flops).sum())
        counters.barriers += int(executed[lowered.barriers].sum())
        self._executed[:] = 0
