"""Build kernels: compute their keys, look them up in the stores, and compile only those that are missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base import events, knobs
from tilewright.base.errors import InvalidValueError, StoreError, ToolchainError
from tilewright.base.short_text import join_counts
from tilewright.building.build_progress import BuildProgress, Span, sort_longest_first
from tilewright.building.compile_costs import read_costs, record_cost
from tilewright.building.compile_job import PRODUCTS, CompileJob, make_compile_jobs
from tilewright.building.graph import STEPS, NinjaJob, write_graph
from tilewright.building.header_set import HeaderSet
from tilewright.building.ninja_run import StepEnded, run_graph
from tilewright.building.outcome import collect_facts, find_misfit, is_disk_full, read_failure
from tilewright.building.prebuilt.choose import take_same_source, take_without_toolchain
from tilewright.building.precompiled_headers import prepare_header_sets
from tilewright.building.process import find_fast_allocator
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.build_lock import BuildLock
from tilewright.building.store.local import Store
from tilewright.building.store.remote import CLAIM_TTL_S
from tilewright.building.store.tiers import Tiers, get_process_store, has_process_store, open_tiers
from tilewright.building.toolchain import find_toolchain
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


@dataclass(frozen=True, repr=False)
class BuildResult:
    """The result of a build: an artifact or a failure per kernel, and the cost."""

    results: Mapping[Kernel, Artifact | Failure]
    compiled: int  # by this process; the other kernels were in a store or came from another process
    spans: tuple[Span, ...]
    units: Mapping[str, CompileJob]  # by key
    warm_cpu_s: float  # for precompiling headers
    wall_s: float

    def __repr__(self) -> str:
        counts = join_counts((len(self.artifacts), "built"), (len(self.failures), "failed"))
        return f"BuildResult({counts or 'no kernels'}; {self.compiled:,} compiled here, in {self.wall_s:.1f} s)"

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
) -> BuildResult:
    """Build legal kernels of any ops and GPUs. A kernel that does not compile does not stop the others.

    At most `jobs` compilers run at once; the default is `TILEWRIGHT_JOBS`. A kernel whose failure is in the store is
    compiled again only if `retry` is set.
    """
    listed = list(dict.fromkeys(kernels))
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        return _take_all_prebuilt(listed, tiers or open_tiers(), error)
    units = []
    with events.report_task("keys", len(listed)) as advance:
        for unit in make_compile_jobs(listed, toolchain):
            units.append(unit)
            advance(unit.kernel.slug)
    return build_compile_jobs(units, jobs=jobs, tiers=tiers, limit_s=limit_s, retry=retry)


def build_compile_jobs(
    units: Iterable[CompileJob],
    *,
    jobs: int | None = None,
    tiers: Tiers | None = None,
    limit_s: float = LIMIT_S,
    retry: bool = False,
) -> BuildResult:
    """Like `build_kernels`, for sources that are rendered already. Does not check that the kernels are legal."""
    if jobs is not None and jobs < 1:
        raise InvalidValueError(f"jobs must be at least 1, got {jobs}")
    started = time.monotonic()
    keyed = {unit.key: unit for unit in units}
    building = _BuildRun(keyed, tiers or open_tiers(), jobs or knobs.job_count(), limit_s, retry)
    found = building.run()
    return BuildResult(
        results={unit.kernel: found[key] for key, unit in keyed.items()},
        compiled=building.compiled,
        spans=tuple(building.spans),
        units=keyed,
        warm_cpu_s=building.warm_cpu_s,
        wall_s=time.monotonic() - started,
    )


def _take_all_prebuilt(kernels: Sequence[Kernel], tiers: Tiers, error: ToolchainError) -> BuildResult:
    """Take all kernels from installed wheels, on a machine that cannot compile. Raises `error` if one is missing."""
    found = take_without_toolchain(kernels, tiers)
    missing = [kernel.slug for kernel in kernels if kernel not in found]
    if missing:
        lacking = f"{len(missing):,} of {len(kernels):,} kernels are in no installed wheel, first {missing[0]}"
        raise ToolchainError(f"{error}\n{lacking}" if tiers.packages else str(error)) from error
    return BuildResult(dict(found), 0, (), {}, 0.0, 0.0)


@dataclass
class _BuildRun:
    """The state of a running build."""

    units: Mapping[str, CompileJob]
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
        self.found = self._find_entries(list(self.units))
        missing = [key for key in self.units if key not in self.found]
        taken = take_same_source([self.units[key] for key in missing], self.tiers)
        self.found |= {key: taken[unit.kernel] for key in missing if (unit := self.units[key]).kernel in taken}
        missing = [key for key in missing if key not in self.found]
        if missing:
            self._progress_at = time.monotonic()
            with events.report_task(TASK, len(missing)) as advance:
                while missing:
                    self._run_round(missing, advance)
                    left = [key for key in missing if key not in self.found]
                    self._record_progress(len(missing) - len(left), len(left))
                    missing = left
        return self.found

    def _record_progress(self, found: int, left: int) -> None:
        """Stop waiting for other machines when nothing has arrived from them for a long time."""
        if found:
            self._progress_at = time.monotonic()
        elif left and not self._alone and time.monotonic() - self._progress_at >= REMOTE_WAIT_S:
            self._alone = True
            events.emit(
                events.Notice(
                    f"{left:,} kernels are claimed by other machines, and none arrived within {REMOTE_WAIT_S:g} s; "
                    "they are built here"
                )
            )

    def _find_entries(self, keys: Sequence[str]) -> dict[str, Artifact | Failure]:
        """Find usable entries in the local and the remote store."""
        try:
            known = self.tiers.find_entries([key for key in keys if key not in self._misfits])
        except StoreError as error:  # a remote entry that cannot be stored here counts as absent
            events.emit(events.Notice(str(error)))
            known = {}
        here = ((key, self._check_entry(key, known.get(key)) or self._find_here(key)) for key in keys)
        return {key: entry for key, entry in here if entry is not None and self._is_usable(entry)}

    def _find_here(self, key: str) -> Artifact | Failure | None:
        """Find an entry in the local store or in the store of this process."""
        found = self._check_entry(key, self.tiers.local.get(key))
        return found or (get_process_store().get(key) if has_process_store() else None)

    def _check_entry(self, key: str, entry: Artifact | Failure | None) -> Artifact | Failure | None:
        """Return an entry of the local store if it matches its unit; otherwise remove it, to be built again."""
        what = "" if entry is None else find_misfit(self.units[key], entry)
        if not what:
            return entry
        where = f"the entry {key} for {self.units[key].kernel.slug}"
        events.emit(events.Notice(f"{where} is not used: {what}. It is removed, and the kernel is built here"))
        self.tiers.local.remove(key)
        self._misfits.add(key)
        return None

    def _is_usable(self, entry: Artifact | Failure | None) -> bool:
        return isinstance(entry, Artifact) or (entry is not None and not self.retry)

    def _run_round(self, missing: Sequence[str], advance: events.Advance) -> None:
        """Build kernels that no other process builds. If there are none, wait for one that another process builds."""
        with ExitStack() as held:
            mine = self._take_locks(missing, held)
            self._take_finished(missing, advance)
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
            self._take_finished(elsewhere, advance)

    def _take_locks(self, missing: Sequence[str], held: ExitStack) -> dict[str, BuildLock]:
        locks = {}
        shared = self.tiers.remote is not None and self.tiers.writes
        most = min(MOST_AT_ONCE, MOST_CLAIMED_PER_JOB * self.jobs) if shared else MOST_AT_ONCE
        for key in missing:
            lock = self.tiers.local.try_lock_build(key)
            if lock is not None:
                locks[key] = held.enter_context(lock)
            if len(locks) == most:
                break
        return locks

    def _claim(self, keys: Sequence[str], advance: events.Advance) -> list[str]:
        """Claim keys on the remote. Return those that no other machine builds or has built."""
        if self.tiers.remote is None or self._alone:
            return list(keys)
        self._claimed_at = time.monotonic()
        for key in keys:
            if self.tiers.claim(key):
                self._claims.add(key)
        # A machine that has just released its claim has published its entry before.
        for key, entry in self._find_entries(sorted(self._claims)).items():
            self.found[key] = entry
            self._release(key)
            advance(self.units[key].kernel.slug)
        return [key for key in keys if key in self._claims]

    def _extend_claims(self) -> None:
        """Renew the claims on unbuilt kernels, long before they expire."""
        if self._claims and time.monotonic() - self._claimed_at > CLAIM_TTL_S / 3:
            self._claimed_at = time.monotonic()
            for key in sorted(self._claims):
                self.tiers.claim(key)

    def _release(self, key: str) -> None:
        if key in self._claims:
            self._claims.remove(key)
            self.tiers.release(key)

    def _take_finished(self, keys: Iterable[str], advance: events.Advance) -> None:
        """Use entries that others have stored in the meantime."""
        for key in keys:
            entry = self._find_here(key) if key not in self.found else None
            if entry is not None and self._is_usable(entry):
                self.found[key] = entry
                advance(self.units[key].kernel.slug)

    def _wait(self, key: str, *, here: bool) -> None:
        """Wait for a process on this machine, or for another machine."""
        local = self.tiers.local
        if here:
            with local.lock_build(key, already_built=lambda: self._is_usable(local.get(key))):
                self._progress_at = time.monotonic()  # this was not a wait for another machine
                return
        try:
            entry = self.tiers.wait_for(key, self._progress_at + REMOTE_WAIT_S - time.monotonic())
        except StoreError as error:  # it arrived and cannot be stored here: see `_find_entries`
            events.emit(events.Notice(str(error)))
            entry = None
        if not self._is_usable(entry):
            time.sleep(_PAUSE_S)

    def _compile(self, keys: Sequence[str], locks: Mapping[str, BuildLock], advance: events.Advance) -> None:
        """Build in the local store; kernels for which its disk has no room go to the store of this process."""

        def finish_key(key: str) -> None:
            locks[key].release()
            self._release(key)
            advance(self.units[key].kernel.slug)

        try:
            self._compile_in(self.tiers.local, keys, finish_key)
            if again := [key for key in keys if key in self._again and key not in self.found]:
                self._compile_in(self.tiers.local, again, finish_key)
            why = "The disk was full before all kernels were built."
        except StoreError as error:
            why = str(error)
        rest = [key for key in keys if key not in self.found]
        if rest:
            home = get_process_store()
            where = f"{len(rest)} kernels are built in {home.root}, which is removed when this process ends."
            events.emit(events.Notice(f"{why} {where}"))
            self._compile_in(home, rest, finish_key)

    def _compile_in(self, home: Store, keys: Sequence[str], settled: Callable[[str], None]) -> None:
        costs = read_costs(self.tiers.local)
        ordered = sort_longest_first([self.units[key] for key in keys], costs)
        earlier = frozenset(self._again)
        with home.create_work_folder("build") as folder:
            works = self._prepare_jobs(ordered, home, folder)
            schedule = BuildProgress(
                {unit.key: unit for unit in ordered}, costs, self.jobs, time.monotonic() - self._began
            )
            write_graph(
                list(works.values()), folder, preload=find_fast_allocator(), limit_s=self.limit_s, jobs=self.jobs
            )
            try:
                for event in run_graph(folder, self.jobs):
                    schedule.record_event(event, disk_full=is_disk_full(folder))
                    if isinstance(event, StepEnded) and schedule.is_finished(event, STEPS):
                        self._finish(works[event.key], folder, schedule, settled)
                    self._extend_claims()
                    events.emit(events.Working(TASK, schedule.running_kernels, schedule.remaining_s))
                for key, work in works.items():
                    # A step of these kernels never ended: it or ninja was killed.
                    if key not in self.found and key not in self._again - earlier:
                        self._finish(work, folder, schedule, settled)
            finally:
                self.spans += schedule.spans

    def _prepare_jobs(self, units: Sequence[CompileJob], home: Store, folder: Path) -> dict[str, NinjaJob]:
        """Precompile the headers of the units. Return one job per unit, by key."""
        wanted: dict[str, HeaderSet] = {}
        keys = {}
        for unit in units:
            prefixes = {prefix.key(home): prefix for prefix in (unit.device_headers, unit.host_headers)}
            wanted |= prefixes
            keys[unit.key] = tuple(prefixes)
        pch_flags = prepare_header_sets(wanted, home, folder / "roofs", self.jobs)
        self.warm_cpu_s += sum(flags.cpu_s for flags in pch_flags.values())
        return {unit.key: NinjaJob(unit, *(pch_flags[key] for key in keys[unit.key])) for unit in units}

    def _finish(self, work: NinjaJob, folder: Path, schedule: BuildProgress, settled: Callable[[str], None]) -> None:
        """Store and publish the artifact or failure of a kernel. Does nothing if the disk is full."""
        unit = work.unit
        codes = schedule.codes.get(unit.key, {})
        schedule.mark_done(unit)
        if len(codes) == len(STEPS) and not any(codes.values()):
            facts = collect_facts(work, folder / unit.key)
            files = {name: folder / unit.key / name for name in PRODUCTS}
            self.found[unit.key] = self._store_entry(lambda store: store.put(unit.key, files, facts))
            self.compiled += 1
            record_cost_if_possible(self.tiers.local, unit.kernel, facts["cost"]["cpu_s"])
        else:
            outcome = read_failure(folder / unit.key, codes, self.limit_s, was_full=schedule.was_full)
            if outcome.no_room and folder.is_relative_to(self.tiers.local.root):
                return
            if outcome.outdated and unit.key not in self._again:
                self._again.add(unit.key)
                here = folder.is_relative_to(self.tiers.local.root)
                _drop_headers(unit, self.tiers.local if here else get_process_store())
                return
            facts = {**unit.facts(), "errors": list(outcome.errors), "lasting": outcome.lasting}
            self.found[unit.key] = Failure(unit.key, outcome.log, facts)
            if outcome.lasting:
                self.found[unit.key] = self._store_entry(lambda store: store.put_failure(unit.key, outcome.log, facts))
        if self.found[unit.key].facts.get("lasting", True):
            self.tiers.publish(self.found[unit.key])
        settled(unit.key)

    def _store_entry(self, put: Callable[[Store], Artifact | Failure]) -> Artifact | Failure:
        try:
            return put(self.tiers.local)
        except StoreError as error:
            events.emit(events.Notice(f"{error} The kernel is kept for this process only."))
            return put(get_process_store())


def _drop_headers(unit: CompileJob, home: Store) -> None:
    """Remove precompiled headers that the compiler rejected as outdated: headers changed after the check."""
    dropped = [home.remove(prefix.key(home)) for prefix in (unit.device_headers, unit.host_headers)]
    if any(dropped):
        said = "system headers changed while kernels were compiled; they are precompiled again"
        events.emit(events.Notice(said))


def record_cost_if_possible(store: Store, kernel: Kernel, cpu_s: float) -> None:
    """Record the cost of a kernel, unless the store cannot be written."""
    try:
        record_cost(store, kernel, cpu_s)
    except OSError:  # costs only improve an estimate
        return
