"""The memory that the checks of one launch need in the native engine: cells, findings, and the order of work-groups."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import DeviceError
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.memory import Memory
from tilewright.emulator.native.engine_library import EngineLibrary
from tilewright.emulator.native.layout import CellRecord, FindingRecord, NativeLaunch, ShadowRecord
from tilewright.emulator.native.lowered import LoweredKernel
from tilewright.emulator.native.memory_scopes import has_scoped_stores, needs_writeback
from tilewright.emulator.sanitizer.checks import RACES, UNINITIALIZED, make_bits
from tilewright.emulator.sanitizer.findings import Finding
from tilewright.emulator.sanitizer.native_findings import UNINITIALIZED_READ, is_expanded_atomic, make_finding

# Different findings of one launch: pairs of instructions. More are only counted.
MOST_FINDINGS = 256


class LaunchChecker:
    """The checks of one launch. Its batches share it, because their work-groups may race with each other."""

    def __init__(self, library: EngineLibrary, memory: Memory, checks: frozenset[str], blocks: int) -> None:
        self._library = library
        self._memory = memory
        self._checks = checks
        self._findings = (FindingRecord * MOST_FINDINGS)()
        self._launch: NativeLaunch | None = None
        listed = memory.list_shadows()
        self._kept: list[NDArray[np.uint8]] = []  # what the pointers point to
        self._shadows = (ShadowRecord * max(len(listed), 1))()
        for number, item in enumerate(listed):
            if item is not None:
                self._shadows[number] = self._make_shadow(*item)
        make = library.handle.tilewright_make_checker
        make.restype, make.argtypes = ctypes.c_void_p, [ctypes.c_int64]
        self._checker = make(blocks)
        if not self._checker:
            raise DeviceError(f"no memory is left to check {blocks} work-groups")
        self._count = self._lost = 0

    def _make_shadow(self, size: int, written: NDArray[np.uint8] | None) -> ShadowRecord:
        cells = 0
        if RACES in self._checks:
            # Zeros that the system provides when they are touched.
            room = np.zeros((-(-size // 4) + 1) * ctypes.sizeof(CellRecord), np.uint8)
            self._kept.append(room)
            cells = room.ctypes.data
        if written is not None:
            self._kept.append(written)
        return ShadowRecord(cells, 0 if written is None else written.ctypes.data)

    def connect(self, launch: NativeLaunch, arch: str) -> None:
        """Let a batch use the memory."""
        if self._launch is not None:
            self._count, self._lost = self._launch.finding_count, self._launch.findings_lost
        self._launch = launch
        # Memory of which writes are recorded needs them from every checked launch.
        followed = {UNINITIALIZED} if self._memory.tracks_writes else set()
        launch.checks = make_bits(self._checks | followed)
        launch.needs_writeback, launch.scoped_stores = needs_writeback(arch), has_scoped_stores(arch)
        launch.shadows, launch.findings, launch.checker = self._shadows, self._findings, self._checker
        launch.finding_room, launch.finding_count = MOST_FINDINGS, self._count
        launch.findings_lost = self._lost

    def take_findings(self, lowered: LoweredKernel, code: LoadedCode, code_object: bytes) -> list[Finding]:
        """Return all findings, and free what C allocated."""
        free = self._library.handle.tilewright_free_checker
        free.argtypes = [ctypes.c_void_p]
        free(self._checker)
        count = 0 if self._launch is None else self._launch.finding_count
        found = [
            make_finding(self._findings[number], lowered, self._memory, code_object, code.arch.name, code.kernel)
            for number in range(count)
            if UNINITIALIZED in self._checks or self._findings[number].kind != UNINITIALIZED_READ
        ]
        found = [finding for finding in found if not is_expanded_atomic(finding)]
        lost = 0 if self._launch is None else self._launch.findings_lost
        if lost and found:
            note = f"{lost} findings of other instructions are not listed: there is room for {MOST_FINDINGS}."
            found[-1] = replace(found[-1], advice=f"{found[-1].advice} {note}")
        return found
