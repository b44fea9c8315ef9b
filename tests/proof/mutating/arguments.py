"""Change one argument of a kernel's calls on its way to the compiled kernel, and let `verify` judge.

A kernel takes one struct of 8-byte numbers and addresses. What a wrong launcher, or a wrong caller, does with one of
them is a change here: it is swapped with its neighbour, one too large or too small, 0, the default, or the value of
another trial.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.proof.mutating.judge import (
    LIMIT_FACTOR,
    MIN_LIMIT,
    MISSED,
    NOTICED,
    SAME,
    WITHIN,
    Outcome,
    compute_result,
    summarize,
)
from tests.proof.mutating.problems import draw_larger_problems, format_problem
from tilewright.base.errors import DeviceError, InvalidValueError, UnsupportedError
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_field import list_declared_fields
from tilewright.runtime.device import Device

SWAPPED, LARGER, SMALLER, ZERO, DEFAULT, OTHER = "swapped with the next", "+1", "-1", "0", "default", "of another trial"
CHANGES = (SWAPPED, LARGER, SMALLER, ZERO, DEFAULT, OTHER)
WORD_BYTES = 8
# A quiet NaN, an address outside of all memory, and a number beyond all limits.
_GARBAGE = 0x7FF85A5A5A5A5A5B
_MORE = 64  # strides must be multiples of vectors
# Why a change has no effect. The first two are found by further launches.
BOUND = "only checked, or an upper bound: a much larger number changes no bit of any trial"
ROUNDED = "the same sum in other parts, within the tolerance"
_REASONS = {
    ("fmha", "window_left", SMALLER): "every number below 0 means all keys",
    ("fmha", "window_right", SMALLER): "every number below 0 means all keys",
    ("fmha", "kv_heads", DEFAULT): "there are no keys: it is only checked to divide the heads",
    ("gemm_quant", "scale_a", SWAPPED): "one scale each: their product is the same",
}
_NOT_ARGUMENTS = ("size",)  # of the struct itself

Apply = Callable[[ctypes.Structure], None]


@dataclass(frozen=True)
class Argument:
    """One number or address of the struct."""

    name: str
    offset: int
    kind: Any  # a simple ctypes class of 8 bytes

    def read(self, args: ctypes.Structure) -> Any:
        return self.kind.from_buffer(args, self.offset).value or 0

    def write(self, args: ctypes.Structure, value: Any) -> None:
        self.kind.from_buffer(args, self.offset).value = value

    def write_bits(self, args: ctypes.Structure, bits: int) -> None:
        ctypes.c_uint64.from_buffer(args, self.offset).value = bits

    @property
    def is_address(self) -> bool:
        return self.kind is ctypes.c_void_p


@dataclass(frozen=True)
class ArgumentChange:
    """A change of one argument. `next` is the argument behind it, if it has the same type."""

    argument: Argument
    change: str
    next: Argument | None = None

    @property
    def touched(self) -> tuple[Argument, ...]:
        """The arguments that get another value."""
        return (self.argument, self.next) if self.next else (self.argument,)

    def __str__(self) -> str:
        return f"{self.argument.name} {self.change}" + (f", {self.next.name}" if self.next else "")


def list_arguments(struct: type[ctypes.Structure]) -> tuple[Argument, ...]:
    """List the numbers and addresses of a struct, in order."""
    return tuple(each for each in _iterate_arguments("", struct, 0) if each.name not in _NOT_ARGUMENTS)


def _iterate_arguments(name: str, kind: Any, offset: int) -> Iterator[Argument]:
    if issubclass(kind, ctypes.Structure):
        for member, inner, *_ in kind._fields_:
            yield from _iterate_arguments(f"{name}.{member}".lstrip("."), inner, offset + getattr(kind, member).offset)
    elif issubclass(kind, ctypes.Array):
        for index in range(kind._length_):
            yield from _iterate_arguments(f"{name}[{index}]", kind._type_, offset + index * ctypes.sizeof(kind._type_))
    else:
        assert ctypes.sizeof(kind) == WORD_BYTES, name
        yield Argument(name, offset, kind)


def list_changes(arguments: Sequence[Argument]) -> tuple[ArgumentChange, ...]:
    """List all changes of all arguments."""
    found = []
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        if following is not None and following.kind is argument.kind:
            found.append(ArgumentChange(argument, SWAPPED, following))
        found += [ArgumentChange(argument, change) for change in CHANGES[1:]]
    return tuple(found)


@dataclass(frozen=True)
class ChangedDevice(Device):
    """A device whose kernels get changed arguments."""

    apply: Apply = field(default=lambda _: None, compare=False)

    def library(self, path: Any) -> Any:
        return _ChangedLibrary(super().library(path), self.apply)


@dataclass(frozen=True)
class _ChangedLibrary:
    library: Any
    apply: Apply

    def __getitem__(self, name: str) -> Any:
        function = self.library[name]
        return _ChangedRun(function, self.apply) if name.endswith("_run") else function


class _ChangedRun:
    """The C function that launches a kernel, with changed arguments."""

    def __init__(self, function: Any, apply: Apply) -> None:
        self._function, self._apply = function, apply
        self.restype: Any = None
        self.argtypes: Any = None

    def __call__(self, reference: Any, stream: int | None) -> int:
        self._function.restype, self._function.argtypes = self.restype, self.argtypes
        args = type(reference._obj).from_buffer_copy(reference._obj)
        self._apply(args)
        return int(self._function(ctypes.byref(args), stream))


@dataclass
class _Trial:
    """A problem that the unchanged kernel computes correctly, with the cost of judging by it."""

    problem: Any
    references: ReferenceCache
    limit: int  # of instructions
    cost: float  # CPU seconds
    noticed: int = 0
    result: bytes | None = None


class ArgumentJudge:
    """Judges changed arguments of a built kernel, on its trials and on larger problems."""

    def __init__(self, kernel: Kernel, artifact: Artifact, trials: Sequence[Any] | None = None) -> None:
        self.kernel, self.artifact = kernel, artifact
        self._device_name = f"emulated:{kernel.arch}"
        self._execution = get_execution(kernel.op)
        own = self._execution.trials(kernel.config, Device(self._device_name).arch)
        self._defaults = {
            name: each.default
            for name, each in list_declared_fields(find_op(kernel.op).problem_type).items()
            if not each.required and not each.shorthand
        }
        self._problems = sorted(own if trials is None else trials, key=self._count_elements)
        self.arguments = list_arguments(type(self._execution.arguments(self._problems[0])))
        self._known: dict[Any, _Trial | None] = {}
        self._larger_alike: dict[Argument, bool] = {}
        self.wrong_problems: list[str] = []

    def _count_elements(self, problem: Any) -> int:
        """The elements of all tensors: what verifying a trial costs, roughly."""
        return sum(math.prod(tensor.shape) for tensor in self._execution.tensors(problem))

    def list_trials(self) -> list[_Trial]:
        """All trials."""
        return [trial for problem in self._problems if (trial := self._prepare(problem)) is not None]

    def _prepare(self, problem: Any) -> _Trial | None:
        """Run the unchanged kernel on a problem, once. None if it is wrong."""
        if problem not in self._known:
            references = ReferenceCache()
            self._verify(problem, references, 1 << 27)  # computes the references
            started = time.process_time()
            check = self._verify(problem, references, 1 << 27)
            executed = sum(check.counters.instructions.values()) if check.counters else 0
            limit = max(MIN_LIMIT, LIMIT_FACTOR * executed)
            self._known[problem] = _Trial(problem, references, limit, time.process_time() - started)
            if not check.ok:
                self.wrong_problems.append(f"{format_problem(problem)}: {summarize(check)}")
                self._known[problem] = None
        return self._known[problem]

    def _verify(self, problem: Any, references: ReferenceCache, limit: int, apply: Apply = lambda _: None) -> Check:
        device = ChangedDevice(self._device_name, apply)
        with device.emulating(limit=limit):
            (check,) = verify(self.kernel, self.artifact, device, [problem], mode=Mode.STRICT, references=references)
        return check

    def _compute_result(self, trial: _Trial, apply: Apply | None = None) -> bytes | None:
        """The bytes of all tensors after a launch with random inputs; None if the launch fails."""
        if apply is None:
            trial.result = trial.result or self._compute_result(trial, lambda _: None)
            return trial.result
        device = ChangedDevice(self._device_name, apply)
        try:
            with device.emulating(limit=trial.limit):
                return compute_result(self.kernel, self.artifact, device, trial.problem, trial.references)
        except (DeviceError, InvalidValueError, UnsupportedError):
            return None

    def find_unread(self) -> tuple[Argument, ...]:
        """Arguments that the kernel does not read: all trials have the same bits with garbage in all of them."""
        trials = self.list_trials()

        def fill_with_garbage(args: ctypes.Structure, some: Sequence[Argument]) -> None:
            for argument in some:
                argument.write_bits(args, _GARBAGE)

        alone = [each for each in self.arguments if self._is_same(trials[:1], partial(fill_with_garbage, some=[each]))]
        return tuple(self._find_same(alone, trials, fill_with_garbage))

    def _find_same(self, some: list[Argument], trials: Sequence[_Trial], fill: Callable[..., None]) -> list[Argument]:
        """Those arguments that may be filled all at once, without another result."""
        if not some or self._is_same(trials, partial(fill, some=some)):
            return some
        if len(some) == 1:
            return []
        middle = len(some) // 2
        return [each for half in (some[:middle], some[middle:]) for each in self._find_same(half, trials, fill)]

    def _is_same(self, trials: Sequence[_Trial], apply: Apply) -> bool:
        """Whether all trials have the same bits with changed arguments."""
        return all(self._compute_result(trial, apply) == self._compute_result(trial) for trial in trials)

    def explain(self, change: ArgumentChange, outcome: Outcome) -> str:
        """Why a change that no problem notices has no effect; empty if no reason is known."""
        argument = change.argument
        if outcome.verdict == WITHIN and argument.name == "k_batch":
            return ROUNDED
        known = _REASONS.get((self.kernel.op, argument.name, change.change), "")
        return known or (BOUND if self._may_be_larger(argument) else "")

    def _may_be_larger(self, argument: Argument) -> bool:
        if argument.is_address:
            return False
        if argument not in self._larger_alike:
            trials = self.list_trials()
            self._larger_alike[argument] = self._is_same(
                trials, lambda args: argument.write(args, 2 * argument.read(args) + _MORE)
            )
        return self._larger_alike[argument]

    def judge(self, change: ArgumentChange) -> Outcome | None:
        """Run trials until one notices the change, the most telling for their cost first; then larger problems.

        None if no trial's argument changes.
        """
        passed: list[tuple[_Trial, Check, Apply]] = []
        trials = sorted(self.list_trials(), key=lambda trial: -(1 + trial.noticed) / trial.cost)
        for trial in trials:
            apply = self._make_apply(change, trial.problem)
            if apply is None:
                continue
            said, check = self._notice(trial, apply)
            if said:
                trial.noticed += 1
                return Outcome(NOTICED, said, len(passed) + 1)
            assert check is not None
            passed.append((trial, check, apply))
        return self._judge_larger(change, passed) if passed else None

    def _notice(self, trial: _Trial, apply: Apply) -> tuple[str, Check | None]:
        """What shows a change; empty if nothing does."""
        try:
            check = self._verify(trial.problem, trial.references, trial.limit, apply)
        except InvalidValueError as error:  # the launcher checks the struct
            return f"rejected: {str(error).partition(chr(10))[0]}"[:240], None
        return ("" if check.ok else summarize(check)), check

    def _judge_larger(self, change: ArgumentChange, passed: Sequence[tuple[_Trial, Check, Apply]]) -> Outcome:
        for problem in draw_larger_problems(self.kernel):
            trial, apply = self._prepare(problem), self._make_apply(change, problem)
            if trial is not None and apply is not None and (said := self._notice(trial, apply)[0]):
                return Outcome(MISSED, f"{format_problem(problem)}: {said}", len(passed))
        shares = [
            (check.share, format_problem(trial.problem))
            for trial, check, apply in passed
            if self._compute_result(trial, apply) != self._compute_result(trial)
        ]
        if not shares:
            return Outcome(SAME, trials=len(passed))
        share, where = max(shares)
        return Outcome(WITHIN, f"{where}: other bits, within the tolerance", len(passed), share=share)

    def _make_apply(self, change: ArgumentChange, problem: Any) -> Apply | None:
        """The function that changes the struct of a problem; None if the value is the same."""
        argument, following = change.argument, change.next
        args = self._execution.arguments(problem)
        # Any addresses: they differ, and those of tensors that the problem does not have stay 0.
        self._execution.point(problem)(args, [1 + index for index, _ in enumerate(self._execution.tensors(problem))])
        own = argument.read(args)
        if following is not None:
            return _make_swap(argument, following) if own != following.read(args) else None
        if argument.is_address:
            steps = {LARGER: 1, SMALLER: -1, **({ZERO: None} if own else {})}
            return _make_step(argument, steps[change.change]) if change.change in steps else None
        value = self._choose_value(change, problem, own)
        return None if value is None or value == own else lambda args: argument.write(args, value)

    def _choose_value(self, change: ArgumentChange, problem: Any, own: Any) -> Any:
        argument = change.argument
        if change.change == DEFAULT:
            return self._find_default(argument, problem)
        if change.change == OTHER:
            values = [argument.read(self._execution.arguments(other)) for other in self._problems]
            return next((value for value in values if value != own), None)
        return {LARGER: own + 1, SMALLER: own - 1, ZERO: 0}[change.change]

    def _find_default(self, argument: Argument, problem: Any) -> Any:
        """The value of an argument if the problem has the default in the field of this name."""
        if argument.name not in self._defaults:
            return None
        try:
            usual = dataclasses.replace(problem, **{argument.name: self._defaults[argument.name]})
        except InvalidValueError:
            return None
        return argument.read(self._execution.arguments(usual))


def _make_swap(one: Argument, other: Argument) -> Apply:
    def apply(args: ctypes.Structure) -> None:
        first, second = one.read(args), other.read(args)
        one.write(args, second)
        other.write(args, first)

    return apply


def _make_step(argument: Argument, step: int | None) -> Apply:
    """Move an address by so many bytes, or clear it."""

    def apply(args: ctypes.Structure) -> None:
        argument.write(args, 0 if step is None else argument.read(args) + step)

    return apply
