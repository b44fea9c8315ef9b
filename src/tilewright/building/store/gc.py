"""Free space: remove entries that were not used for long, damaged ones, and leftovers of dead processes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tilewright.base.events import task
from tilewright.building.store.artifact import Entry
from tilewright.building.store.aside import Damage, remove_tree
from tilewright.building.store.faults import explained
from tilewright.building.store.flight import retire
from tilewright.building.store.local import Store
from tilewright.building.store.work import sweep

Reason = Literal["age", "size", "damaged"]


@dataclass(frozen=True)
class Removed:
    """An entry that was removed, or would be: reason, size and last use."""

    key: str
    name: str
    reason: Reason
    size: int
    last_use: float


@dataclass(frozen=True)
class Collected:
    """The removed entries (in a dry run: those that would be removed), and totals of the rest."""

    removed: tuple[Removed, ...]
    busy: tuple[str, ...]  # due, but currently built or used
    kept: int
    kept_bytes: int
    work_folders: int
    corrupt: int
    locks: int

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.removed)


def collect(
    store: Store,
    max_bytes: int | None = None,
    max_age_s: float | None = None,
    now: float | None = None,
    *,
    dry_run: bool = False,
) -> Collected:
    """Remove entries not used for `max_age_s`, then the least recently used until `max_bytes` are left.

    Entries that are being built, or were used since the start, stay. Leftovers are always removed.
    """
    now = time.time() if now is None else now
    keys = list(store.keys())
    with task("looking at entries", len(keys)) as advance:
        listed: list[Entry | Damage] = []
        for key in keys:
            found = store.read(key)
            if found is not None:
                listed.append(found)
            advance(key)
    due = _due(listed, max_bytes, max_age_s, now)
    removed, busy = _remove(store, due, dry_run)
    gone = {entry.key for entry in removed}
    kept = [entry for entry in listed if isinstance(entry, Entry) and entry.key not in gone]
    with explained("clean up", store.layout.base):
        return Collected(
            removed=tuple(removed),
            busy=tuple(busy),
            kept=len(kept),
            kept_bytes=sum(entry.size for entry in kept),
            work_folders=len(sweep(store.layout, really=not dry_run)),
            corrupt=_remove_corrupt(store, dry_run),
            locks=_retire_locks(store, dry_run),
        )


def age(entry: Entry, now: float) -> float:
    """Seconds since the last use; 0 if that is in the future because the clock was changed."""
    return max(0.0, now - entry.last_use)


def _due(
    listed: Iterable[Entry | Damage], max_bytes: int | None, max_age_s: float | None, now: float
) -> list[tuple[Removed, Entry | Damage]]:
    due: list[tuple[Removed, Entry | Damage]] = []
    entries: list[Entry] = []
    for found in listed:
        if isinstance(found, Damage):
            due.append((Removed(found.key, "", "damaged", 0, now), found))
        else:
            entries.append(found)
    oldest_first = sorted(entries, key=lambda entry: (-age(entry, now), entry.key))
    total = sum(entry.size for entry in entries)
    for entry in oldest_first:
        reason: Reason | None = None
        if max_age_s is not None and age(entry, now) > max_age_s:
            reason = "age"
        elif max_bytes is not None and total > max_bytes:
            reason = "size"
        if reason is not None:
            total -= entry.size
            due.append((Removed(entry.key, entry.name, reason, entry.size, entry.last_use), entry))
    return due


def _remove(store: Store, due: list[tuple[Removed, Entry | Damage]], dry_run: bool) -> tuple[list[Removed], list[str]]:
    removed: list[Removed] = []
    busy: list[str] = []
    with task("removing entries", len(due)) as advance:
        for entry, found in due:
            if dry_run or _remove_idle(store, found):
                removed.append(entry)
            else:
                busy.append(entry.key)
            advance(entry.key)
    return removed, busy


def _remove_idle(store: Store, found: Entry | Damage) -> bool:
    """Remove an entry unless it is being built or has changed."""
    flight = store.try_flight(found.key)
    if flight is None:
        return False
    with flight:
        again = store.read(found.key)
        if isinstance(found, Entry) and (not isinstance(again, Entry) or again.last_use != found.last_use):
            return False
        if isinstance(found, Damage) and not isinstance(again, Damage):
            return False
        return store.remove(found.key)


def _remove_corrupt(store: Store, dry_run: bool) -> int:
    folder = store.layout.corrupt
    leftovers = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in leftovers if not dry_run else ():
        remove_tree(path)
    return len(leftovers)


def _retire_locks(store: Store, dry_run: bool) -> int:
    folder = store.layout.locks
    return sum(retire(path, really=not dry_run) for path in sorted(folder.glob("*/*.lock")))
