"""Build kernels while others are measured: a thread that stays as far ahead of the devices as the compilers allow."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterable, Iterator, Sequence

from tilewright.base import knobs
from tilewright.base.events import Event, add_listener
from tilewright.bench.executor import ArtifactRef
from tilewright.bench.record import format_message
from tilewright.building.builder import build_kernels
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.files import get_entry_layout
from tilewright.building.store.tiers import Tiers
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel

# Kernels per builder call and compiler job. Compilers idle at the end of a call, so the number must not be too small;
# devices receive the kernels only when the call ends, so it must not be too large. The first call takes one per job.
PER_JOB = 4


class _StoppedError(Exception):
    """The build was stopped because its result is no longer needed."""


class BuildAhead:
    """Builds kernels in the order in which they will be needed; a kernel that a caller waits for goes first."""

    def __init__(self, kernels: Iterable[str], *, jobs: int | None = None, tiers: Tiers | None = None) -> None:
        self._coming = iter(kernels)
        self._jobs = jobs or knobs.job_count()
        self._tiers = tiers
        self._changed = threading.Condition()
        self._found: dict[str, ArtifactRef | Failure] = {}
        self._wanted: str | None = None
        self._stopped = False
        self._error: BaseException | None = None
        # Listeners belong to a context: the build thread uses the caller's.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._build_all,), name="tilewright builds", daemon=True
        )
        self._thread.start()

    def wait(self, kernel: str) -> ArtifactRef | Failure | None:
        """Wait for a build and return its result; None after `stop`. Raises the error that stopped all builds."""
        with self._changed:
            self._wanted = kernel
            self._changed.notify_all()
            self._changed.wait_for(lambda: kernel in self._found or self._stopped or self._error)
            self._wanted = None
            if kernel in self._found:
                return self._found[kernel]
            if self._error is not None:
                raise self._error
            return None

    def stop(self) -> None:
        """Start no more builds. Running compilers are killed at their next event."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended; call `stop` first."""
        self._thread.join(timeout_s)

    def _build_all(self) -> None:
        try:
            with add_listener(self._raise_if_stopped):
                for chunk in self._iterate_chunks():
                    self._build(chunk)
        except _StoppedError:
            return
        except BaseException as error:  # raised again in `wait`
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _raise_if_stopped(self, _: Event) -> None:
        if self._stopped:
            raise _StoppedError

    def _iterate_chunks(self) -> Iterator[list[Kernel]]:
        """The kernels of each builder call: the one a caller waits for, then the next in order."""
        most = self._jobs
        coming: str | None = ""
        while not self._stopped:
            names: dict[str, None] = {}
            while len(names) < most and (coming := next(self._coming, None)) is not None:
                if coming not in self._found:
                    names[coming] = None
            with self._changed:
                if coming is None and not names:
                    self._changed.wait_for(self._is_asked)
                wanted = self._wanted
            if wanted is not None and wanted not in self._found:
                names = {wanted: None, **names}
            if names:
                yield [parse_kernel(name) for name in names]
                most = PER_JOB * self._jobs

    def _is_asked(self) -> bool:
        return self._stopped or (self._wanted is not None and self._wanted not in self._found)

    def _build(self, kernels: Sequence[Kernel]) -> None:
        results = build_with_retry(kernels, jobs=self._jobs, tiers=self._tiers)
        with self._changed:
            for kernel, entry in results.items():
                self._found[kernel.slug] = make_artifact_ref(entry) if isinstance(entry, Artifact) else entry
            self._changed.notify_all()


def build_with_retry(
    kernels: Sequence[Kernel], *, jobs: int, tiers: Tiers | None = None
) -> dict[Kernel, Artifact | Failure]:
    """Build kernels. A kernel whose compiler was killed is tried once more.

    A compiler that was killed, by a signal to the whole terminal or for lack of memory, proves nothing about the
    kernel.
    """
    results = dict(build_kernels(kernels, jobs=jobs, tiers=tiers).results)
    killed = [k for k, entry in results.items() if isinstance(entry, Failure) and not entry.facts.get("lasting", True)]
    if killed:
        results |= build_kernels(killed, jobs=jobs, tiers=tiers).results
    return results


def describe_build_failure(failure: Failure) -> str:
    """The compiler's first error, as a record's message."""
    errors = failure.facts.get("errors") or [line for line in failure.log.splitlines() if line.strip()][:1]
    return format_message(errors[0] if errors else "the compiler failed without a message")


def make_artifact_ref(artifact: Artifact) -> ArtifactRef:
    """Refer to an artifact, for a process that shares the disk."""
    return ArtifactRef(str(get_entry_layout(artifact.folder).root), artifact.key)
