"""What comes of a kernel with one instruction changed: judged by `verify` on the op's trials, as users run them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import tilewright as tw
from tests.proof.mutating.changes import WAIT, Mutation, is_known_in
from tests.proof.mutating.problems import larger_problems, shown
from tests.proof.mutating.races import Races
from tests.proof.mutating.reasons import (
    BUDGET,
    COVERED,
    IDLE,
    LDS_READS,
    ORDERED,
    UNUSED,
    WATCHES,
    Exchange,
    Watched,
    covered,
    watched_barrier,
)
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.digest import digest_text
from tilewright.base.errors import DeviceError
from tilewright.building.code_object import DisassembledLine
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.launch import BoundKernel, bind_functions
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import PoisonedTensor
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.device import DeviceKernel
from tilewright.emulator.group import PendingEffect
from tilewright.emulator.launch import Mode
from tilewright.ops.kernel import Kernel as OpKernel

NOTICED, SAME, WITHIN, MISSED = "noticed", "same", "within", "missed"
# Of the rules by which outcomes are told apart. Outcomes of other rules are not taken from a log.
RULES = 3
# A changed loop may never end. A launch gets this many instructions, or so many times as many as unchanged code takes.
LEAST_LIMIT = 1 << 20
LONGER = 16


@dataclass(frozen=True)
class Outcome:
    """What came of a change.

    `verdict` is NOTICED by a trial; SAME: every result is the same, bit for bit, also on the larger problems; WITHIN:
    some have other bits, and `verify` passes them all; MISSED: all trials pass, and `verify` refuses a larger problem;
    or one of HARMLESS. `trials` is how many were run.
    """

    verdict: str
    how: str = ""
    trials: int = 0
    trial: int | None = None  # the number of the one that noticed
    share: float = 0.0  # WITHIN: the largest error of results with other bits, in parts of what `verify` allows


@dataclass(frozen=True)
class Tried:
    """A problem, what the unchanged kernel executes for it, and how many instructions a launch may take."""

    problem: Any
    reached: frozenset[int]
    instructions: int
    references: ReferenceCache = field(repr=False)
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
        self._execution = get_execution(kernel.op)
        self._loaded: dict[str, DeviceKernel] = {}
        self._noticed: Counter[int] = Counter()  # changes that each trial noticed
        self._slow: dict[Any, bytes] = {}
        self.wrong: list[str] = []  # problems that the unchanged kernel computes wrongly: a defect of its own
        own = self._execution.trials(kernel.config, self._device.arch)
        self.trials = self._rightly(own if trials is None else trials)

    @cached_property
    def larger(self) -> tuple[Tried, ...]:
        """Larger problems that the unchanged kernel computes rightly."""
        return self._rightly(larger_problems(self.kernel))

    def _rightly(self, problems: Sequence[Any]) -> tuple[Tried, ...]:
        """The problems that the unchanged kernel computes rightly, with its results. Others say nothing of a change."""
        found = []
        for problem in problems:
            known = len(self.wrong)
            tried = self._tried(problem)
            if len(self.wrong) == known:
                found.append(dataclasses.replace(tried, result=self._result(tried)))
        return tuple(found)

    @cached_property
    def lines(self) -> tuple[DisassembledLine, ...]:
        """The instructions that trials or larger problems execute."""
        reached: set[int] = set().union(*(tried.reached for tried in (*self.trials, *self.larger)))
        (lines,) = {id(k.program.lines): k.program.lines for k in self._loaded.values()}.values()
        return tuple(lines[address] for address in sorted(reached))

    @property
    def unreached(self) -> tuple[DisassembledLine, ...]:
        """Those that no trial executes: changes of them cannot be noticed."""
        reached: set[int] = set().union(*(tried.reached for tried in self.trials))
        return tuple(line for line in self.lines if line.address not in reached)

    @cached_property
    def basis(self) -> str:
        """A digest of all that outcomes depend on but the change itself: code, problems, and their results."""
        code = [line.text for line in self.lines]
        problems = [(repr(tried.problem), sha256(tried.result).hexdigest()) for tried in (*self.trials, *self.larger)]
        return digest_text(repr((RULES, self.kernel.slug, code, problems)))[:16]

    def is_known(self, mutation: Mutation) -> bool:
        """Whether the device knows the changed instruction."""
        return is_known_in(self._holder(mutation).program, mutation)

    def note(self, outcome: Outcome) -> None:
        """Let the trial that noticed a change be asked early about the next ones."""
        if outcome.trial is not None:
            self._noticed[outcome.trial] += 1

    def outcome(self, mutation: Mutation, mode: Mode = Mode.STRICT, only: int | None = None) -> Outcome:
        """What comes of a change: trials until one notices, those first that noticed most; then larger problems.

        With `only` that one trial.
        """
        exchange = partial(_changed, {}, mutation)
        passed: list[tuple[Tried, Check]] = []
        order = sorted(range(len(self.trials)), key=lambda number: (-self._noticed[number], number))
        for number in order if only is None else (only,):
            tried = self.trials[number]
            if mutation.line.address not in tried.reached:
                continue  # its result cannot be another one
            check = self._verified(tried, mode, exchange)
            if not check.ok:
                return Outcome(NOTICED, _short(check), len(passed) + 1, number)
            passed.append((tried, check))
        return self._unnoticed(mutation, exchange, passed) if only is None else Outcome(SAME, trials=len(passed))

    def _unnoticed(self, mutation: Mutation, exchange: Exchange, passed: Sequence[tuple[Tried, Check]]) -> Outcome:
        """What comes of a change that passes all trials: the larger problems, the smallest first, then bits."""
        differing: list[tuple[float, str]] = []
        for tried in self.larger:
            if mutation.line.address not in tried.reached:
                continue
            try:
                if self._result(tried, exchange) == tried.result:
                    continue
            except DeviceError as error:
                return Outcome(MISSED, f"{shown(tried.problem)}: {str(error).partition(chr(10))[0]}", len(passed))
            check = self._verified(tried, Mode.STRICT, exchange)
            if not check.ok:
                return Outcome(MISSED, f"{shown(tried.problem)}: {_short(check)}", len(passed))
            differing.append((check.share, shown(tried.problem)))
        if not differing:
            other = (each for each in passed if self._result(each[0], exchange) != each[0].result)
            differing += [(check.share, shown(tried.problem)) for tried, check in other]
        if not differing:
            return Outcome(SAME, trials=len(passed))
        share, where = max(differing)
        return Outcome(WITHIN, f"{where}: other bits, within the tolerance", len(passed), share=share)

    def without(self, mutation: Mutation) -> Outcome:
        """What comes of a barrier or wait that is taken away; of one that nothing notices, why it is not needed."""
        found = self.outcome(mutation)
        if found.verdict != SAME:
            return found
        reason = self._idle_wait(mutation) if WAIT.match(mutation.line.text) else self._idle_barrier(mutation)
        return Outcome(reason or SAME, trials=found.trials)

    def _tried(self, problem: Any) -> Tried:
        """What the unchanged kernel does with a problem."""
        for loaded in self._loaded.values():
            loaded.program.clear_reached()
        references = ReferenceCache()
        check = self._verified(Tried(problem, frozenset(), 1 << 27, references), Mode.STRICT, self._seen)
        if not check.ok:
            self.wrong.append(f"{shown(problem)}: {_short(check)}")
        reached = {line.address for loaded in self._loaded.values() for line in loaded.program.reached}
        executed = sum(check.counters.instructions.values()) if check.counters else 0
        return Tried(problem, frozenset(reached), executed, references)

    def _seen(self, kernel: DeviceKernel) -> DeviceKernel:
        self._loaded.setdefault(kernel.name, kernel)
        return kernel

    def _verified(self, tried: Tried, mode: Mode, exchange: Exchange, engine: str = "native") -> Check:
        with self._device.emulating(exchange=exchange, limit=tried.limit, engine=engine):
            (check,) = verify(
                self.kernel, self.artifact, self._device, [tried.problem], mode=mode, references=tried.references
            )
        return check

    def _result(
        self, tried: Tried, exchange: Exchange | None = None, engine: str = "native", turned: bool = False
    ) -> bytes:
        """All tensors as a launch leaves them, with random inputs, bit for bit."""
        device, execution, problem = self._device, self._execution, tried.problem
        given = dict(tried.references.get_expected(self.kernel.op, problem, 1, device.arch).inputs)
        for preparation in execution.preparations(self.kernel.config, problem):
            given[preparation.tensor] = preparation.apply(given[preparation.tensor])
        placed = [
            PoisonedTensor(t, to_numpy_dtype(t.dtype, device.arch), given.get(t.name))
            for t in execution.tensors(problem)
        ]
        functions = bind_functions(device, self.artifact.verify_file(LIBRARY), self.kernel)
        call = BoundKernel(device, self.kernel, functions, execution, problem)
        with ExitStack() as freed:
            buffers = [freed.enter_context(device.allocate(each.nbytes, each.tensor.name)) for each in placed]
            for buffer, each in zip(buffers, placed, strict=True):
                buffer.copy_from(each.memory)
            settings: dict[str, Any] = {"exchange": exchange, "limit": tried.limit, "engine": engine, "turned": turned}
            with device.make_current(), device.emulating(mode=Mode.STRICT, **settings):
                call([buffer.address for buffer in buffers], None)
                device.synchronize()
            for buffer, each in zip(buffers, placed, strict=True):
                buffer.copy_to(each.after)
        return b"".join(each.after.tobytes() for each in placed)

    def _holder(self, mutation: Mutation) -> DeviceKernel:
        """A kernel of the code object that the changed line may belong to: all have the same listing."""
        return next(k for k in self._loaded.values() if mutation.line.address in k.program.lines)

    def _reaching(self, line: DisassembledLine) -> Iterator[Tried]:
        """Problems that execute a line, the smallest first: one at least, and as many as the budget allows."""
        reaching = (tried for tried in (*self.trials, *self.larger) if line.address in tried.reached)
        left = BUDGET
        for tried in sorted(reaching, key=lambda tried: tried.instructions):
            if left < BUDGET and tried.instructions > left:
                return
            left -= tried.instructions
            yield tried

    def _slow_result(self, tried: Tried, turned: bool) -> bytes:
        """The unchanged kernel's result on NumPy's engine: its roundings, and the order of its atomic additions."""
        key = tried.problem, turned
        if key not in self._slow:
            self._slow[key] = self._result(tried, engine="numpy", turned=turned)
        return self._slow[key]

    def _idle_wait(self, mutation: Mutation) -> str:
        """Why nobody needs a wait whose lack changes no result; empty when that is not known."""
        if covered(mutation, self._holder(mutation)):
            return COVERED
        due: list[PendingEffect] = []
        for tried in self._reaching(mutation.line):
            for garbage, turned in WATCHES:
                watched = Watched(mutation, garbage)
                try:
                    with watched.races.watching():
                        result = self._result(tried, watched.exchange, engine="numpy", turned=turned)
                except DeviceError:
                    return ""  # garbage as an address, or as the number of rounds of a loop
                # Reads of the LDS come in order, whatever other waves do meanwhile.
                ordered = all(effect.lds_read for effect in watched.due)
                if result != self._slow_result(tried, turned) or (watched.needed and not ordered):
                    return ""
                due += watched.due
        if not due:
            return IDLE
        return LDS_READS if all(effect.lds_read for effect in due) else UNUSED

    def _idle_barrier(self, mutation: Mutation) -> str:
        """Why nobody needs a barrier whose lack changes no result; empty when that is not known."""
        for tried in self._reaching(mutation.line):
            races = Races(mutation.line.address)
            with races.watching():
                self._result(tried, watched_barrier(mutation, races), engine="numpy")
            if races.found or races.exchanged:
                return ""
        return ORDERED


def _changed(known: dict[str, DeviceKernel], mutation: Mutation, kernel: DeviceKernel) -> DeviceKernel:
    """The kernel with one line changed, made once."""
    if kernel.name not in known:
        program = kernel.program.replace_instruction(mutation.line.address, mutation.text)
        known[kernel.name] = dataclasses.replace(kernel, program=program)
    return known[kernel.name]


def _short(check: Check) -> str:
    """A verdict in one line, with the name of the fault."""
    return f"{check.verdict}: {check.message.partition(chr(10))[0]}"[:240]
