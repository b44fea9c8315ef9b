"""Write one entry into a private folder: all bytes are hashed and synced to disk before others can see them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.building.store.artifact import FileDigest
from tilewright.building.store.layout import MANIFEST, PRIVATE_FILE, PRIVATE_FOLDER, is_file_name
from tilewright.building.store.manifest import Core, Kind, Manifest, check_facts
from tilewright.building.store.os_errors import translate_os_errors

_PIECE = 2**20

# The files of a new entry: paths to copy from, or bytes.
Sources = Mapping[str, Path | bytes]


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
