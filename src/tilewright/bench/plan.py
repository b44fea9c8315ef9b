"""The content of a sweep: problems, kernels and devices, and the tasks that follow from them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.base.digest import digest_text, digest_value
from tilewright.base.errors import InvalidValueError, TilewrightError
from tilewright.bench.field_checks import format_quoted
from tilewright.bench.record import Task, get_device_group
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_text import find_fixed_names
from tilewright.ops.problem_values import dump_problem, load_problem

# Kernels that measure one problem after each other and share the cost of its reference. More would gain little, as
# each result has to be compared with it. Their libraries stay loaded: fewer than `Limits.kernels`.
TEAM = 64
_SHARD = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})")


def parse_problem(op: str, text: str) -> Any:
    """The problem of canonical JSON: the inverse of `dump_problem`. Raises `InvalidValueError` for other text."""
    problem_type = find_op(op).problem_type
    try:
        return load_problem(problem_type, json.loads(text))
    except TilewrightError:
        raise
    except Exception as error:  # from JSON, or from a field of an unexpected type
        raise InvalidValueError(
            f"{format_quoted(text)} is not a problem of {op}: {type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True)
class Shard:
    """One of several equal parts of a sweep, `number` from 1. Each task is in exactly one of them."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise InvalidValueError(f"shard {self.number}/{self.count}: the first number must be from 1 to the second")

    @classmethod
    def parse_text(cls, text: str) -> Shard:
        """Parse text such as `2/8`."""
        found = _SHARD.fullmatch(text)
        if found is None:
            raise InvalidValueError(f"{text!r} is not a shard: write 2/8 for the second of eight")
        return cls(int(found[1]), int(found[2]))

    def index_range(self, count: int) -> range:
        """The index range of this shard in a sequence of `count` items."""
        return range(count * (self.number - 1) // self.count, count * self.number // self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


ALL = Shard()


@dataclass(frozen=True)
class TaskGrid:
    """Kernels of one kind on all problems of that kind, on one kind of device.

    All kernels on the first problem, then all on the next. The reference of a problem is computed once for them, and
    each kernel is loaded once.
    """

    kernels: tuple[Kernel, ...]
    device: str
    problems: Sequence[str] = dataclasses.field(repr=False)
    cold: bool = False
    versions: str = ""

    def __len__(self) -> int:
        return len(self.kernels) * len(self.problems)

    def iterate_tasks(self, which: range | None = None) -> Iterator[Task]:
        """All tasks, or those with the given indices."""
        for number in range(len(self)) if which is None else which:
            problem, kernel = divmod(number, len(self.kernels))
            yield self.make_task(self.kernels[kernel], self.problems[problem])

    def make_task(self, kernel: Kernel, problem: str) -> Task:
        return Task(
            op=kernel.op,
            arch=kernel.arch,
            kernel=kernel.slug,
            problem=problem,
            device=self.device,
            cold=self.cold,
            versions=self.versions,
        )


@dataclass(frozen=True)
class SweepPlan:
    """All tasks of a sweep: each kernel on each problem of its kind, on each kind of device with its GPU.

    `devices` maps names to their GPUs: {"gpu:0": "gfx942"}. Identical devices share the work. `settings` are those of
    `measure_task`, as plain values; `versions` those of the software.

    The order of the tasks depends only on the content of the plan, not on the order of its arguments: equal plans have
    equal shards. Problems are ordered by their digests, which mixes large and small ones, so that the remaining time
    can be estimated from the elapsed time, and shards take equally long.
    """

    problems: Sequence[Any]
    kernels: Sequence[Kernel]
    devices: Mapping[str, str]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: str = ""

    def __post_init__(self) -> None:
        for what, given in (("problem", self.problems), ("kernel", self.kernels), ("device", self.devices)):
            if not given:
                raise InvalidValueError(f"a sweep without a {what} measures nothing: pass at least one")

    @cached_property
    def distinct_devices(self) -> tuple[tuple[str, str], ...]:
        """One device and its GPU for each kind of device: the first of identical ones."""
        first: dict[tuple[str, str], str] = {}
        for device, arch in self.devices.items():
            first.setdefault((get_device_group(device), arch), device)
        return tuple((device, arch) for (_, arch), device in first.items())

    @cached_property
    def grids(self) -> tuple[TaskGrid, ...]:
        """All task grids, in order. Devices of several kinds take turns."""
        cold = bool(self.settings.get("cold", False))
        made = [
            [
                TaskGrid(kernels, device, self._find_problems(kernels[0]), cold, self.versions)
                for kernels in self._iterate_batches(arch)
            ]
            for device, arch in self.distinct_devices
        ]
        turns = itertools.zip_longest(*made)
        return tuple(block for turn in turns for block in turn if block is not None)

    def split_grids(self, shard: Shard = ALL) -> Iterator[tuple[TaskGrid, range]]:
        """Task grids and the indices of a shard's tasks in them: a shard has few kernels and few references."""
        own = shard.index_range(self.count)
        start = 0
        for block in self.grids:
            which = range(max(own.start - start, 0), min(own.stop - start, len(block)))
            if which:
                yield block, which
            start += len(block)

    def iterate_tasks(self, shard: Shard = ALL) -> Iterator[Task]:
        """All tasks, or those of a shard."""
        for block, which in self.split_grids(shard):
            yield from block.iterate_tasks(which)

    @cached_property
    def count(self) -> int:
        """The number of tasks."""
        return sum(map(len, self.grids))

    @cached_property
    def idle(self) -> tuple[Kernel, ...]:
        """Kernels without tasks: no problem has their kind, or no device has their GPU."""
        archs = set(self.devices.values())
        return tuple(k for k in self._kernels if k.arch not in archs or not self._find_problems(k))

    @cached_property
    def untried(self) -> int:
        """The number of problems without a kernel of their kind."""
        tried = {problem for kernel in self._kernels for problem in self._find_problems(kernel)}
        return len(set(self._texts) - tried)

    def has_pair(self, kernel: Kernel, problem: str) -> bool:
        """Whether a kernel is measured on a problem, given as in tasks: they are of one kind."""
        own = self._find_problems(kernel)
        if id(own) not in self._problem_sets:
            self._problem_sets[id(own)] = frozenset(own)
        return problem in self._problem_sets[id(own)]

    @cached_property
    def _problem_sets(self) -> dict[int, frozenset[str]]:
        """The same as sets, by the identity of the lists, which live as long as the plan."""
        return {}

    def describe_request(self) -> dict[str, Any]:
        """The content of `sweep.json`: equal for plans with the same content."""
        problems = sorted(set(self._texts))
        return {
            "kernels": len(self._kernels),
            "kernels_digest": digest_value(sorted(kernel.slug for kernel in self._kernels)),
            "problems": len(problems),
            "problems_digest": digest_value(problems),
            "devices": sorted({f"{get_device_group(device)} {arch}" for device, arch in self.distinct_devices}),
            "settings": dict(self.settings),
            "versions": self.versions,
        }

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        """The problems as in tasks, in the plan's order."""
        return tuple(map(dump_problem, self.problems))

    @cached_property
    def _kernels(self) -> tuple[Kernel, ...]:
        return tuple(sorted(set(self.kernels), key=lambda kernel: kernel.slug))

    def _iterate_batches(self, arch: str) -> Iterator[tuple[Kernel, ...]]:
        """The kernels of a GPU in batches that measure the same problems.

        The first batch is one kernel, and each next one is twice as large: devices start as soon as one kernel is
        built, and the next batch is built while one is measured.
        """
        kinds: dict[int, list[Kernel]] = defaultdict(list)
        for kernel in self._kernels:
            problems = self._find_problems(kernel)
            if kernel.arch == arch and problems:
                kinds[id(problems)].append(kernel)
        size = 1
        for kernels in kinds.values():
            start = 0
            while start < len(kernels):
                yield tuple(kernels[start : start + size])
                start, size = start + size, min(2 * size, TEAM)

    @cached_property
    def _kinds(self) -> dict[tuple[str, tuple[str, ...]], dict[tuple[Any, ...], list[str]]]:
        """Problems as JSON by op and the fields that kernels fix, then by their values. Filled on demand."""
        return {}

    def _find_problems(self, kernel: Kernel) -> Sequence[str]:
        """The problems of a kernel's kind: those that agree with it in all fields that both have."""
        problem_type = find_op(kernel.op).problem_type
        names = find_fixed_names(type(kernel.config), problem_type)
        kind = (kernel.op, names)
        if kind not in self._kinds:
            by_values: dict[tuple[Any, ...], dict[str, None]] = defaultdict(dict)
            for problem, text in zip(self.problems, self._texts, strict=True):
                if isinstance(problem, problem_type):
                    by_values[tuple(getattr(problem, name) for name in names)][text] = None
            self._kinds[kind] = {values: sorted(texts, key=digest_text) for values, texts in by_values.items()}
        return self._kinds[kind].get(tuple(getattr(kernel.config, name) for name in names), ())
