"""The store of one machine: a folder of entries that many processes read and write concurrently."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.base.errors import CorruptError, InvalidValueError, StoreError
from tilewright.base.events import Notice, emit
from tilewright.base.shared_files import require_own
from tilewright.building.store.artifact import Artifact, Entry, Failure, FileDigest
from tilewright.building.store.build_lock import BuildLock, make_private_folder, try_build_lock, wait_for_build_lock
from tilewright.building.store.damaged import DamagedEntry, is_unchanged, move_damaged, remove_tree
from tilewright.building.store.files import (
    FAN_OUT,
    MANIFEST,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    UNWRITABLE,
    Layout,
    is_file_name,
    is_key,
    make_store_error,
    translate_os_errors,
)
from tilewright.building.store.manifest import (
    ARTIFACT,
    FAILURE,
    LOG,
    Core,
    Kind,
    Manifest,
    check_facts,
    decode_log,
    encode_log,
    read_entry,
)
from tilewright.building.store.scratch_dirs import create_work_folder

_PIECE = 2**20
# The files of a new entry: paths to copy from, or bytes.
Sources = Mapping[str, Path | bytes]
# Resolution of an entry's last use: a write per use would cost more than the use.
USE_RESOLUTION_S = 3600.0
# An attempt fails only if a writer or gc interferes at that very moment.
_ROUNDS = 50
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})


@dataclass(frozen=True)
class Store:
    """The entries below `root`. A plain value: any number of instances and processes may use the same folder."""

    root: Path = field(default_factory=knobs.store_dir)
    knob: str = field(default=knobs.STORE.name, repr=False, compare=False)  # for error messages

    @property
    def layout(self) -> Layout:
        """The paths of the store. Raises `StoreError` if other users could write entries there."""
        self.check_owner()
        return Layout(self.root)

    def check_owner(self) -> None:
        """Raise `StoreError` if other users could write entries into the store."""
        for folder in (self.root, Layout(self.root).base):
            require_own(folder, self.knob)

    def get(self, key: str) -> Artifact | Failure | None:
        """Return the entry `key`. Its files exist with the right sizes; `Artifact.verify_file` checks the contents.

        A damaged entry is moved out of the store, and the result is None: it must be built again.
        """
        folder = self.layout.entry_folder(key)
        for _ in range(_ROUNDS):
            found = read_entry(folder, key)
            if isinstance(found, Entry):
                _mark_use(found)
                return found.content
            if found is None:
                return None
            if is_unchanged(found):
                move_damaged(self.layout, found, lambda path: isinstance(read_entry(path, key), Entry))
                return None
        return None  # it changes faster than it can be read: build it as if it were missing

    def put(self, key: str, files: Mapping[str, Path], facts: Mapping[str, Any]) -> Artifact:
        """Store copies of `files` under `key`. If another process was faster, verify and return its entry."""
        stored = self.put_content(key, ARTIFACT, files, facts)
        assert isinstance(stored, Artifact)
        return stored

    def put_failure(self, key: str, log: str, facts: Mapping[str, Any]) -> Failure:
        """Store the log of a build that would fail again. An artifact under this key is kept."""
        stored = self.put_content(key, FAILURE, {LOG: encode_log(log)}, facts)
        if isinstance(stored, Failure):
            return stored
        emit(Notice(f"a build of {key} failed, but the store has an artifact, which is kept"))
        return Failure(key, log, facts)

    def put_content(self, key: str, kind: Kind, sources: Sources, facts: Mapping[str, Any]) -> Artifact | Failure:
        """Store an entry of either kind, with files as paths or bytes."""
        folder = self.layout.entry_folder(key)
        log = "" if kind == ARTIFACT else _read_log(sources)
        if (winner := self._find_winner(key, kind)) is not None:
            return winner
        with self.create_work_folder("put") as private:
            draft = private / "entry"
            core = write_entry(draft, key, kind, sources, facts, time.time())
            with translate_os_errors("write", folder):
                winner = self._install(draft, key, kind)
        if winner is not None:
            return winner
        if kind == ARTIFACT:
            return Artifact(key, folder, core.files, core.facts)
        return Failure(key, log, core.facts)

    def remove(self, key: str) -> bool:
        """Remove an entry; return whether it existed. Processes that have its files open can still use them."""
        folder = self.layout.entry_folder(key)
        if not os.path.lexists(folder):
            return False
        with self.create_work_folder("remove") as private, translate_os_errors("remove", folder):
            try:
                # Atomic: nobody sees an entry with only some of its files.
                folder.rename(private / "entry")
            except FileNotFoundError:
                return False
            remove_tree(private / "entry")
        return True

    def list_keys(self) -> Iterator[str]:
        """Yield all current keys in order."""
        entries = self.layout.entries
        for fan in _list_names(entries):
            if FAN_OUT.fullmatch(fan):
                yield from (name for name in _list_names(entries / fan) if is_key(name) and name[:2] == fan)

    def list_entries(self) -> Iterator[Entry]:
        """Yield all sound entries in key order. Damaged ones are reported and stay where they are."""
        layout = self.layout
        for key in self.list_keys():
            found = _read_present(layout, key)
            if isinstance(found, Entry):
                yield found
            elif found is not None:
                emit(Notice(f"{found.path} is damaged ({found.what}); `tilewright cache verify` shows details"))

    def read(self, key: str) -> Entry | DamagedEntry | None:
        """Read an entry without marking it as used and without moving damaged entries."""
        return _read_present(self.layout, key)

    def lock_build(
        self, key: str, *, timeout_s: float | None = None, already_built: Callable[[], bool] | None = None
    ) -> AbstractContextManager[BuildLock]:
        """Wait until nobody else builds `key`, then build it inside the `with` block.

        `already_built` is called while waiting; when it returns True, waiting ends with a lock that is not `held`.
        After `timeout_s` a `StoreError` is raised. If locking is impossible, the lock is not held either.
        """
        return wait_for_build_lock(self.layout.lock_file(key), timeout_s, already_built)

    def try_lock_build(self, key: str) -> BuildLock | None:
        """Lock `key`; None if another process has the lock."""
        return try_build_lock(self.layout.lock_file(key))

    def create_work_folder(self, prefix: str) -> AbstractContextManager[Path]:
        """Create a private folder on the store's file system, removed at the end or after the death of this process."""
        return create_work_folder(self.layout, prefix)

    def _install(self, draft: Path, key: str, kind: Kind) -> Artifact | Failure | None:
        """Rename a finished draft to its final path, or return the entry that another writer stored first.

        The parent folder is not synced: a crash may lose a whole entry, never a part of one.
        """
        folder = self.layout.entry_folder(key)
        make_private_folder(folder.parent)
        for _ in range(_ROUNDS):
            try:
                draft.rename(folder)
                return None
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
            if (winner := self._find_winner(key, kind)) is not None:
                return winner
        raise StoreError(
            f"{folder} was replaced and damaged {_ROUNDS} times while it was written. Check the disk, or set "
            f"{knobs.STORE.name} to a folder on another one."
        )

    def _find_winner(self, key: str, kind: Kind) -> Artifact | Failure | None:
        """Find a sound entry under `key` that replaces one of `kind`. A failure is removed in favour of an artifact."""
        found = self.get(key)
        if isinstance(found, Failure) and kind == ARTIFACT:
            self.remove(key)
            return None
        if isinstance(found, Artifact):
            try:
                for name in found.files:
                    found.verify_file(name)
            except CorruptError:
                return None  # reported and moved by `verify_file`
        return found


def build_own_library(store: Store, key: str, name: str, compile_in: Callable[[Path], Mapping[str, Any]]) -> Path:
    """Return the verified file `name` of the entry `key`; compile it if it is missing or damaged.

    `compile_in` writes the file into an empty private folder and returns the facts to store with it.
    """
    # Waits for another process that compiles it.
    with store.lock_build(key, already_built=lambda: isinstance(store.get(key), Artifact)):
        found = _find_verified(store, key, name)
        if found is not None:
            return found
        with store.create_work_folder("library") as folder:
            facts = compile_in(folder)
            return store.put(key, {name: folder / name}, facts).verify_file(name)


def _find_verified(store: Store, key: str, name: str) -> Path | None:
    found = store.get(key)
    if not isinstance(found, Artifact) or name not in found.files:
        return None
    try:
        return found.verify_file(name)
    except CorruptError:
        return None  # reported and moved by `verify_file`


def write_entry(folder: Path, key: str, kind: Kind, sources: Sources, facts: Mapping[str, Any], created: float) -> Core:
    """Write a complete entry into the new `folder`, which must stay private until this function returns."""
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

    for name in sources:
        if not is_file_name(name) or name == MANIFEST:
            raise InvalidValueError(
                f"{name!r} cannot name a file of an entry: use letters, digits, '.', '_' and '-', no leading dot, "
                f"at most 200 characters, and not {MANIFEST}."
            )
    clean = check_facts(facts)
    folder.mkdir(mode=PRIVATE_FOLDER)
    files = {name: _write_file(folder / name, sources[name]) for name in sorted(sources)}
    core = Core(key, kind, files, clean)
    _write_file(folder / MANIFEST, Manifest(core, __version__, created).to_text().encode())
    with translate_os_errors("write", folder):
        _sync_folder(folder)
    return core


def _write_file(target: Path, source: Path | bytes) -> FileDigest:
    size = 0
    hasher = hashlib.blake2b(digest_size=16)
    with translate_os_errors("write", target):
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE_FILE)
        with os.fdopen(fd, "wb") as sink:
            for piece in _read_pieces(source):
                hasher.update(piece)
                sink.write(piece)
                size += len(piece)
            sink.flush()
            os.fsync(sink.fileno())
    return FileDigest(size, hasher.hexdigest())


def _read_pieces(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with translate_os_errors("read", source), source.open("rb") as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read_log(sources: Sources) -> str:
    """Read the log of a new failure. A log that cannot be decoded is rejected before anything is written."""
    log = sources[LOG]
    return decode_log(log if isinstance(log, bytes) else log.read_bytes())


def _mark_use(entry: Entry) -> None:
    now = time.time()
    # Also if the last use is in the future: the clock was set back.
    if abs(now - entry.last_use) <= USE_RESOLUTION_S:
        return
    try:
        os.utime(entry.folder, (now, now))
    except FileNotFoundError:
        return  # removed after it was read
    except OSError as error:
        # A read-only store has no gc, so it needs no times.
        if error.errno not in UNWRITABLE:
            raise make_store_error("mark the use of", entry.folder, error) from error


def _list_names(folder: Path) -> list[str]:
    with translate_os_errors("list", folder):
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208  (names are enough; ten thousand paths are slow)
        except (FileNotFoundError, NotADirectoryError):
            return []


def _read_present(layout: Layout, key: str) -> Entry | DamagedEntry | None:
    found = read_entry(layout.entry_folder(key), key)
    return None if isinstance(found, DamagedEntry) and not is_unchanged(found) else found
