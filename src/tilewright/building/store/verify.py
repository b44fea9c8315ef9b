"""Verify every byte of a store against the manifests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.events import report_task
from tilewright.building.store.artifact import Artifact, Entry
from tilewright.building.store.damaged import DamagedEntry, DamageKind, Inode, get_inode, is_unchanged, move_damaged
from tilewright.building.store.layout import FAN_OUT, MANIFEST, is_key
from tilewright.building.store.local import Store
from tilewright.building.store.manifest import LOG
from tilewright.building.store.regular import hash_regular

_FOREIGN = "foreign"  # used without a key


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
