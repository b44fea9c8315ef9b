"""The store of one machine: a folder of entries that many processes read and write at once."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.base.errors import CorruptError, StoreError
from tilewright.base.events import Noticed, emit
from tilewright.base.ownership import require_own
from tilewright.building.store.artifact import Artifact, Entry, Failure
from tilewright.building.store.aside import Damage, remove_tree, set_aside, still_there
from tilewright.building.store.faults import UNWRITABLE, explained, store_error
from tilewright.building.store.flight import Flight, make_private, try_lock, wait_for_lock
from tilewright.building.store.layout import FAN_OUT, Layout, is_key
from tilewright.building.store.manifest import ARTIFACT, FAILURE, LOG, Kind, log_bytes, log_text
from tilewright.building.store.reading import read_entry
from tilewright.building.store.work import work_folder
from tilewright.building.store.writing import Sources, write_entry

# How exactly the last use of an entry is known: a write per use would cost more than the use.
USE_RESOLUTION_S = 3600.0
# Each round is lost only to a writer or a gc that got ahead in that very moment.
_ROUNDS = 50
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})


@dataclass(frozen=True)
class Store:
    """The entries below `root`. A value: any number of them, in any number of processes, may mean one folder."""

    root: Path = field(default_factory=knobs.store_dir)
    knob: str = field(default=knobs.STORE.name, repr=False, compare=False)  # names the root, in advice

    @property
    def layout(self) -> Layout:
        """The paths of the store. Raises `StoreError` when others than this user could put entries there."""
        self.check_owner()
        return Layout(self.root)

    def check_owner(self) -> None:
        """Raise `StoreError` when others than this user could put entries into the store."""
        for folder in (self.root, Layout(self.root).base):
            require_own(folder, self.knob)

    def get(self, key: str) -> Artifact | Failure | None:
        """The entry under `key`. Its files are there with the right sizes; `Artifact.checked` looks at the content.

        An entry that is damaged is moved aside, and the answer is None: it is to be built again.
        """
        folder = self.layout.entry(key)
        for _ in range(_ROUNDS):
            found = read_entry(folder, key)
            if isinstance(found, Entry):
                _mark_use(found)
                return found.content
            if found is None:
                return None
            if still_there(found):
                set_aside(self.layout, found, lambda path: isinstance(read_entry(path, key), Entry))
                return None
        return None  # it changes faster than it can be read: to be built, as if it were not there

    def put(self, key: str, files: Mapping[str, Path], facts: Mapping[str, Any]) -> Artifact:
        """Keep copies of `files` under `key`. If another process was faster, its entry is checked and given back."""
        stored = self.put_content(key, ARTIFACT, files, facts)
        assert isinstance(stored, Artifact)
        return stored

    def put_failure(self, key: str, log: str, facts: Mapping[str, Any]) -> Failure:
        """Keep the log of a build that would fail again. An artifact under this key is left as it is."""
        stored = self.put_content(key, FAILURE, {LOG: log_bytes(log)}, facts)
        if isinstance(stored, Failure):
            return stored
        emit(Noticed(f"a build of {key} failed, but the store has it built; the stored one is kept"))
        return Failure(key, log, facts)

    def put_content(self, key: str, kind: Kind, sources: Sources, facts: Mapping[str, Any]) -> Artifact | Failure:
        """Keep an entry of either kind, its files given as paths or bytes."""
        folder = self.layout.entry(key)
        log = "" if kind == ARTIFACT else _log(sources)
        if (winner := self._winner(key, kind)) is not None:
            return winner
        with self.work_folder("put") as private:
            draft = private / "entry"
            core = write_entry(draft, key, kind, sources, facts, time.time())
            with explained("write", folder):
                winner = self._install(draft, key, kind)
        if winner is not None:
            return winner
        if kind == ARTIFACT:
            return Artifact(key, folder, core.files, core.facts)
        return Failure(key, log, core.facts)

    def remove(self, key: str) -> bool:
        """Take an entry out; whether there was one. Who has a file of it open or loaded keeps it."""
        folder = self.layout.entry(key)
        if not os.path.lexists(folder):
            return False
        with self.work_folder("remove") as private, explained("remove", folder):
            try:
                # In one step: nobody sees an entry that loses its files one by one.
                folder.rename(private / "entry")
            except FileNotFoundError:
                return False
            remove_tree(private / "entry")
        return True

    def keys(self) -> Iterator[str]:
        """All keys, in order, as they are in the folders now."""
        entries = self.layout.entries
        for fan in _names(entries):
            if FAN_OUT.fullmatch(fan):
                yield from (name for name in _names(entries / fan) if is_key(name) and name[:2] == fan)

    def entries(self) -> Iterator[Entry]:
        """All sound entries, in order of their keys. Damaged ones are noticed and left where they are."""
        layout = self.layout
        for key in self.keys():
            found = _read(layout, key)
            if isinstance(found, Entry):
                yield found
            elif found is not None:
                emit(Noticed(f"{found.path} is damaged ({found.what}); `tilewright cache verify` says more"))

    def read(self, key: str) -> Entry | Damage | None:
        """What lies under a key, without marking it as used and without moving anything."""
        return _read(self.layout, key)

    def flight(
        self, key: str, *, timeout_s: float | None = None, landed: Callable[[], bool] | None = None
    ) -> AbstractContextManager[Flight]:
        """Wait until nobody else builds `key`, then build it inside the `with` block.

        `landed` is asked while waiting; when it says True, waiting ends with a flight that is not `held`. After
        `timeout_s` a `StoreError` is raised. Where no lock can be made, the flight is not held either.
        """
        return wait_for_lock(self.layout.lock(key), timeout_s, landed)

    def try_flight(self, key: str) -> Flight | None:
        """The flight of `key` if nobody has it now."""
        return try_lock(self.layout.lock(key))

    def work_folder(self, prefix: str) -> AbstractContextManager[Path]:
        """A private folder on the store's file system, removed at the end or after the death of this process."""
        return work_folder(self.layout, prefix)

    def _install(self, draft: Path, key: str, kind: Kind) -> Artifact | Failure | None:
        """Rename a finished draft to its place, or give the entry that another writer put there first.

        The folder above is not synced: a crash may lose a whole entry, never a part of one.
        """
        folder = self.layout.entry(key)
        make_private(folder.parent)
        for _ in range(_ROUNDS):
            try:
                draft.rename(folder)
                return None
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
            if (winner := self._winner(key, kind)) is not None:
                return winner
        raise StoreError(
            f"{folder} was taken and damaged {_ROUNDS} times while it was written. Check the disk, or set "
            f"{knobs.STORE.name} to a folder on another one."
        )

    def _winner(self, key: str, kind: Kind) -> Artifact | Failure | None:
        """A sound entry that already is under `key` and is as good as one of `kind`. One that is not gives way."""
        found = self.get(key)
        if isinstance(found, Failure) and kind == ARTIFACT:
            self.remove(key)
            return None
        if isinstance(found, Artifact):
            try:
                for name in found.files:
                    found.checked(name)
            except CorruptError:
                return None  # noticed and moved aside by `checked`
        return found


def _log(sources: Sources) -> str:
    """The log of a failure to be. One that could not be read back is refused before anything is written."""
    log = sources[LOG]
    return log_text(log if isinstance(log, bytes) else log.read_bytes())


def _mark_use(entry: Entry) -> None:
    now = time.time()
    # Also when the last use lies in the future: the clock was set back.
    if abs(now - entry.last_use) <= USE_RESOLUTION_S:
        return
    try:
        os.utime(entry.folder, (now, now))
    except FileNotFoundError:
        return  # removed since; it was read before
    except OSError as error:
        # A store that can only be read has no gc, so it needs no times.
        if error.errno not in UNWRITABLE:
            raise store_error("mark the use of", entry.folder, error) from error


def _names(folder: Path) -> list[str]:
    with explained("list", folder):
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208  (names are enough; ten thousand paths are slow)
        except (FileNotFoundError, NotADirectoryError):
            return []


def _read(layout: Layout, key: str) -> Entry | Damage | None:
    found = read_entry(layout.entry(key), key)
    return None if isinstance(found, Damage) and not still_there(found) else found
