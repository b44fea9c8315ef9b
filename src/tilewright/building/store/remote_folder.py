"""A remote tier in a folder that machines share, also over NFS. It needs no locks: only rename and O_EXCL.

<folder>/v1/blobs/<k[:2]>/<key>     written under another name, synced, renamed
<folder>/v1/claims/<k[:2]>/<key>    made with O_EXCL; holds who builds the key, and for how long at most
<folder>/v1/new/                    files that are being written
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.building.store.blob import MAX_BLOB_BYTES
from tilewright.building.store.layout import SCHEMA, check_key

# A claim whose text cannot be read (its maker died while writing it) counts for this long.
_UNREADABLE_TTL_S = 60.0
# Taking over an expired claim is four small operations.
_TAKEOVER_TTL_S = 10.0
# How long the difference between the file server's clock and ours is trusted.
_CLOCK_TRUST_S = 60.0
_LONGEST_CLAIM = 1000


@dataclass
class _Clock:
    """The file server's clock: the time of a file that it has just touched, carried on by our monotonic clock."""

    offset: float = 0.0
    measured: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class FolderRemote:
    """Blobs and claims as files. The permissions are those of the folder and the umask: sharing is its purpose."""

    folder: Path
    _clock: _Clock = field(default_factory=_Clock, repr=False, compare=False)

    def describe(self) -> str:
        return f"folder:{self.folder}"

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for key in keys:
            try:
                found[key] = self._blob(key).stat().st_size
            except FileNotFoundError:
                continue
        if not found:
            self._must_exist()
        return found

    def fetch(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        for key in keys:
            try:
                with self._blob(key).open("rb") as stream:
                    found[key] = stream.read(MAX_BLOB_BYTES + 1)
            except FileNotFoundError:
                continue
        return found

    def push(self, key: str, blob: bytes) -> None:
        self._must_exist()
        target = self._blob(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        new = self._new_path(key)
        try:
            _write(new, blob)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:
        self._must_exist()
        path = self._claim(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        while not _create(path, f"{ttl_s:g} {holder}"):
            held = _read_claim(path)
            if held is None:
                continue  # released since
            if held.holder == holder:
                os.utime(path)  # without times: the server's clock, not ours
                return True
            return self._expired(held) and self._take_over(path, holder, ttl_s)
        return True

    def claimed(self, key: str) -> bool:
        held = _read_claim(self._claim(key))
        return held is not None and not self._expired(held)

    def release(self, key: str, holder: str) -> None:
        path = self._claim(key)
        held = _read_claim(path)
        if held is not None and held.holder == holder:
            path.unlink(missing_ok=True)

    def _take_over(self, path: Path, holder: str, ttl_s: float) -> bool:
        """Put our claim in the place of an expired one. Of several machines that try, one does."""
        right = path.with_name(f"{path.name}.takeover")
        if not _create(right, f"{_TAKEOVER_TTL_S:g} {holder}"):
            other = _read_claim(right)
            if other is not None and self._expired(other):
                right.unlink(missing_ok=True)  # it died while taking over; whoever claims next may try
            return False
        try:
            held = _read_claim(path)
            if held is None or not self._expired(held):
                return False  # another machine was here before we had the right
            new = self._new_path("claim")
            _write(new, f"{ttl_s:g} {holder}".encode())
            os.utime(new)
            new.replace(path)  # never absent in between: nobody can claim it as if it were free
            return True
        finally:
            right.unlink(missing_ok=True)

    def _expired(self, held: _Claim) -> bool:
        return self._server_time() > held.since + held.ttl_s

    def _server_time(self) -> float:
        clock = self._clock
        with clock.lock:
            if time.monotonic() - clock.measured > _CLOCK_TRUST_S:
                probe = self._new_path("clock")
                _write(probe, b"")
                os.utime(probe)
                clock.offset = probe.stat().st_mtime - time.monotonic()
                probe.unlink(missing_ok=True)
                clock.measured = time.monotonic()
            return time.monotonic() + clock.offset

    def _must_exist(self) -> None:
        """A share that is not mounted is an empty place; it must not be filled in secret."""
        if not self.folder.is_dir():
            raise FileNotFoundError(2, "the folder is not there; make it, or mount the share", str(self.folder))

    def _blob(self, key: str) -> Path:
        return self.folder / f"v{SCHEMA}" / "blobs" / check_key(key)[:2] / key

    def _claim(self, key: str) -> Path:
        return self.folder / f"v{SCHEMA}" / "claims" / check_key(key)[:2] / key

    def _new_path(self, name: str) -> Path:
        folder = self.folder / f"v{SCHEMA}" / "new"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class _Claim:
    holder: str
    ttl_s: float
    since: float  # the server's clock


def _read_claim(path: Path) -> _Claim | None:
    try:
        with path.open("rb") as stream:
            since = os.fstat(stream.fileno()).st_mtime
            ttl, _, holder = stream.read(_LONGEST_CLAIM).decode(errors="replace").partition(" ")
    except FileNotFoundError:
        return None
    try:
        ttl_s = float(ttl)
    except ValueError:
        return _Claim("", _UNREADABLE_TTL_S, since)
    return _Claim(holder, ttl_s, since)


def _create(path: Path, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    try:
        os.write(fd, text.encode())
        os.utime(fd)
    finally:
        os.close(fd)
    return True


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as sink:
        sink.write(content)
        sink.flush()
        os.fsync(sink.fileno())
