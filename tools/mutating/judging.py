"""What comes of a kernel with one instruction changed: judged by `verify` on the op's trials, as users run them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import tilewright as tw
from mutating.changes import WAIT, Mutation, is_known_in
from mutating.problems import larger_problems, shown
from tilewright.arch.number_formats import numpy_dtype
from tilewright.base.digest import digest_text
from tilewright.base.errors import DeviceError
from tilewright.building.code_object import Line
from tilewright.building.store.artifact import Artifact
from tilewright.building.unit import LIBRARY
from tilewright.dispatch.guarded import Guarded
from tilewright.dispatch.launch import Call, functions_of
from tilewright.dispatch.plan import execution_of
from tilewright.dispatch.remembered import Remembered
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator import waits
from tilewright.emulator.device import Kernel
from tilewright.emulator.disassembly import parse
from tilewright.emulator.group import Group, Pending, Step
from tilewright.emulator.launch import Mode
from tilewright.emulator.program import Program
from tilewright.ops.kernel import Kernel as OpKernel

NOTICED, SAME, MISSED = "noticed", "same", "missed"
IDLE = "nothing to wait for"
COVERED = "the next one waits for it, too"
# LLVM counts on it: SIMemoryLegalizer.cpp leaves out waits for the LDS, because it is in a total order for all waves.
LDS_READS = "LDS reads only: the LDS does what all waves ask in order"
HARMLESS = (IDLE, COVERED, LDS_READS)
# A changed loop may never end. A launch gets this many instructions, or so many times as many as unchanged code takes.
LEAST_LIMIT = 1 << 20
LONGER = 16
Exchange = Callable[[Kernel], Kernel]
# Launches on NumPy's engine, which is slow, that a wait is watched in.
WATCHED = 2


@dataclass(frozen=True)
class Outcome:
    """What came of a change.

    `verdict` is NOTICED by a trial; SAME: every result is the same, bit for bit, also on the larger problems; MISSED:
    all trials pass and a larger problem's result differs; or one of HARMLESS. `trials` is how
    many were run.
    """

    verdict: str
    how: str = ""
    trials: int = 0
    trial: int | None = None  # the number of the one that noticed


@dataclass(frozen=True)
class Tried:
    """A problem, what the unchanged kernel executes for it, and how many instructions a launch may take."""

    problem: Any
    reached: frozenset[int]
    instructions: int
    remembered: Remembered = field(repr=False)
    result: bytes = field(default=b"", repr=False)

    @property
    def limit(self) -> int:
        return max(LEAST_LIMIT, LONGER * self.instructions)


class Judge:
    """A built kernel, its trials, and larger problems. Changes are judged one after another."""

    def __init__(self, kernel: OpKernel, artifact: Artifact, trials: Sequence[Any] | None = None) -> None:
        self.kernel = kernel
        self.artifact = artifact
        self._device = tw.Device(f"emulated:{kernel.arch}")
        self._execution = execution_of(kernel.op)
        self._loaded: dict[str, Kernel] = {}
        self.wrong: list[str] = []  # problems that the unchanged kernel computes wrongly: a defect of its own
        own = self._execution.trials(kernel.config, self._device.arch)
        self.trials = self._rightly(own if trials is None else trials)

    @cached_property
    def larger(self) -> tuple[Tried, ...]:
        """Larger problems that the unchanged kernel computes rightly, with its results."""
        found = self._rightly(larger_problems(self.kernel))
        return tuple(dataclasses.replace(tried, result=self._result(tried)) for tried in found)

    def _rightly(self, problems: Sequence[Any]) -> tuple[Tried, ...]:
        """The problems that the unchanged kernel computes rightly. The others say nothing about a change."""
        found = []
        for problem in problems:
            known = len(self.wrong)
            tried = self._tried(problem)
            if len(self.wrong) == known:
                found.append(tried)
        return tuple(found)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The instructions that trials or larger problems execute."""
        reached: set[int] = set().union(*(tried.reached for tried in (*self.trials, *self.larger)))
        (lines,) = {id(k.program.lines): k.program.lines for k in self._loaded.values()}.values()
        return tuple(lines[address] for address in sorted(reached))

    @property
    def unreached(self) -> tuple[Line, ...]:
        """Those that no trial executes: changes of them cannot be noticed."""
        reached: set[int] = set().union(*(tried.reached for tried in self.trials))
        return tuple(line for line in self.lines if line.address not in reached)

    @cached_property
    def basis(self) -> str:
        """A digest of all that outcomes depend on but the change itself: the code, the trials, the larger problems."""
        code = [line.text for line in self.lines]
        problems = [repr(tried.problem) for tried in (*self.trials, *self.larger)]
        return digest_text(repr((self.kernel.slug, code, problems)))[:16]

    def is_known(self, mutation: Mutation) -> bool:
        """Whether the device knows the changed instruction."""
        return is_known_in(self._holder(mutation).program, mutation)

    def outcome(self, mutation: Mutation, mode: Mode = Mode.STRICT, only: int | None = None) -> Outcome:
        """What comes of a change: trials first, in their order, until one notices; then larger problems.

        With `only` that one trial.
        """
        exchange = partial(_changed, {}, mutation)
        ran = 0
        for number, tried in enumerate(self.trials):
            if mutation.line.address not in tried.reached or only not in (None, number):
                continue  # its result cannot be another one
            ran += 1
            check = self._verified(tried, mode, exchange)
            if not check.ok:
                return Outcome(NOTICED, _short(check), ran, number)
        for tried in self.larger if only is None else ():
            if mutation.line.address in tried.reached and (how := self._difference(tried, exchange)):
                return Outcome(MISSED, f"{shown(tried.problem)}: {how}", ran)
        return Outcome(SAME, trials=ran)

    def without(self, mutation: Mutation) -> Outcome:
        """What comes of a barrier or wait that is taken away; of one that nothing notices, why it is not needed."""
        found = self.outcome(mutation)
        if found.verdict != SAME or not WAIT.match(mutation.line.text):
            return found
        reason = COVERED if self._covered(mutation.line) else self._harmless(mutation.line)
        return Outcome(reason or SAME, trials=found.trials)

    def _difference(self, tried: Tried, exchange: Exchange) -> str:
        """How the result of a larger problem differs from that of the unchanged kernel; empty if it does not."""
        try:
            if self._result(tried, exchange) == tried.result:
                return ""
        except DeviceError as error:
            return str(error).partition("\n")[0]
        check = self._verified(tried, Mode.STRICT, exchange)
        return _short(check) if not check.ok else "other bits, within the tolerance"

    def _tried(self, problem: Any) -> Tried:
        """What the unchanged kernel does with a problem."""
        for loaded in self._loaded.values():
            loaded.program.forget_reached()
        remembered = Remembered()
        check = self._verified(Tried(problem, frozenset(), 1 << 27, remembered), Mode.STRICT, self._seen)
        if not check.ok:
            self.wrong.append(f"{shown(problem)}: {_short(check)}")
        reached = {line.address for loaded in self._loaded.values() for line in loaded.program.reached}
        executed = sum(check.counters.instructions.values()) if check.counters else 0
        return Tried(problem, frozenset(reached), executed, remembered)

    def _seen(self, kernel: Kernel) -> Kernel:
        self._loaded.setdefault(kernel.name, kernel)
        return kernel

    def _verified(self, tried: Tried, mode: Mode, exchange: Exchange, engine: str = "native") -> Check:
        with self._device.emulating(exchange=exchange, limit=tried.limit, engine=engine):
            (check,) = verify(
                self.kernel, self.artifact, self._device, [tried.problem], mode=mode, remembered=tried.remembered
            )
        return check

    def _result(self, tried: Tried, exchange: Exchange | None = None) -> bytes:
        """All tensors as a launch leaves them, with random inputs, bit for bit."""
        device, execution, problem = self._device, self._execution, tried.problem
        given = dict(tried.remembered.expected(self.kernel.op, problem, 1, device.arch).inputs)
        for preparation in execution.preparations(self.kernel.config, problem):
            given[preparation.tensor] = preparation.apply(given[preparation.tensor])
        placed = [Guarded(t, numpy_dtype(t.dtype, device.arch), given.get(t.name)) for t in execution.tensors(problem)]
        functions = functions_of(device, self.artifact.checked(LIBRARY), self.kernel)
        call = Call(device, self.kernel, functions, execution, problem)
        with ExitStack() as freed:
            buffers = [freed.enter_context(device.allocate(each.nbytes, each.tensor.name)) for each in placed]
            for buffer, each in zip(buffers, placed, strict=True):
                buffer.copy_from(each.memory)
            with device.selected(), device.emulating(mode=Mode.STRICT, exchange=exchange, limit=tried.limit):
                call([buffer.address for buffer in buffers], None)
                device.synchronize()
            for buffer, each in zip(buffers, placed, strict=True):
                buffer.copy_to(each.after)
        return b"".join(each.after.tobytes() for each in placed)

    def _holder(self, mutation: Mutation) -> Kernel:
        """A kernel of the code object that the changed line may belong to: all have the same listing."""
        return next(k for k in self._loaded.values() if mutation.line.address in k.program.lines)

    def _covered(self, line: Line) -> bool:
        """Whether a wait right behind, with only waits between, asks for as much."""
        holder = self._holder(Mutation(line, line.text))
        lines, code = holder.program.lines, holder.code
        wait, at = waits.translate(parse(line), code), line.address + line.size
        while wait is not None and (behind := waits.translate(parse(lines[at]), code)) is not None:
            if all(behind.counts.get(counter, count + 1) <= count for counter, count in wait.counts.items()):
                return True
            at += lines[at].size
        return False

    def _harmless(self, line: Line) -> str:
        """Why nobody needs a wait whose lack changes no result; empty when that is not known."""
        reaching = sorted(
            (tried for tried in (*self.trials, *self.larger) if line.address in tried.reached),
            key=lambda tried: tried.instructions,
        )
        delivered: list[Pending] = []
        for tried in reaching[:WATCHED]:
            check = self._verified(tried, Mode.STRICT, _watching(line, delivered), engine="numpy")
            assert check.ok, f"{line.text} is only watched, and yet {check.message}"
        if not delivered:
            return IDLE
        return LDS_READS if all(effect.lds_read for effect in delivered) else ""


def _changed(known: dict[str, Kernel], mutation: Mutation, kernel: Kernel) -> Kernel:
    """The kernel with one line changed, made once."""
    if kernel.name not in known:
        program = kernel.program.changed(mutation.line.address, mutation.text)
        known[kernel.name] = dataclasses.replace(kernel, program=program)
    return known[kernel.name]


def _watching(line: Line, delivered: list[Pending]) -> Exchange:
    """Gives kernels whose waits at one line tell what they waited for."""

    def watched(step: Step) -> Step:
        def run(group: Group) -> None:
            before = [effect for queue in group.pending.values() for effect in queue]
            step(group)
            left = {id(effect) for queue in group.pending.values() for effect in queue}
            delivered.extend(effect for effect in before if id(effect) not in left)

        return run

    def exchange(kernel: Kernel) -> Kernel:
        program: Program = kernel.program.changed(line.address, line.text)
        program.watch(line.address, watched)
        return dataclasses.replace(kernel, program=program)

    return exchange


def _short(check: Check) -> str:
    """A verdict in one line, with the name of the fault."""
    return f"{check.verdict}: {check.message.partition(chr(10))[0]}"[:240]
