"""Build kernels: compute their keys, look them up in the stores, and compile only those that are missing."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base import events, knobs
from tilewright.base.errors import InvalidValueError, StoreError
from tilewright.building.allocator import fast_allocator
from tilewright.building.costs import Costs, read_costs, record_cost
from tilewright.building.graph import STEPS, Work, write_graph
from tilewright.building.ninja_run import StepEnded, run_graph
from tilewright.building.outcome import broken, facts_of, misfit
from tilewright.building.prefix import Prefix
from tilewright.building.roofs import roofs_of
from tilewright.building.schedule import Schedule, Span, longest_first
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.flight import Flight
from tilewright.building.store.local import Store
from tilewright.building.store.remote import CLAIM_TTL_S
from tilewright.building.store.tiers import Tiers, tiers_of_knobs
from tilewright.building.toolchain import find
from tilewright.building.unit import PRODUCTS, Unit, unit_of
from tilewright.ops.kernel import Kernel

TASK = "build"
# Kernels per ninja run: each holds a file descriptor, and 1,024 is the usual limit.
MOST_AT_ONCE = 256
# With a shared remote, claim only a few kernels per job and leave the rest to other machines.
MOST_CLAIMED_PER_JOB = 4
# Time limit for one kernel; the slowest known one takes some minutes.
LIMIT_S = 1800.0
# How long to wait while no kernel arrives from other machines; the slowest known kernel takes some minutes.
# After that, all missing kernels are built here: claims are not signed, so a faulty peer could renew them for ever.
REMOTE_WAIT_S = 600.0
# Pause between two look-ups of a kernel whose earlier failure is ignored.
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Built:
    """The result of a build: an artifact or a failure per kernel, and the cost."""

    results: Mapping[Kernel, Artifact | Failure]
    compiled: int  # by this process; the other kernels were in a store or came from another process
    spans: tuple[Span, ...]
    units: Mapping[str, Unit]  # by key
    warm_cpu_s: float  # for precompiling headers
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
    """Build legal kernels of any ops and GPUs. A kernel that does not compile does not stop the others.

    At most `jobs` compilers run at once; the default is `TILEWRIGHT_JOBS`. A kernel whose failure is in the store is
    compiled again only if `retry` is set.
    """
    listed = list(dict.fromkeys(kernels))
    toolchain = find()
    units = []
    with events.task("keys", len(listed)) as advance:
        for kernel in listed:
            units.append(unit_of(kernel, toolchain))
            advance(kernel.slug)
    return build_units(units, jobs=jobs, tiers=tiers, limit_s=limit_s, retry=retry)


def build_units(
    units: Iterable[Unit],
    *,
    jobs: int | None = None,
    tiers: Tiers | None = None,
    limit_s: float = LIMIT_S,
    retry: bool = False,
) -> Built:
    """Like `build_kernels`, for sources that are rendered already. Does not check that the kernels are legal."""
    if jobs is not None and jobs < 1:
        raise InvalidValueError(f"jobs must be at least 1, got {jobs}")
    started = time.monotonic()
    keyed = {unit.key: unit for unit in units}
    building = _Building(keyed, tiers or tiers_of_knobs(), jobs or knobs.job_count(), limit_s, retry)
    found = building.run()
    return Built(
        results={unit.kernel: found[key] for key, unit in keyed.items()},
        compiled=building.compiled,
        spans=tuple(building.spans),
        units=keyed,
        warm_cpu_s=building.warm_cpu_s,
        wall_s=time.monotonic() - started,
    )


@dataclass
class _Building:
    """The state of a running build."""

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
    _again: set[str] = field(default_factory=set)  # failed because of outdated headers; each is compiled again once
    _claims: set[str] = field(default_factory=set)
    _claimed_at: float = 0.0
    _progress_at: float = 0.0
    _misfits: set[str] = field(default_factory=set)  # the remote's entries of these keys are not used either
    _alone: bool = False  # waiting for other machines timed out: nothing is claimed any more

    def run(self) -> dict[str, Artifact | Failure]:
        self.tiers.local.check_owner()
        self.found = self._lookup(list(self.units))
        missing = [key for key in self.units if key not in self.found]
        if missing:
            self._progress_at = time.monotonic()
            with events.task(TASK, len(missing)) as advance:
                while missing:
                    self._round(missing, advance)
                    left = [key for key in missing if key not in self.found]
                    self._note_progress(len(missing) - len(left), len(left))
                    missing = left
        return self.found

    def _note_progress(self, found: int, left: int) -> None:
        """Stop waiting for other machines when nothing has arrived from them for a long time."""
        if found:
            self._progress_at = time.monotonic()
        elif left and not self._alone and time.monotonic() - self._progress_at >= REMOTE_WAIT_S:
            self._alone = True
            events.emit(
                events.Noticed(
                    f"{left:,} kernels are claimed by other machines, and none arrived within {REMOTE_WAIT_S:g} s; "
                    "they are built here"
                )
            )

    def _lookup(self, keys: Sequence[str]) -> dict[str, Artifact | Failure]:
        """Find usable entries in the local and the remote store."""
        try:
            known = self.tiers.lookup([key for key in keys if key not in self._misfits])
        except StoreError as error:  # a remote entry that cannot be stored here counts as absent
            events.emit(events.Noticed(str(error)))
            known = {}
        here = ((key, self._fitting(key, known.get(key)) or self._here(key)) for key in keys)
        return {key: entry for key, entry in here if entry is not None and self._serves(entry)}

    def _here(self, key: str) -> Artifact | Failure | None:
        """Find an entry in the local store or in the store of this process."""
        found = self._fitting(key, self.tiers.local.get(key))
        return found or (own_store().get(key) if has_own_store() else None)

    def _fitting(self, key: str, entry: Artifact | Failure | None) -> Artifact | Failure | None:
        """Return an entry of the local store if it matches its unit; otherwise remove it, to be built again."""
        what = "" if entry is None else misfit(self.units[key], entry)
        if not what:
            return entry
        where = f"the entry {key} for {self.units[key].kernel.slug}"
        events.emit(events.Noticed(f"{where} is not used: {what}. It is removed, and the kernel is built here"))
        self.tiers.local.remove(key)
        self._misfits.add(key)
        return None

    def _serves(self, entry: Artifact | Failure | None) -> bool:
        return isinstance(entry, Artifact) or (entry is not None and not self.retry)

    def _round(self, missing: Sequence[str], advance: events.Advance) -> None:
        """Build kernels that no other process builds. If there are none, wait for one that another process builds."""
        with ExitStack() as held:
            mine = self._flights(missing, held)
            self._settle_known(missing, advance)
            try:
                claimed = self._claim([key for key in mine if key not in self.found], advance)
                if claimed:
                    self._compile(claimed, mine, advance)
                    return
            finally:
                for key in sorted(self._claims):
                    self._release(key)
        elsewhere = [key for key in missing if key not in self.found]
        if elsewhere:
            self._wait(elsewhere[0], here=elsewhere[0] not in mine)
            self._settle_known(elsewhere, advance)

    def _flights(self, missing: Sequence[str], held: ExitStack) -> dict[str, Flight]:
        flights = {}
        shared = self.tiers.remote is not None and self.tiers.writes
        most = min(MOST_AT_ONCE, MOST_CLAIMED_PER_JOB * self.jobs) if shared else MOST_AT_ONCE
        for key in missing:
            flight = self.tiers.local.try_flight(key)
            if flight is not None:
                flights[key] = held.enter_context(flight)
            if len(flights) == most:
                break
        return flights

    def _claim(self, keys: Sequence[str], advance: events.Advance) -> list[str]:
        """Claim keys on the remote. Return those that no other machine builds or has built."""
        if self.tiers.remote is None or self._alone:
            return list(keys)
        self._claimed_at = time.monotonic()
        for key in keys:
            if self.tiers.claim(key):
                self._claims.add(key)
        # A machine that has just released its claim has published its entry before.
        for key, entry in self._lookup(sorted(self._claims)).items():
            self.found[key] = entry
            self._release(key)
            advance(self.units[key].kernel.slug)
        return [key for key in keys if key in self._claims]

    def _prolong(self) -> None:
        """Renew the claims on unbuilt kernels, long before they expire."""
        if self._claims and time.monotonic() - self._claimed_at > CLAIM_TTL_S / 3:
            self._claimed_at = time.monotonic()
            for key in sorted(self._claims):
                self.tiers.claim(key)

    def _release(self, key: str) -> None:
        if key in self._claims:
            self._claims.remove(key)
            self.tiers.release(key)

    def _settle_known(self, keys: Iterable[str], advance: events.Advance) -> None:
        """Use entries that others have stored in the meantime."""
        for key in keys:
            entry = self._here(key) if key not in self.found else None
            if entry is not None and self._serves(entry):
                self.found[key] = entry
                advance(self.units[key].kernel.slug)

    def _wait(self, key: str, *, here: bool) -> None:
        """Wait for a process on this machine, or for another machine."""
        local = self.tiers.local
        if here:
            with local.flight(key, landed=lambda: self._serves(local.get(key))):
                self._progress_at = time.monotonic()  # this was not a wait for another machine
                return
        try:
            entry = self.tiers.wait_for(key, self._progress_at + REMOTE_WAIT_S - time.monotonic())
        except StoreError as error:  # it arrived and cannot be stored here: see `_find_entries`
            events.emit(events.Noticed(str(error)))
            entry = None
        if not self._serves(entry):
            time.sleep(_PAUSE_S)

    def _compile(self, keys: Sequence[str], flights: Mapping[str, Flight], advance: events.Advance) -> None:
        """Build in the local store; kernels for which its disk has no room go to the store of this process."""

        def settled(key: str) -> None:
            flights[key].release()
            self._release(key)
            advance(self.units[key].kernel.slug)

        try:
            self._compile_in(self.tiers.local, keys, settled)
            if again := [key for key in keys if key in self._again and key not in self.found]:
                self._compile_in(self.tiers.local, again, settled)
            why = "The disk was full before all kernels were built."
        except StoreError as error:
            why = str(error)
        rest = [key for key in keys if key not in self.found]
        if rest:
            home = own_store()
            where = f"{len(rest)} kernels are built in {home.root}, which is removed when this process ends."
            events.emit(events.Noticed(f"{why} {where}"))
            self._compile_in(home, rest, settled)

    def _compile_in(self, home: Store, keys: Sequence[str], settled: Callable[[str], None]) -> None:
        costs = read_costs(self.tiers.local)
        ordered = longest_first([self.units[key] for key in keys], costs)
        earlier = frozenset(self._again)
        with home.work_folder("build") as folder:
            works = self._works(ordered, home, folder)
            schedule = Schedule({unit.key: unit for unit in ordered}, costs, self.jobs, time.monotonic() - self._began)
            write_graph(list(works.values()), folder, preload=fast_allocator(), limit_s=self.limit_s, jobs=self.jobs)
            try:
                for event in run_graph(folder, self.jobs):
                    schedule.take(event)
                    if isinstance(event, StepEnded) and schedule.finished(event, STEPS):
                        self._finish(works[event.key], folder, schedule, settled)
                    self._prolong()
                    events.emit(events.Working(TASK, schedule.now, schedule.left_s))
                for key, work in works.items():
                    # A step of these kernels never ended: it or ninja was killed.
                    if key not in self.found and key not in self._again - earlier:
                        self._finish(work, folder, schedule, settled)
            finally:
                self.spans += schedule.spans

    def _works(self, units: Sequence[Unit], home: Store, folder: Path) -> dict[str, Work]:
        """Precompile the headers of the units. Return one job per unit, by key."""
        wanted: dict[str, Prefix] = {}
        keys = {}
        for unit in units:
            prefixes = {prefix.key(home): prefix for prefix in (unit.device_prefix, unit.host_prefix)}
            wanted |= prefixes
            keys[unit.key] = tuple(prefixes)
        roofs = roofs_of(wanted, home, folder / "roofs", self.jobs)
        self.warm_cpu_s += sum(roof.cpu_s for roof in roofs.values())
        return {unit.key: Work(unit, *(roofs[key] for key in keys[unit.key])) for unit in units}

    def _finish(self, work: Work, folder: Path, schedule: Schedule, settled: Callable[[str], None]) -> None:
        """Store and publish the artifact or failure of a kernel. Does nothing if the disk is full."""
        unit = work.unit
        codes = schedule.codes.get(unit.key, {})
        schedule.settle(unit)
        if len(codes) == len(STEPS) and not any(codes.values()):
            facts = facts_of(work, folder / unit.key)
            files = {name: folder / unit.key / name for name in PRODUCTS}
            self.found[unit.key] = self._stored(lambda store: store.put(unit.key, files, facts))
            self.compiled += 1
            _record(self.tiers.local, unit.kernel, facts["cost"]["cpu_s"])
        else:
            outcome = broken(folder / unit.key, codes, self.limit_s)
            if outcome.no_room and folder.is_relative_to(self.tiers.local.root):
                return
            if outcome.outdated and unit.key not in self._again:
                self._again.add(unit.key)
                here = folder.is_relative_to(self.tiers.local.root)
                _drop_headers(unit, self.tiers.local if here else own_store())
                return
            facts = {**unit.facts(), "errors": list(outcome.errors), "lasting": outcome.lasting}
            self.found[unit.key] = Failure(unit.key, outcome.log, facts)
            if outcome.lasting:
                self.found[unit.key] = self._stored(lambda store: store.put_failure(unit.key, outcome.log, facts))
        if self.found[unit.key].facts.get("lasting", True):
            self.tiers.publish(self.found[unit.key])
        settled(unit.key)

    def _stored(self, put: Callable[[Store], Artifact | Failure]) -> Artifact | Failure:
        try:
            return put(self.tiers.local)
        except StoreError as error:
            events.emit(events.Noticed(f"{error} The kernel is kept for this process only."))
            return put(own_store())


def _drop_headers(unit: Unit, home: Store) -> None:
    """Remove precompiled headers that the compiler rejected as outdated: headers changed after the check."""
    dropped = [home.remove(prefix.key(home)) for prefix in (unit.device_prefix, unit.host_prefix)]
    if any(dropped):
        said = "system headers changed while kernels were compiled; they are precompiled again"
        events.emit(events.Noticed(said))


def own_store() -> Store:
    """Return a temporary store of this process, for when the user's store cannot be written."""
    return _own_store(os.getpid())


def has_own_store() -> bool:
    """Return whether this process has created a temporary store."""
    return os.getpid() in _owners


_owners: set[int] = set()


@functools.cache
def _own_store(owner: int) -> Store:
    root = Path(tempfile.mkdtemp(prefix="tilewright-"))
    atexit.register(_remove_own_store, root, owner)
    _owners.add(owner)
    return Store(root)


def _remove_own_store(root: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked copy of this process must not remove its parent's store
        shutil.rmtree(root, ignore_errors=True)


def _record(store: Store, kernel: Kernel, cpu_s: float) -> None:
    try:
        record_cost(store, kernel, cpu_s)
    except OSError:  # costs only improve an estimate
        return


__all__ = ["Built", "Costs", "build_kernels", "own_store"]
