"""The local copy of an index: its documents, its shards, and the newest versions that were verified.

Everything in it is verified again when it is read, so a damaged copy costs a request and nothing else. Only the record
of the newest versions cannot be verified: it protects against old documents as long as this folder is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.atomic_write import write_atomically
from tilewright.base.digest import digest_value
from tilewright.base.documents import read_bytes, read_json
from tilewright.base.errors import FileFormatError, OutputError
from tilewright.base.events import Notice, emit
from tilewright.base.shared_files import hold_lock, require_own
from tilewright.building.index.trust import MOST_INDEX_BYTES, Known

_STATE = "state.json"
_LOCK_S = 2.0
_damaged: set[Path] = set()


@dataclass(frozen=True)
class CopyState:
    """The newest verified versions, when the host was asked last (seconds since 1970), and the documents' ETags."""

    known: Known = Known()
    checked: float = 0.0
    keys_etag: str = ""
    index_etag: str = ""


@dataclass(frozen=True)
class LocalCopy:
    """The folder of one index."""

    folder: Path

    @classmethod
    def of(cls, url: str, pins: Collection[str]) -> LocalCopy:
        """The copy of an index for pinned keys: other pins have another one."""
        return cls(knobs.cache_dir() / "index" / digest_value([url, sorted(pins)]))

    def read_state(self) -> CopyState:
        """Read the state; that of a new copy if there is none, or a damaged one."""
        require_own(self.folder, knobs.CACHE_DIR.name)
        if not (self.folder / _STATE).exists():
            return CopyState()
        try:
            facts = read_json(self.folder / _STATE)
            return CopyState(
                Known(**facts["known"]), float(facts["checked"]), str(facts["keys_etag"]), str(facts["index_etag"])
            )
        except (FileFormatError, KeyError, TypeError, ValueError) as error:
            if self.folder not in _damaged:  # once: the next verified index writes it anew
                _damaged.add(self.folder)
                what = f"{self.folder / _STATE} is damaged ({type(error).__name__})"
                emit(Notice(f"{what}: until the next verified index, old versions of it are not recognised"))
            return CopyState()

    def write(self, state: CopyState, documents: dict[str, bytes]) -> bool:
        """Write documents and state, unless another process has verified newer ones. Returns whether they were."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hold_lock(self.folder / ".lock", _LOCK_S):
                newest = self.read_state().known
                if _is_older(state.known, newest):
                    return False
                for name, content in documents.items():
                    self._write_file(name, content)
                self._write_file(_STATE, json.dumps(asdict(state)).encode())
        except (OSError, OutputError) as error:
            emit(Notice(f"the copy of the index in {self.folder} cannot be written ({error}): it is asked for again"))
        return True

    def read_file(self, name: str, most: int = MOST_INDEX_BYTES) -> bytes | None:
        """Read a file of the copy; None if there is none."""
        path = self.folder / name
        try:
            return read_bytes(path, most) if path.exists() else None
        except FileFormatError:
            return None  # it is fetched again

    def write_shard(self, digest: str, body: bytes) -> None:
        """Keep a shard. A copy that cannot be written is not an error: the shard is fetched again."""
        try:
            (self.folder / "shards").mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write_file(f"shards/{digest}", body)
        except (OSError, OutputError):
            return

    def remove_other_shards(self, digests: Collection[str]) -> None:
        """Remove the shards of earlier versions of the index."""
        folder = self.folder / "shards"
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in digests:
                path.unlink(missing_ok=True)

    def _write_file(self, name: str, content: bytes) -> None:
        with write_atomically(self.folder / name) as draft:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)


def _is_older(known: Known, newest: Known) -> bool:
    if known.keys_version != newest.keys_version:
        return known.keys_version < newest.keys_version
    return known.index_keys == newest.index_keys and known.index_version < newest.index_version
