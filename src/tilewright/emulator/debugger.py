"""Debug a kernel on the emulated device: stop at a source line or an instruction, read registers and LDS, step.

The launch runs in a thread of its own, which waits while it is stopped. Waves that are at the same instruction run
together, so a stop is one of a group of waves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from types import TracebackType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.demangled_names import shorten_name
from tilewright.emulator.device import DeviceKernel, EmulatedDevice
from tilewright.emulator.disassembly import parse_operand
from tilewright.emulator.faults import Fault
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Operand
from tilewright.emulator.launch import NUMPY, Counters, Launch, Mode
from tilewright.emulator.source_lines import LineTable, SourceLine, read_line_table

_MASKS = ("vcc", "exec")  # a bit per lane


class _SessionEnded(Fault):
    """Ends a launch whose debugger was closed."""

    name = "debugger-closed"


@dataclass(frozen=True, eq=False)
class Stop:
    """A group of waves before an instruction. You can read its registers until the launch continues."""

    kernel: str  # its short name
    line: DisassembledLine
    source: SourceLine | None
    waves: tuple[tuple[int, int], ...]  # work-group and index in it, of each wave
    _group: WaveGroup
    _accumulators: int

    def read(self, register: str, dtype: DTypeLike = np.uint32) -> NDArray[np.generic]:
        """Read a register by its name: v3, a0, s7, s[4:5], vcc, exec, m0.

        Vector registers have a row per wave and a column per lane; scalar registers have an element per wave, and of
        several registers a column each. `dtype` interprets the 32 bits.
        """
        operand = _parse_register(register)
        first, count = operand.index, self._group.lanes // 32 if register in _MASKS else operand.count
        if operand.kind == "s":
            found = self._group.sgprs[:, first : first + count]
        else:
            start = first + (self._accumulators if operand.kind == "a" else 0)
            if start + count > len(self._group.vgprs):
                raise InvalidValueError(f"the kernel has {len(self._group.vgprs)} vector registers, not {register}")
            found = np.moveaxis(self._group.vgprs[start : start + count], 0, -1)
        values = np.ascontiguousarray(found[..., 0] if count == 1 else found).view(dtype)
        values.flags.writeable = False
        return values

    def read_lds(self, offset: int, count: int, dtype: DTypeLike = np.uint32, *, block: int = 0) -> NDArray[np.generic]:
        """Read `count` elements from the LDS of a work-group of this stop; `block` is its position in `blocks`."""
        lds, size = self._group.batch.lds, np.dtype(dtype).itemsize
        if offset < 0 or count < 0 or offset + count * size > lds.size:
            raise InvalidValueError(f"{count} elements of {size} bytes at {offset}: the LDS has {lds.size} bytes")
        number = self.blocks[block]
        row = next(row for row, wave in enumerate(self.waves) if wave[0] == number)
        start = int(self._group.places.lds_base[row]) + offset
        return lds.views.u8[start : start + count * size].copy().view(dtype)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The work-groups of the waves, in order."""
        return tuple(dict.fromkeys(block for block, _ in self.waves))

    @property
    def active_lanes(self) -> NDArray[np.bool_]:
        """The lanes that exec enables: a row per wave."""
        return self._group.exec_mask.copy()

    def __str__(self) -> str:
        place = f"{self.source}, " if self.source else ""
        return f"{self.kernel}, {place}{self.line.address:#x}: {self.line.text} ({len(self.waves)} waves)"


class Debugger:
    """One launch that you can stop. Use it in a `with` block, whose end also ends the launch."""

    def __init__(self, device: EmulatedDevice, kernel: DeviceKernel, launch: Launch, mode: Mode = Mode.FAST) -> None:
        self.counters: Counters | None = None  # when the kernel has ended
        self._device = device
        self._launch = launch
        self._mode = mode
        self._lines: LineTable = read_line_table(kernel.code_object)
        program = kernel.program.copy()
        for address in program.lines:
            program.watch(address, self._make_watcher(address))
        self._kernel = replace(kernel, program=program)
        self._breakpoints: set[int] = set()
        self._stepping = False
        self._line: SourceLine | None = None  # step_line leaves it
        self._closed = False
        self._stops: SimpleQueue[Stop | BaseException | None] = SimpleQueue()
        self._continue = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._ended = False

    def break_at(self, *, line: int | None = None, file: str = "", address: int | None = None) -> tuple[int, ...]:
        """Stop before an instruction, or before the first instructions of a source line. Return their addresses.

        `file` is the end of a file's name; without it, the line of any file counts.
        """
        if (line is None) == (address is None):
            raise InvalidValueError("give a line or an address")
        found = [address] if address is not None else list(self._find_line(line or 0, file))
        unknown = [each for each in found if each not in self._kernel.program.lines]
        if unknown or not found:
            known = sorted({each.line for each in self._lines.lines if each is not None and each.file.endswith(file)})
            what = f"no instruction is at {unknown[0]:#x}" if unknown else f"no instruction belongs to line {line}"
            lines = f"lines with instructions: {', '.join(map(str, known))}" if known else "the code has no line table"
            raise InvalidValueError(f"{what}; {lines}")
        self._breakpoints.update(found)
        return tuple(found)

    def clear(self) -> None:
        """Remove all breakpoints."""
        self._breakpoints.clear()

    def run(self) -> Stop | None:
        """Run to the next breakpoint; None if the kernel has ended. Faults of the kernel are raised."""
        self._stepping, self._line = False, None
        return self._resume()

    def step(self) -> Stop | None:
        """Run one instruction of the current group, or of another group if that is next."""
        self._stepping, self._line = True, None
        return self._resume()

    def step_line(self) -> Stop | None:
        """Run to the next instruction of another source line."""
        self._stepping = True
        return self._resume()

    def __enter__(self) -> Debugger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._thread is not None and not self._ended:
            self._continue.release()
        if self._thread is not None:
            self._thread.join()

    def _resume(self) -> Stop | None:
        if self._ended:
            raise InvalidValueError("the kernel has ended: make another Debugger")
        if self._thread is None:
            self._thread = threading.Thread(target=self._launch_kernel, name="tilewright-debugger", daemon=True)
            self._thread.start()
        else:
            self._continue.release()
        found = self._stops.get()
        if isinstance(found, Stop):
            self._line = found.source
            return found
        self._ended = True
        if found is not None:
            raise found
        return None

    def _launch_kernel(self) -> None:
        try:
            self.counters = self._device.launch(self._kernel, self._launch, self._mode, engine=NUMPY)
        except BaseException as error:  # raised in the thread that called run or step
            self._stops.put(error)
        else:
            self._stops.put(None)

    def _find_line(self, line: int, file: str) -> Iterable[int]:
        """The first instruction of each run of instructions of a source line."""
        for address, source in zip(self._lines.addresses, self._lines.lines, strict=True):
            if source is not None and source.line == line and source.file.endswith(file):
                yield address

    def _make_watcher(self, address: int) -> Callable[[Step], Step]:
        def watch(step: Step) -> Step:
            def run(group: WaveGroup) -> None:
                self._stop_before(address, group)
                step(group)

            return run

        return watch

    def _stop_before(self, address: int, group: WaveGroup) -> None:
        source = self._lines.find(address)
        stepped = self._stepping and (self._line is None or _differs(source, self._line))
        if not self._closed and (address in self._breakpoints or stepped):
            self._wait_at(address, source, group)
        if self._closed:
            raise _SessionEnded("the debugger was closed before the kernel ended")

    def _wait_at(self, address: int, source: SourceLine | None, group: WaveGroup) -> None:
        per_block = group.batch.waves_per_block
        waves = tuple((int(wave) // per_block, int(wave) % per_block) for wave in group.places.wave)
        line = self._kernel.program.lines[address]
        name = shorten_name(self._kernel.name)
        self._stops.put(Stop(name, line, source, waves, group, self._kernel.code.accumulators))
        self._continue.acquire()


def _differs(source: SourceLine | None, old: SourceLine) -> bool:
    return source is not None and (source.file, source.line) != (old.file, old.line)


def _parse_register(text: str) -> Operand:
    operand = parse_operand(text)
    if operand is None or operand.kind not in ("v", "a", "s"):
        raise InvalidValueError(f"{text!r} is not a register; examples are v3, v[2:5], a0, s7, s[4:5], vcc, exec, m0")
    return operand
