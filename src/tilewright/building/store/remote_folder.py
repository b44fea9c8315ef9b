"""A remote tier in a shared folder, also over NFS. It needs no locks, only rename and O_EXCL.

<folder>/v1/blobs/<k[:2]>/<key>     written under another name, synced, renamed
<folder>/v1/claims/<k[:2]>/<key>    created with O_EXCL; contains the holder and the maximum duration
<folder>/v1/new/                    files that are being written
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.building.store.files import DAMAGED, SCHEMA, check_key, open_regular, read_regular
from tilewright.building.store.remote import CLAIM_TTL_S, check_ttl

# Duration of a claim whose text cannot be read (its process died while writing it).
_UNREADABLE_TTL_S = 60.0
# Taking over an expired claim takes four small operations.
_TAKEOVER_TTL_S = 10.0
# How long the difference between the file server's clock and ours is trusted.
_CLOCK_TRUST_S = 60.0
_LONGEST_CLAIM = 1000
_READ_AND_WRITE = 0o666
# An attempt fails only if a claim is released at that very moment.
_ROUNDS = 50


@dataclass
class _Clock:
    """The file server's clock: the time of a file that it has just touched, advanced by our monotonic clock."""

    offset: float = 0.0
    measured: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class FolderRemote:
    """Blobs and claims as files. They have the permissions of the folder whatever the umask is: all users who may write
    to the folder share them."""

    folder: Path
    _clock: _Clock = field(default_factory=_Clock, repr=False, compare=False)

    def describe(self) -> str:
        return f"folder:{self.folder}"

    def get_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for key in keys:
            try:
                status = self._blob_path(key).lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            # Anything else than a file counts as empty, which is an invalid blob.
            found[key] = status.st_size if stat.S_ISREG(status.st_mode) else 0
        if not found:
            self._require_folder()
        return found

    def fetch(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        for key, size in sizes.items():
            try:
                found[key] = read_regular(self._blob_path(key), size + 1)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in DAMAGED:
                    raise
                found[key] = b""
        return {key: blob for key, blob in found.items() if len(blob) <= sizes[key]}

    def push(self, key: str, blob: bytes) -> None:
        self._require_folder()
        target = self._blob_path(key)
        self._create_folder(target.parent)
        new = self._make_new_path(key)
        try:
            self._write_file(new, blob)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:
        self._require_folder()
        path = self._claim_path(key)
        self._create_folder(path.parent)
        text = f"{check_ttl(ttl_s):g} {holder}"
        for _ in range(_ROUNDS):
            if self._create_file(path, text):
                return True
            held = _read_claim(path)
            if held is None:
                continue  # released since
            if held.holder == holder:
                os.utime(path, follow_symlinks=False)  # without explicit times: uses the server's clock
                return True
            return self._is_expired(held) and self._take_over(path, holder, text)
        return False  # other claims come and go faster than we can read them

    def is_claimed(self, key: str) -> bool:
        held = _read_claim(self._claim_path(key))
        return held is not None and not self._is_expired(held)

    def release(self, key: str, holder: str) -> None:
        path = self._claim_path(key)
        held = _read_claim(path)
        if held is not None and held.holder == holder:
            path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Does nothing: reading from a dead share cannot be interrupted."""

    def _take_over(self, path: Path, holder: str, text: str) -> bool:
        """Replace an expired claim by ours. Only one of several competing machines succeeds."""
        right = path.with_name(f"{path.name}.takeover")
        if not self._create_file(right, f"{_TAKEOVER_TTL_S:g} {holder}"):
            other = _read_claim(right)
            if other is not None and self._is_expired(other):
                right.unlink(missing_ok=True)  # its process died during the takeover; the next claim may try again
            return False
        try:
            held = _read_claim(path)
            if held is None or not self._is_expired(held):
                return False  # another machine was faster
            new = self._make_new_path("claim")
            self._write_file(new, text.encode())
            os.utime(new)
            new.replace(path)  # atomic: nobody sees it unclaimed in between
            return True
        finally:
            right.unlink(missing_ok=True)

    def _is_expired(self, held: _Claim) -> bool:
        """Return whether a claim has expired. Claims from the future count too: the server's clock was set back, or
        the file was given that time."""
        return not -_CLOCK_TRUST_S <= self._read_server_time() - held.since <= held.ttl_s

    def _read_server_time(self) -> float:
        clock = self._clock
        with clock.lock:
            if time.monotonic() - clock.measured > _CLOCK_TRUST_S:
                probe = self._make_new_path("clock")
                self._write_file(probe, b"")
                os.utime(probe)
                clock.offset = probe.stat().st_mtime - time.monotonic()
                probe.unlink(missing_ok=True)
                clock.measured = time.monotonic()
            return time.monotonic() + clock.offset

    def _require_folder(self) -> None:
        """Raise if the folder does not exist: files must not be written where a share is not mounted."""
        if not self.folder.is_dir():
            raise FileNotFoundError(2, "the folder does not exist; create it, or mount the share", str(self.folder))

    def _blob_path(self, key: str) -> Path:
        return self.folder / f"v{SCHEMA}" / "blobs" / check_key(key)[:2] / key

    def _claim_path(self, key: str) -> Path:
        return self.folder / f"v{SCHEMA}" / "claims" / check_key(key)[:2] / key

    def _make_new_path(self, name: str) -> Path:
        folder = self.folder / f"v{SCHEMA}" / "new"
        self._create_folder(folder)
        return folder / f"{name}-{secrets.token_hex(8)}"

    def _create_folder(self, path: Path) -> None:
        """Create a folder below the shared one. Nobody sees it before it has its permissions."""
        if path.is_dir():
            return
        if path.parent != self.folder:
            self._create_folder(path.parent)
        draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        draft.mkdir()
        try:
            draft.chmod(self._read_mode())
            draft.rename(path)  # also over one that another process has just created
        except OSError as error:
            draft.rmdir()
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise

    def _write_file(self, path: Path, content: bytes) -> None:
        with path.open("xb") as sink:
            os.fchmod(sink.fileno(), self._read_mode() & _READ_AND_WRITE)
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())

    def _create_file(self, path: Path, text: str) -> bool:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        except FileExistsError:
            return False
        try:
            os.fchmod(fd, self._read_mode() & _READ_AND_WRITE)
            os.write(fd, text.encode())
            os.utime(fd)
        finally:
            os.close(fd)
        return True

    def _read_mode(self) -> int:
        return stat.S_IMODE(self.folder.stat().st_mode)


@dataclass(frozen=True, slots=True)
class _Claim:
    holder: str
    ttl_s: float
    since: float  # the server's clock


def _read_claim(path: Path) -> _Claim | None:
    """Read the claim in a file; None if there is none. Anything invalid counts as an unreadable claim."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            since = os.fstat(stream.fileno()).st_mtime
            ttl, _, holder = stream.read(_LONGEST_CLAIM).decode(errors="replace").partition(" ")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (*DAMAGED, errno.EACCES):  # another user has just created it
            raise
        return _make_unreadable_claim(path)
    try:
        ttl_s = float(ttl)
    except ValueError:
        ttl_s = math.nan
    if not 0 < ttl_s < math.inf:
        return _Claim("", _UNREADABLE_TTL_S, since)
    return _Claim(holder, min(ttl_s, CLAIM_TTL_S), since)


def _make_unreadable_claim(path: Path) -> _Claim | None:
    try:
        return _Claim("", _UNREADABLE_TTL_S, path.lstat().st_mtime)
    except FileNotFoundError:
        return None
