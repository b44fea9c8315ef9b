"""Find the wheels of kernels that are installed in this environment. Nothing in them is imported."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import sys
from pathlib import Path

from tilewright.base.documents import convert_read_errors, read_bytes
from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.base.events import Notice, emit
from tilewright.base.knobs import PREBUILT_NEVER, get_prebuilt_mode
from tilewright.building.prebuilt.kernel_wheel import (
    GROUP,
    MANIFEST,
    MOST_MANIFEST_BYTES,
    KernelWheel,
    check_package_name,
    read_wheel,
)


def list_wheels() -> tuple[KernelWheel, ...]:
    """The installed wheels that may be used, by name. A wheel that cannot be read is reported, and counts as absent."""
    if get_prebuilt_mode() == PREBUILT_NEVER:
        return ()
    return _list_installed(tuple(sys.path))


@functools.lru_cache(maxsize=4)
def _list_installed(_path: tuple[str, ...]) -> tuple[KernelWheel, ...]:
    """The wheels on Python's search path, which is the argument; looked up once in a process."""
    try:
        with convert_read_errors("the installed packages"):
            points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.value)
    except FileFormatError as error:
        emit(Notice(f"no wheel of kernels is used: {error}"))
        return ()
    found = []
    for point in points:
        if point.dist is None:
            continue
        try:
            with convert_read_errors(point.value):
                found.append(_read_distribution(point.dist, check_package_name(point.value)))
        except FileFormatError as error:
            emit(Notice(f"the wheel of kernels {point.value} is not used: {error}"))
    return tuple(found)


def _read_distribution(dist: importlib.metadata.Distribution, package: str) -> KernelWheel:
    """Read a wheel after comparing its manifest with the digest in RECORD. Entries have digests of their own."""
    folder = Path(str(dist.locate_file(package)))
    for file in dist.files or ():
        if file.parts == (folder.name, MANIFEST) and file.hash is not None and file.hash.mode == "sha256":
            raw = hashlib.sha256(read_bytes(folder / MANIFEST, MOST_MANIFEST_BYTES)).digest()
            if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != file.hash.value:
                raise InvalidValueError(f"{MANIFEST} was changed: it does not have the digest in RECORD")
    return read_wheel(dist.name, dist.version, folder)
