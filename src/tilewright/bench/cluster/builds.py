"""The kernels that cluster nodes build while others measure, and the work that waits for them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.bench.cluster.actor import NodeBuildResult
from tilewright.bench.executor import ArtifactRef, WorkItem
from tilewright.bench.record import Record, format_message

# Attempts that may fail because of the node (it died, it has no compiler) before the kernel counts as not built.
TRIES = 3


@dataclass
class BuildQueue:
    """Tracks which kernels are built, being built and needed, and the work that waits for them. Independent of Ray.

    `ahead` are the kernels that future work needs. They are built in this order, after those that work already waits
    for, and only once some work needs a build.
    """

    ahead: Iterator[str]
    _keys: dict[str, str] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)
    _urgent: deque[str] = field(default_factory=deque)
    _waiting: dict[str, list[WorkItem]] = field(default_factory=dict)
    _tries: Counter[str] = field(default_factory=Counter)
    _needed: bool = False

    @property
    def waiting_count(self) -> int:
        """The number of tasks that wait for a build."""
        return sum(len(works) for works in self._waiting.values())

    def submit_work(self, work: WorkItem) -> WorkItem | Record | None:
        """The work with its kernel built, or the record of a failed build; None if the work now waits here."""
        if not work.needs_build:
            return work
        self._needed = True
        kernel = work.task.kernel
        if kernel in self._keys:
            return work.bind_artifact(ArtifactRef("", self._keys[kernel]))
        if kernel in self._failures:
            return _make_failure_record(work, self._failures[kernel])
        if kernel not in self._waiting:
            self._waiting[kernel] = []
            if kernel not in self._begun:
                self._urgent.append(kernel)
        self._waiting[kernel].append(work)
        return None

    def take_next(self) -> str | None:
        """The kernel to build next; None if there is none now."""
        while self._urgent:
            kernel = self._urgent.popleft()
            if kernel not in self._begun:
                self._begun.add(kernel)
                return kernel
        for kernel in self.ahead if self._needed else ():
            if kernel not in self._begun:
                self._begun.add(kernel)
                return kernel
        return None

    def handle_results(self, answers: Iterable[NodeBuildResult]) -> list[WorkItem | Record]:
        """Record build results, and return the work that no longer waits."""
        freed: list[WorkItem | Record] = []
        for answer in answers:
            if answer.failure is None:
                self._keys[answer.kernel] = answer.key
            else:
                self._failures[answer.kernel] = answer.failure
            freed += self._release_waiting(answer.kernel)
        return freed

    def retry_builds(self, kernels: Sequence[str], why: str) -> list[WorkItem | Record]:
        """Retry builds that failed because of their node, at most `TRIES` times."""
        freed: list[WorkItem | Record] = []
        for kernel in kernels:
            self._tries[kernel] += 1
            if self._tries[kernel] >= TRIES:
                self._failures[kernel] = f"{TRIES} attempts to build it failed; the last: {why}"
                freed += self._release_waiting(kernel)
            else:
                self._begun.discard(kernel)
                self._urgent.append(kernel)
        return freed

    def handle_missing(self, works: Iterable[WorkItem], why: str) -> list[WorkItem | Record]:
        """Build kernels again that a node does not find in its stores, and let their work wait."""
        unbuilt = [WorkItem(work.task) for work in works]
        freed: list[WorkItem | Record] = []
        for kernel in dict.fromkeys(work.task.kernel for work in unbuilt):
            if self._keys.pop(kernel, None) is not None:
                freed += self.retry_builds([kernel], why)
        return freed + [each for work in unbuilt if (each := self.submit_work(work)) is not None]

    def _release_waiting(self, kernel: str) -> list[WorkItem | Record]:
        freed = []
        for work in self._waiting.pop(kernel, ()):
            ready = self.submit_work(work)
            assert ready is not None
            freed.append(ready)
        return freed


def _make_failure_record(work: WorkItem, why: str) -> Record:
    return Record(task=work.task, status="build_failed", message=format_message(why), worker="cluster")
