"""Write a wheel of kernels: a zip file in the format of PEP 427, with the same bytes for the same kernels."""

from __future__ import annotations

import base64
import hashlib
import re
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.atomic_write import create_folder, write_atomically
from tilewright.base.errors import InvalidValueError
from tilewright.building.prebuilt.kernel_wheel import (
    BLOBS,
    GROUP,
    MANIFEST,
    BuildFacts,
    WheelEntry,
    check_package_name,
    format_manifest,
)
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.remote import MAX_BLOB_BYTES, pack_entry

# Names and versions as PEP 508 and PEP 440 allow them, without local versions, which no package index accepts.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_.]+[A-Za-z0-9]+)*")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?")
# In a library's table of strings: the versions of the C library's functions that it calls.
_GLIBC = re.compile(rb"\0GLIBC_2\.([0-9]{1,3})(?:\.[0-9]+)?(?=\0)")
# The oldest C library that pip knows platform tags for, and thus the least requirement.
_OLDEST_GLIBC = 17
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can have


@dataclass(frozen=True)
class WheelKernel:
    """An artifact to put into a wheel, with its source key."""

    artifact: Artifact
    source: str


def write_wheel(
    folder: Path, name: str, version: str, gpu: str, built: BuildFacts, kernels: Sequence[WheelKernel]
) -> Path:
    """Write a wheel of built kernels for one GPU into a folder. Returns its path.

    The platform tag has the C library that the kernels' libraries need: pip does not install it where that is older.
    """
    check_wheel_name(name, version)
    package = check_package_name(re.sub(r"[-_.]+", "_", name).lower())
    glibc = max((_find_glibc(path) for each in kernels for path in _list_libraries(each.artifact)), default=0)
    machine = sysconfig.get_platform().partition("-")[2].replace("-", "_")
    tag = f"py3-none-manylinux_2_{max(glibc, _OLDEST_GLIBC)}_{machine}"
    target = folder / f"{package}-{version}-{tag}.whl"
    create_folder(folder)
    with write_atomically(target) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        record: dict[str, str] = {}
        entries: dict[str, WheelEntry] = {}
        for each in sorted(kernels, key=lambda each: each.artifact.key):
            artifact = each.artifact
            blob = pack_entry(artifact)
            if len(blob) > MAX_BLOB_BYTES:
                raise InvalidValueError(f"{artifact.key} has {len(blob):,} bytes, over {MAX_BLOB_BYTES:,}")
            _add_file(archive, record, f"{package}/{BLOBS}/{artifact.key}", blob)
            slug = str(artifact.facts.get("slug", artifact.key))
            entries[artifact.key] = WheelEntry(artifact.key, each.source, slug, len(blob))
        texts = {
            f"{package}/__init__.py": f'"""Built kernels for {gpu}, for the package tilewright."""\n',
            f"{package}/{MANIFEST}": format_manifest(gpu, built, entries),
            **_make_metadata(f"{package}-{version}.dist-info", name, version, package, tag, gpu, built, len(entries)),
        }
        for path, text in texts.items():
            _add_file(archive, record, path, text.encode())
        listing = f"{package}-{version}.dist-info/RECORD"
        _add_file(archive, {}, listing, "".join([*record.values(), f"{listing},,\n"]).encode())
    return target


def check_wheel_name(name: str, version: str) -> None:
    """Raise `InvalidValueError` for names and versions that pip does not accept."""
    if _NAME.fullmatch(name) is None:
        raise InvalidValueError(f"{name!r} cannot name a wheel: use letters and digits, with - or _ between them")
    if _VERSION.fullmatch(version) is None:
        raise InvalidValueError(f"{version!r} cannot be the version of a wheel: write it as 1.0 or 2026.11.2")


def _make_metadata(
    info: str, name: str, version: str, package: str, tag: str, gpu: str, built: BuildFacts, count: int
) -> Mapping[str, str]:
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

    summary = f"{count} built kernels for {gpu}"
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\nRequires-Dist: tilewright\n"
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: tilewright {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return {
        f"{info}/METADATA": f"{metadata}\nBuilt with {built.describe()}.\n",
        f"{info}/WHEEL": wheel,
        f"{info}/entry_points.txt": f"[{GROUP}]\n{package} = {package}\n",
    }


def _add_file(archive: zipfile.ZipFile, record: dict[str, str], path: str, content: bytes) -> None:
    info = zipfile.ZipInfo(path, _TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o100644 << 16
    archive.writestr(info, content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record[path] = f"{path},sha256={digest},{len(content)}\n"


def _list_libraries(artifact: Artifact) -> list[Path]:
    return [artifact.verify_file(name) for name in artifact.files if ".so" in name]


def _find_glibc(library: Path) -> int:
    """The minor version of the C library that a library needs."""
    return max((int(match[1]) for match in _GLIBC.finditer(library.read_bytes())), default=0)
