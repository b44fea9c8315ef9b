"""Building kernels: keys first, the store second, the compiler only for what nobody has."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base import events, knobs
from tilewright.base.errors import InvalidValueError, StoreError
from tilewright.build.allocator import fast_allocator
from tilewright.build.costs import Costs, read_costs, record_cost
from tilewright.build.engine import run_graph
from tilewright.build.graph import STEPS, Work, write_graph
from tilewright.build.outcome import broken, facts_of
from tilewright.build.prefix import Prefix, Roof, roof_or_plain
from tilewright.build.schedule import Schedule, Span, longest_first
from tilewright.build.store.artifact import Artifact, Failure
from tilewright.build.store.flight import Flight
from tilewright.build.store.local import Store
from tilewright.build.store.tiers import Tiers, tiers_of_knobs
from tilewright.build.toolchain import find
from tilewright.build.unit import PRODUCTS, Unit, unit_of
from tilewright.ops.kernel import Kernel

TASK = "build"
# As many kernels as one run of ninja takes: each holds a descriptor, and 1,024 is the usual limit.
MOST_AT_ONCE = 256
# A kernel that takes longer is given up; the slowest one known takes some minutes.
LIMIT_S = 1800.0
# How long to wait for another machine before asking again whether it still lives.
_REMOTE_WAIT_S = 600.0


@dataclass(frozen=True)
class Built:
    """What a build gave: an artifact or a failure per kernel, and what it took."""

    results: Mapping[Kernel, Artifact | Failure]
    compiled: int  # kernels that this process compiled; the others were in a store or came from another process
    spans: tuple[Span, ...]
    units: Mapping[str, Unit]  # by key
    warm_cpu_s: float  # CPU seconds spent on precompiling headers
    wall_s: float

    @property
    def artifacts(self) -> dict[Kernel, Artifact]:
        return {kernel: entry for kernel, entry in self.results.items() if isinstance(entry, Artifact)}

    @property
    def failures(self) -> dict[Kernel, Failure]:
        return {kernel: entry for kernel, entry in self.results.items() if isinstance(entry, Failure)}


def build_kernels(
    kernels: Iterable[Kernel],
    *,
    jobs: int | None = None,
    tiers: Tiers | None = None,
    limit_s: float = LIMIT_S,
    retry: bool = False,
) -> Built:
    """Build legal kernels of any ops and GPUs. A kernel that does not compile fails alone; the others are built.

    `jobs` compilers run at once, by default `TILEWRIGHT_JOBS`. A failure that the store knows is not tried again
    unless `retry` is set.
    """
    if jobs is not None and jobs < 1:
        raise InvalidValueError(f"jobs is {jobs}, but at least 1 compiler must run")
    listed = list(dict.fromkeys(kernels))
    started = time.monotonic()
    toolchain = find()
    with events.task("keys", len(listed)) as advance:
        units = {}
        for kernel in listed:
            unit = unit_of(kernel, toolchain)
            units[unit.key] = unit
            advance(kernel.slug)
    building = _Building(units, tiers or tiers_of_knobs(), jobs or knobs.job_count(), limit_s, retry)
    found = building.run()
    return Built(
        results={unit.kernel: found[key] for key, unit in units.items()},
        compiled=building.compiled,
        spans=tuple(building.spans),
        units=units,
        warm_cpu_s=building.warm_cpu_s,
        wall_s=time.monotonic() - started,
    )


@dataclass
class _Building:
    """One build while it is under way."""

    units: Mapping[str, Unit]
    tiers: Tiers
    jobs: int
    limit_s: float
    retry: bool
    compiled: int = 0
    warm_cpu_s: float = 0.0
    spans: list[Span] = field(default_factory=list)
    found: dict[str, Artifact | Failure] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> dict[str, Artifact | Failure]:
        self.found = self._known()
        missing = [key for key in self.units if key not in self.found]
        if missing:
            with events.task(TASK, len(missing)) as advance:
                while missing:
                    self._round(missing, advance)
                    missing = [key for key in missing if key not in self.found]
        return self.found

    def _known(self) -> dict[str, Artifact | Failure]:
        try:
            known = self.tiers.lookup(list(self.units))
        except StoreError as error:  # a remote entry that cannot be kept here is as good as absent
            events.emit(events.Noticed(str(error)))
            known = {key: entry for key in self.units if (entry := self.tiers.local.get(key)) is not None}
        if self.retry:
            return {key: entry for key, entry in known.items() if isinstance(entry, Artifact)}
        return known

    def _round(self, missing: Sequence[str], advance: events.Advance) -> None:
        """Build what nobody else is building; if there is nothing of that kind, wait for one that somebody is."""
        with ExitStack() as held:
            mine = self._flights(missing, held)
            self._settle_known(missing, advance)
            claimed = [key for key in mine if key not in self.found and self.tiers.claim(key)]
            if claimed:
                try:
                    self._compile(claimed, mine, advance)
                finally:
                    for key in claimed:
                        self.tiers.release(key)
                return
        elsewhere = [key for key in missing if key not in self.found]
        if elsewhere:
            self._wait(elsewhere[0], here=elsewhere[0] not in mine)
            self._settle_known(elsewhere, advance)

    def _flights(self, missing: Sequence[str], held: ExitStack) -> dict[str, Flight]:
        flights = {}
        for key in missing:
            flight = self.tiers.local.try_flight(key)
            if flight is not None:
                flights[key] = held.enter_context(flight)
            if len(flights) == MOST_AT_ONCE:
                break
        return flights

    def _settle_known(self, keys: Iterable[str], advance: events.Advance) -> None:
        """Take over what others have stored meanwhile."""
        for key in keys:
            entry = self.tiers.local.get(key) if key not in self.found else None
            if entry is not None and not (self.retry and isinstance(entry, Failure)):
                self.found[key] = entry
                advance(self.units[key].kernel.slug)

    def _wait(self, key: str, *, here: bool) -> None:
        """Wait for a process on this machine, or for another machine."""
        local = self.tiers.local
        if here:
            with local.flight(key, landed=lambda: local.get(key) is not None):
                return
        self.tiers.wait_for(key, _REMOTE_WAIT_S)

    def _compile(self, keys: Sequence[str], flights: Mapping[str, Flight], advance: events.Advance) -> None:
        costs = read_costs(self.tiers.local)
        ordered = longest_first([self.units[key] for key in keys], costs)
        home = self._home()
        works = {work.unit.key: work for work in self._works(ordered, home)}
        schedule = Schedule({unit.key: unit for unit in ordered}, costs, self.jobs, time.monotonic() - self._began)
        with home.work_folder("build") as folder:
            write_graph(list(works.values()), folder, preload=fast_allocator(), limit_s=self.limit_s)
            for event in run_graph(folder, self.jobs):
                schedule.take(event)
                if schedule.finished(event, STEPS):
                    self._finish(works[event.key], folder / event.key, schedule)
                    flights[event.key].release()
                    advance(works[event.key].unit.kernel.slug)
                events.emit(events.Working(TASK, schedule.now, schedule.left_s))
            for key, work in works.items():
                if key not in self.found:  # ninja was ended from outside
                    self._finish(work, folder / key, schedule)
                    advance(work.unit.kernel.slug)
        self.spans += schedule.spans

    def _home(self) -> Store:
        """The store to work in: the local one, or if that cannot be written one for the life of this process."""
        try:
            with self.tiers.local.work_folder("probe"):
                return self.tiers.local
        except StoreError as error:
            events.emit(events.Noticed(f"{error} Kernels are built for this process only."))
            return own_store()

    def _works(self, units: Sequence[Unit], home: Store) -> Iterator[Work]:
        """The units with their precompiled headers, which are made first, as many at once as there are jobs."""
        wanted: dict[str, Prefix] = {}
        for unit in units:
            for prefix in (unit.device_prefix, unit.host_prefix):
                wanted.setdefault(prefix.key(home), prefix)
        with ThreadPoolExecutor(self.jobs) as pool:
            made = {key: pool.submit(copy_context().run, roof_or_plain, prefix, home) for key, prefix in wanted.items()}
            roofs: dict[str, Roof] = {key: job.result() for key, job in made.items()}
        self.warm_cpu_s += sum(roof.cpu_s for roof in roofs.values())
        for unit in units:
            yield Work(unit, roofs[unit.device_prefix.key(home)], roofs[unit.host_prefix.key(home)])

    def _finish(self, work: Work, folder: Path, schedule: Schedule) -> None:
        """Store what became of a kernel, and share it."""
        unit = work.unit
        codes = schedule.codes.get(unit.key, {})
        schedule.settle(unit)
        if len(codes) == len(STEPS) and not any(codes.values()):
            facts = facts_of(work, folder)
            files = {name: folder / name for name in PRODUCTS}
            self.found[unit.key] = self._stored(lambda store: store.put(unit.key, files, facts))
            self.compiled += 1
            _record(self.tiers.local, unit.kernel, facts["cost"]["cpu_s"])
        else:
            outcome = broken(folder, codes, self.limit_s)
            facts = {**unit.facts(), "errors": list(outcome.errors), "lasting": outcome.lasting}
            failure = Failure(unit.key, outcome.log, facts)
            if outcome.lasting:
                kept = self._stored(lambda store: store.put_failure(unit.key, outcome.log, facts))
                self.found[unit.key] = kept
            else:
                self.found[unit.key] = failure
                return
        self.tiers.publish(self.found[unit.key])

    def _stored(self, put: Callable[[Store], Artifact | Failure]) -> Artifact | Failure:
        try:
            return put(self.tiers.local)
        except StoreError as error:
            events.emit(events.Noticed(f"{error} The kernel is kept for this process only."))
            return put(own_store())


@functools.cache
def own_store() -> Store:
    """A store that lives as long as this process, for when the user's cannot be written."""
    root = Path(tempfile.mkdtemp(prefix="tilewright-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return Store(root)


def _record(store: Store, kernel: Kernel, cpu_s: float) -> None:
    try:
        record_cost(store, kernel, cpu_s)
    except OSError:  # costs only improve a guess
        return


__all__ = ["Built", "Costs", "build_kernels", "own_store"]
