"""Verify every byte of a store against the manifests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.events import task
from tilewright.building.store.artifact import Artifact, Entry
from tilewright.building.store.aside import Damage, DamageKind, Inode, inode_of, set_aside, still_there
from tilewright.building.store.layout import FAN_OUT, MANIFEST, is_key
from tilewright.building.store.local import Store
from tilewright.building.store.manifest import LOG
from tilewright.building.store.regular import digest_regular

_FOREIGN = "foreign"  # used where there is no key


@dataclass(frozen=True)
class Finding:
    """One problem. `path` is what would be moved out of the store: an entry, or a stray file."""

    kind: DamageKind
    key: str | None
    path: Path
    what: str
    inode: Inode | None

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}: {self.what}"


def verify(store: Store, keys: Iterable[str] | None = None) -> list[Finding]:
    """Hash every file of the entries (all, or those of `keys`) and list the problems. Changes nothing.

    Without `keys`, files and folders that do not belong in the store are found too.
    """
    findings = list(_strays(store)) if keys is None else []
    chosen = list(store.keys() if keys is None else keys)
    with task("verifying", len(chosen)) as advance:
        for key in chosen:
            findings += _of_entry(store, key)
            advance(key)
    return findings


def move_aside(store: Store, findings: Iterable[Finding]) -> list[Path]:
    """Move the found paths to `corrupt/`, each once; return their new paths. Paths that have changed since stay."""
    moved: list[Path] = []
    for path, finding in {finding.path: finding for finding in findings}.items():
        damage = Damage(finding.key or _FOREIGN, path, finding.kind, finding.what, finding.inode)
        if still_there(damage) and (target := set_aside(store.layout, damage)) is not None:
            moved.append(target)
    return moved


def _of_entry(store: Store, key: str) -> list[Finding]:
    found = store.read(key)
    if found is None:
        return []
    if isinstance(found, Damage):
        return [Finding(found.kind, key, found.path, found.what, found.inode)]
    judged = inode_of(found.folder)
    findings = [Finding(kind, key, found.folder, what, judged) for kind, what in _differences(found)]
    # An entry that was removed or replaced in the meantime was not damaged.
    return findings if judged is not None and inode_of(found.folder) == judged else []


def _differences(entry: Entry) -> Iterator[tuple[DamageKind, str]]:
    files = entry.content.files if isinstance(entry.content, Artifact) else {}
    for name, expected in files.items():
        try:
            _, digest = digest_regular(entry.folder / name)
        except OSError as error:
            yield "missing file", f"{name} cannot be read: {error.strerror}"
            continue
        if digest != expected.blake2b:
            yield "wrong digest", f"{name} has blake2b {digest} instead of {expected.blake2b}"
    known = {MANIFEST, *(files or {LOG})}
    for name in sorted(_listed(entry.folder) - known):
        yield "foreign file", f"{name} is not in the manifest"


def _strays(store: Store) -> Iterator[Finding]:
    """Find names that are not keys, and keys in the wrong folder."""
    entries = store.layout.entries
    for fan in sorted(_listed(entries)):
        folder = entries / fan
        if not FAN_OUT.fullmatch(fan) or not folder.is_dir():
            yield Finding("foreign file", None, folder, "this is not the name of an entries folder", inode_of(folder))
            continue
        for name in sorted(_listed(folder)):
            if not is_key(name) or name[:2] != fan:
                path = folder / name
                yield Finding("foreign file", None, path, "this is not an entry of this folder", inode_of(path))


def _listed(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208  (names are enough)
    except (FileNotFoundError, NotADirectoryError):
        return set()
