"""Judge a kernel with one changed instruction by `verify` on the op's trials, as users run them."""

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
from tests.proof.mutating.changes import WAIT, Mutation, is_supported_by
from tests.proof.mutating.problems import draw_larger_problems, format_problem
from tests.proof.mutating.races import RaceDetector
from tests.proof.mutating.reasons import (
    BUDGET,
    COVERED,
    IDLE,
    LDS_READS,
    ORDERED,
    UNUSED,
    WATCHES,
    Exchange,
    WatchedWait,
    is_covered,
    watch_barrier,
)
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.digest import digest_text
from tilewright.base.errors import DeviceError
from tilewright.building.compile_job import LIBRARY
from tilewright.building.disassembled import DisassembledLine
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
# The version of the rules for verdicts. Logged outcomes of another version are not used.
RULES_VERSION = 3
# A changed loop may never end. A launch may execute MIN_LIMIT instructions, or LIMIT_FACTOR times as many as the
# unchanged kernel, whichever is more.
MIN_LIMIT = 1 << 20
LIMIT_FACTOR = 16


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutation.

    `verdict` is NOTICED: a trial failed; SAME: every result is the same, bit for bit, also on the larger problems;
    WITHIN: some results have other bits, and `verify` accepts them all; MISSED: all trials pass, and `verify` rejects a
    larger problem; or one of HARMLESS. `trials` is the number of trials that were run.
    """

    verdict: str
    how: str = ""
    trials: int = 0
    trial: int | None = None  # the index of the trial that noticed it
    share: float = 0.0  # WITHIN: the largest error of results with other bits, as a share of the tolerance


@dataclass(frozen=True)
class Baseline:
    """A problem, and the instructions that the unchanged kernel executes for it."""

    problem: Any
    reached: frozenset[int]
    instructions: int
    references: ReferenceCache = field(repr=False)
    result: bytes = field(default=b"", repr=False)

    @property
    def limit(self) -> int:
        """The number of instructions that a launch may execute."""
        return max(MIN_LIMIT, LIMIT_FACTOR * self.instructions)


class Judge:
    """Judges the mutations of a built kernel on its trials and on larger problems."""

    def __init__(self, kernel: OpKernel, artifact: Artifact, trials: Sequence[Any] | None = None) -> None:
        self.kernel = kernel
        self.artifact = artifact
        self._device = tw.Device(f"emulated:{kernel.arch}")
        self._execution = get_execution(kernel.op)
        self._loaded: dict[str, DeviceKernel] = {}
        self._noticed: Counter[int] = Counter()  # mutations that each trial noticed
        self._numpy_results: dict[Any, bytes] = {}
        self.wrong_problems: list[str] = []  # problems that the unchanged kernel computes wrongly
        own = self._execution.trials(kernel.config, self._device.arch)
        self.trials = self._keep_correct(own if trials is None else trials)

    @cached_property
    def larger(self) -> tuple[Baseline, ...]:
        """Larger problems that the unchanged kernel computes correctly."""
        return self._keep_correct(draw_larger_problems(self.kernel))

    def _keep_correct(self, problems: Sequence[Any]) -> tuple[Baseline, ...]:
        """Keep the problems that the unchanged kernel computes correctly, with its results."""
        found = []
        for problem in problems:
            wrong_before = len(self.wrong_problems)
            baseline = self._run_baseline(problem)
            if len(self.wrong_problems) == wrong_before:
                found.append(dataclasses.replace(baseline, result=self._compute_result(baseline)))
        return tuple(found)

    @cached_property
    def lines(self) -> tuple[DisassembledLine, ...]:
        """The instructions that trials or larger problems execute."""
        reached: set[int] = set().union(*(baseline.reached for baseline in (*self.trials, *self.larger)))
        (lines,) = {id(k.program.lines): k.program.lines for k in self._loaded.values()}.values()
        return tuple(lines[address] for address in sorted(reached))

    @property
    def unreached_lines(self) -> tuple[DisassembledLine, ...]:
        """The instructions that only larger problems execute: trials cannot notice their mutations."""
        reached: set[int] = set().union(*(baseline.reached for baseline in self.trials))
        return tuple(line for line in self.lines if line.address not in reached)

    @cached_property
    def basis(self) -> str:
        """A digest of everything that outcomes depend on, except the mutation: code, problems and their results."""
        code = [line.text for line in self.lines]
        problems = [
            (repr(baseline.problem), sha256(baseline.result).hexdigest()) for baseline in (*self.trials, *self.larger)
        ]
        return digest_text(repr((RULES_VERSION, self.kernel.slug, code, problems)))[:16]

    def is_supported(self, mutation: Mutation) -> bool:
        """Whether the device supports the changed instruction."""
        return is_supported_by(self._find_kernel(mutation).program, mutation)

    def count_notice(self, outcome: Outcome) -> None:
        """Count the mutations that each trial noticed: `judge` runs the best trials first."""
        if outcome.trial is not None:
            self._noticed[outcome.trial] += 1

    def judge(self, mutation: Mutation, mode: Mode = Mode.STRICT, only: int | None = None) -> Outcome:
        """Run trials until one notices the mutation, those first that noticed most; then the larger problems.

        With `only`, run the trial with this index and nothing else.
        """
        exchange = partial(_apply_mutation, {}, mutation)
        passed: list[tuple[Baseline, Check]] = []
        order = sorted(range(len(self.trials)), key=lambda number: (-self._noticed[number], number))
        for number in order if only is None else (only,):
            baseline = self.trials[number]
            if mutation.line.address not in baseline.reached:
                continue  # the result cannot differ
            check = self._verify(baseline, mode, exchange)
            if not check.ok:
                return Outcome(NOTICED, summarize(check), len(passed) + 1, number)
            passed.append((baseline, check))
        return self._judge_larger(mutation, exchange, passed) if only is None else Outcome(SAME, trials=len(passed))

    def _judge_larger(
        self, mutation: Mutation, exchange: Exchange, passed: Sequence[tuple[Baseline, Check]]
    ) -> Outcome:
        """Judge a mutation that passed all trials: by larger problems, the smallest first, then by bits."""
        differing: list[tuple[float, str]] = []
        for baseline in self.larger:
            if mutation.line.address not in baseline.reached:
                continue
            try:
                if self._compute_result(baseline, exchange) == baseline.result:
                    continue
            except DeviceError as error:
                return Outcome(
                    MISSED, f"{format_problem(baseline.problem)}: {str(error).partition(chr(10))[0]}", len(passed)
                )
            check = self._verify(baseline, Mode.STRICT, exchange)
            if not check.ok:
                return Outcome(MISSED, f"{format_problem(baseline.problem)}: {summarize(check)}", len(passed))
            differing.append((check.share, format_problem(baseline.problem)))
        if not differing:
            other = (each for each in passed if self._compute_result(each[0], exchange) != each[0].result)
            differing += [(check.share, format_problem(baseline.problem)) for baseline, check in other]
        if not differing:
            return Outcome(SAME, trials=len(passed))
        share, where = max(differing)
        return Outcome(WITHIN, f"{where}: other bits, within the tolerance", len(passed), share=share)

    def judge_removal(self, mutation: Mutation) -> Outcome:
        """Judge a removed barrier or wait. If no trial notices it, look for a reason why it is not needed."""
        found = self.judge(mutation)
        if found.verdict != SAME:
            return found
        reason = self._explain_wait(mutation) if WAIT.match(mutation.line.text) else self._explain_barrier(mutation)
        return Outcome(reason or SAME, trials=found.trials)

    def _run_baseline(self, problem: Any) -> Baseline:
        """Run the unchanged kernel on a problem."""
        for loaded in self._loaded.values():
            loaded.program.clear_reached()
        references = ReferenceCache()
        check = self._verify(Baseline(problem, frozenset(), 1 << 27, references), Mode.STRICT, self._record_kernel)
        if not check.ok:
            self.wrong_problems.append(f"{format_problem(problem)}: {summarize(check)}")
        reached = {line.address for loaded in self._loaded.values() for line in loaded.program.reached}
        executed = sum(check.counters.instructions.values()) if check.counters else 0
        return Baseline(problem, frozenset(reached), executed, references)

    def _record_kernel(self, kernel: DeviceKernel) -> DeviceKernel:
        self._loaded.setdefault(kernel.name, kernel)
        return kernel

    def _verify(self, baseline: Baseline, mode: Mode, exchange: Exchange, engine: str = "native") -> Check:
        with self._device.emulating(exchange=exchange, limit=baseline.limit, engine=engine):
            (check,) = verify(
                self.kernel, self.artifact, self._device, [baseline.problem], mode=mode, references=baseline.references
            )
        return check

    def _compute_result(
        self, baseline: Baseline, exchange: Exchange | None = None, engine: str = "native", turned: bool = False
    ) -> bytes:
        """Return the bytes of all tensors after a launch with random inputs."""
        settings: dict[str, Any] = {"exchange": exchange, "limit": baseline.limit, "engine": engine, "turned": turned}
        with self._device.emulating(**settings):
            return compute_result(self.kernel, self.artifact, self._device, baseline.problem, baseline.references)

    def _find_kernel(self, mutation: Mutation) -> DeviceKernel:
        """Find a kernel whose listing contains the changed line: all kernels of a code object share one listing."""
        return next(k for k in self._loaded.values() if mutation.line.address in k.program.lines)

    def _iterate_reaching(self, line: DisassembledLine) -> Iterator[Baseline]:
        """Yield problems that execute a line, the smallest first: at least one, and as many as the budget allows."""
        reaching = (baseline for baseline in (*self.trials, *self.larger) if line.address in baseline.reached)
        remaining = BUDGET
        for baseline in sorted(reaching, key=lambda baseline: baseline.instructions):
            if remaining < BUDGET and baseline.instructions > remaining:
                return
            remaining -= baseline.instructions
            yield baseline

    def _compute_numpy_result(self, baseline: Baseline, turned: bool) -> bytes:
        """Return the unchanged kernel's result on the NumPy engine, which rounds and orders atomics in its own way."""
        key = baseline.problem, turned
        if key not in self._numpy_results:
            self._numpy_results[key] = self._compute_result(baseline, engine="numpy", turned=turned)
        return self._numpy_results[key]

    def _explain_wait(self, mutation: Mutation) -> str:
        """Return the reason why a removed wait is not needed, or an empty string if none is known."""
        if is_covered(mutation, self._find_kernel(mutation)):
            return COVERED
        due: list[PendingEffect] = []
        for baseline in self._iterate_reaching(mutation.line):
            for garbage, turned in WATCHES:
                watched = WatchedWait(mutation, garbage)
                try:
                    with watched.races.watch_accesses():
                        result = self._compute_result(baseline, watched.exchange, engine="numpy", turned=turned)
                except DeviceError:
                    return ""  # garbage was used as an address or as a loop count
                # LDS reads complete in order, whatever other waves do meanwhile.
                ordered = all(effect.lds_read for effect in watched.due)
                if result != self._compute_numpy_result(baseline, turned) or (watched.is_needed and not ordered):
                    return ""
                due += watched.due
        if not due:
            return IDLE
        return LDS_READS if all(effect.lds_read for effect in due) else UNUSED

    def _explain_barrier(self, mutation: Mutation) -> str:
        """Return the reason why a removed barrier is not needed, or an empty string if none is known."""
        for baseline in self._iterate_reaching(mutation.line):
            races = RaceDetector(mutation.line.address)
            with races.watch_accesses():
                self._compute_result(baseline, watch_barrier(mutation, races), engine="numpy")
            if races.conflict or races.exchanged:
                return ""
        return ORDERED


def _apply_mutation(known: dict[str, DeviceKernel], mutation: Mutation, kernel: DeviceKernel) -> DeviceKernel:
    """Return the kernel with one changed line, made once."""
    if kernel.name not in known:
        program = kernel.program.replace_instruction(mutation.line.address, mutation.text)
        known[kernel.name] = dataclasses.replace(kernel, program=program)
    return known[kernel.name]


def compute_result(
    kernel: OpKernel, artifact: Artifact, device: tw.Device, problem: Any, references: ReferenceCache
) -> bytes:
    """Return the bytes of all tensors after a launch in strict mode, with random inputs."""
    execution = get_execution(kernel.op)
    inputs = dict(references.get_expected(kernel.op, problem, 1, device.arch).inputs)
    for preparation in execution.preparations(kernel.config, problem):
        inputs[preparation.tensor] = preparation.apply(inputs[preparation.tensor])
    tensors = [
        PoisonedTensor(t, to_numpy_dtype(t.dtype, device.arch), inputs.get(t.name)) for t in execution.tensors(problem)
    ]
    functions = bind_functions(device, artifact.verify_file(LIBRARY), kernel)
    call = BoundKernel(device, kernel, functions, execution, problem)
    with ExitStack() as stack:
        buffers = [stack.enter_context(device.allocate(each.nbytes, each.tensor.name)) for each in tensors]
        for buffer, each in zip(buffers, tensors, strict=True):
            buffer.copy_from(each.memory)
        with device.make_current(), device.emulating(mode=Mode.STRICT):
            call([buffer.address for buffer in buffers], None)
            device.synchronize()
        for buffer, each in zip(buffers, tensors, strict=True):
            buffer.copy_to(each.after)
    return b"".join(each.after.tobytes() for each in tensors)


def summarize(check: Check) -> str:
    """Format the verdict and the first line of its message."""
    return f"{check.verdict}: {check.message.partition(chr(10))[0]}"[:240]
