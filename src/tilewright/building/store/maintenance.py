"""Maintain a store: remove entries that were not used for long, and verify every byte of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilewright.base.events import report_task
from tilewright.building.store.artifact import Artifact, Entry
from tilewright.building.store.build_lock import remove_unused_lock
from tilewright.building.store.damaged import DamagedEntry, DamageKind, is_unchanged, move_damaged, remove_tree
from tilewright.building.store.files import (
    FAN_OUT,
    MANIFEST,
    Inode,
    get_inode,
    hash_regular,
    is_key,
    translate_os_errors,
)
from tilewright.building.store.local import Store
from tilewright.building.store.manifest import LOG
from tilewright.building.store.scratch_dirs import remove_dead_folders

_FOREIGN = "foreign"  # used without a key
Reason = Literal["age", "size", "damaged"]


@dataclass(frozen=True)
class RemovedEntry:
    """An entry that was removed, or would be: reason, size and last use."""

    key: str
    name: str
    reason: Reason
    size: int
    last_use: float


@dataclass(frozen=True)
class GcResult:
    """The removed entries (in a dry run: those that would be removed), and totals of the rest."""

    removed: tuple[RemovedEntry, ...]
    busy: tuple[str, ...]  # due, but currently built or used
    kept: int
    kept_bytes: int
    work_folders: int
    corrupt: int
    locks: int

    @property
    def bytes(self) -> int:
        return sum(entry.size for entry in self.removed)


def remove_unused_entries(
    store: Store,
    max_bytes: int | None = None,
    max_age_s: float | None = None,
    now: float | None = None,
    *,
    dry_run: bool = False,
) -> GcResult:
    """Remove entries not used for `max_age_s`, then the least recently used until `max_bytes` are left.

    Entries that are being built, or were used since the start, stay. Leftovers are always removed.
    """
    now = time.time() if now is None else now
    keys = list(store.list_keys())
    with report_task("looking at entries", len(keys)) as advance:
        listed: list[Entry | DamagedEntry] = []
        for key in keys:
            found = store.read(key)
            if found is not None:
                listed.append(found)
            advance(key)
    due = _list_due(listed, max_bytes, max_age_s, now)
    removed, busy = _remove_due(store, due, dry_run)
    gone = {entry.key for entry in removed}
    kept = [entry for entry in listed if isinstance(entry, Entry) and entry.key not in gone]
    with translate_os_errors("clean up", store.layout.base):
        return GcResult(
            removed=tuple(removed),
            busy=tuple(busy),
            kept=len(kept),
            kept_bytes=sum(entry.size for entry in kept),
            work_folders=len(remove_dead_folders(store.layout, really=not dry_run)),
            corrupt=_remove_corrupt(store, dry_run),
            locks=_remove_locks(store, dry_run),
        )


def entry_age(entry: Entry, now: float) -> float:
    """Seconds since the last use; 0 if that is in the future because the clock was changed."""
    return max(0.0, now - entry.last_use)


def _list_due(
    listed: Iterable[Entry | DamagedEntry], max_bytes: int | None, max_age_s: float | None, now: float
) -> list[tuple[RemovedEntry, Entry | DamagedEntry]]:
    due: list[tuple[RemovedEntry, Entry | DamagedEntry]] = []
    entries: list[Entry] = []
    for found in listed:
        if isinstance(found, DamagedEntry):
            due.append((RemovedEntry(found.key, "", "damaged", 0, now), found))
        else:
            entries.append(found)
    oldest_first = sorted(entries, key=lambda entry: (-entry_age(entry, now), entry.key))
    total = sum(entry.size for entry in entries)
    for entry in oldest_first:
        reason: Reason | None = None
        if max_age_s is not None and entry_age(entry, now) > max_age_s:
            reason = "age"
        elif max_bytes is not None and total > max_bytes:
            reason = "size"
        if reason is not None:
            total -= entry.size
            due.append((RemovedEntry(entry.key, entry.name, reason, entry.size, entry.last_use), entry))
    return due


def _remove_due(
    store: Store, due: list[tuple[RemovedEntry, Entry | DamagedEntry]], dry_run: bool
) -> tuple[list[RemovedEntry], list[str]]:
    removed: list[RemovedEntry] = []
    busy: list[str] = []
    with report_task("removing entries", len(due)) as advance:
        for entry, found in due:
            if dry_run or _remove_idle(store, found):
                removed.append(entry)
            else:
                busy.append(entry.key)
            advance(entry.key)
    return removed, busy


def _remove_idle(store: Store, found: Entry | DamagedEntry) -> bool:
    """Remove an entry unless it is being built or has changed."""
    lock = store.try_lock_build(found.key)
    if lock is None:
        return False
    with lock:
        again = store.read(found.key)
        if isinstance(found, Entry) and (not isinstance(again, Entry) or again.last_use != found.last_use):
            return False
        if isinstance(found, DamagedEntry) and not isinstance(again, DamagedEntry):
            return False
        return store.remove(found.key)


def _remove_corrupt(store: Store, dry_run: bool) -> int:
    folder = store.layout.corrupt
    leftovers = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in leftovers if not dry_run else ():
        remove_tree(path)
    return len(leftovers)


def _remove_locks(store: Store, dry_run: bool) -> int:
    folder = store.layout.locks
    return sum(remove_unused_lock(path, really=not dry_run) for path in sorted(folder.glob("*/*.lock")))


@dataclass(frozen=True)
class StoreFinding:
    """One problem. `path` is what would be moved out of the store: an entry, or a stray file."""

    kind: DamageKind
    key: str | None
    path: Path
    what: str
    inode: Inode | None

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}: {self.what}"


def verify_entries(store: Store, keys: Iterable[str] | None = None) -> list[StoreFinding]:
    """Hash every file of the entries (all, or those of `keys`) and list the problems. Changes nothing.

    Without `keys`, files and folders that do not belong in the store are found too.
    """
    findings = list(_find_strays(store)) if keys is None else []
    chosen = list(store.list_keys() if keys is None else keys)
    with report_task("verifying", len(chosen)) as advance:
        for key in chosen:
            findings += _check_entry(store, key)
            advance(key)
    return findings


def move_damaged_entries(store: Store, findings: Iterable[StoreFinding]) -> list[Path]:
    """Move the found paths to `corrupt/`, each once; return their new paths. Paths that have changed since stay."""
    moved: list[Path] = []
    for path, finding in {finding.path: finding for finding in findings}.items():
        damage = DamagedEntry(finding.key or _FOREIGN, path, finding.kind, finding.what, finding.inode)
        if is_unchanged(damage) and (target := move_damaged(store.layout, damage)) is not None:
            moved.append(target)
    return moved


def _check_entry(store: Store, key: str) -> list[StoreFinding]:
    found = store.read(key)
    if found is None:
        return []
    if isinstance(found, DamagedEntry):
        return [StoreFinding(found.kind, key, found.path, found.what, found.inode)]
    judged = get_inode(found.folder)
    findings = [StoreFinding(kind, key, found.folder, what, judged) for kind, what in _find_differences(found)]
    # An entry that was removed or replaced in the meantime was not damaged.
    return findings if judged is not None and get_inode(found.folder) == judged else []


def _find_differences(entry: Entry) -> Iterator[tuple[DamageKind, str]]:
    files = entry.content.files if isinstance(entry.content, Artifact) else {}
    for name, expected in files.items():
        try:
            _, digest = hash_regular(entry.folder / name)
        except OSError as error:
            yield "missing file", f"{name} cannot be read: {error.strerror}"
            continue
        if digest != expected.blake2b:
            yield "wrong digest", f"{name} has blake2b {digest} instead of {expected.blake2b}"
    known = {MANIFEST, *(files or {LOG})}
    for name in sorted(_list_names(entry.folder) - known):
        yield "foreign file", f"{name} is not in the manifest"


def _find_strays(store: Store) -> Iterator[StoreFinding]:
    """Find names that are not keys, and keys in the wrong folder."""
    entries = store.layout.entries
    for fan in sorted(_list_names(entries)):
        folder = entries / fan
        if not FAN_OUT.fullmatch(fan) or not folder.is_dir():
            yield StoreFinding(
                "foreign file", None, folder, "this is not the name of an entries folder", get_inode(folder)
            )
            continue
        for name in sorted(_list_names(folder)):
            if not is_key(name) or name[:2] != fan:
                path = folder / name
                yield StoreFinding("foreign file", None, path, "this is not an entry of this folder", get_inode(path))


def _list_names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208  (names are enough)
    except (FileNotFoundError, NotADirectoryError):
        return set()
