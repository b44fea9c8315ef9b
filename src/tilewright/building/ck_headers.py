"""Find CK Tile's headers, and fetch them when neither a ROCm installation nor a checkout has them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.document_values import expect_table
from tilewright.base.documents import convert_read_errors, read_json
from tilewright.base.errors import FileFormatError, ToolchainError
from tilewright.base.events import report_task
from tilewright.base.shared_files import hold_lock
from tilewright.building.discover import ROCM, Component, discover
from tilewright.building.process import read_tool_output

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

# A pure-Python wheel that contains a whole composable_kernel tree, of about ROCm 7.1 (late 2025).
# It is a pre-release: pip installs it only if this exact version is requested.
PACKAGE = "amd-aiter"
VERSION = "0.1.7.post2.dev18"
WHEEL = f"amd_aiter-{VERSION}-py3-none-any.whl"
# Digest of that file (40189929 bytes) as listed on pypi.org.
WHEEL_SHA256 = "fe139d74438217c35e87e3b961166bac8db2d381eadccb371da2e63615f05a31"
TREE_IN_WHEEL = "aiter_meta/3rdparty/composable_kernel"

HEADERS = "include"
TOOLS = "tile_engine"
FETCH = "tilewright toolchain fetch-ck"
_DOWNLOAD_TIMEOUT_S = 900.0  # 40 MB at 50 kB/s
_LOCK_TIMEOUT_S = 2 * _DOWNLOAD_TIMEOUT_S
_MOST_BYTES = 64 * 2**20  # size limit of the download


def fetch_ck(*, tools: bool = False) -> Path:
    """Download CK Tile's headers (and with `tools` its tile_engine) once; return their folder.

    Threads and processes may call this concurrently: one downloads, all get the folder.
    """
    home = _get_ck_folder()
    parts = (HEADERS, TOOLS) if tools else (HEADERS,)
    if not _find_absent(home, parts):
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(Path(f"{home}.lock"), _LOCK_TIMEOUT_S) as held:
        if not held:
            raise ToolchainError(
                f"{home}.lock is still held by another process after {_LOCK_TIMEOUT_S:g} s. "
                f"End that process and run `{FETCH}` again."
            )
        if absent := _find_absent(home, parts):
            _fetch_parts(home, absent)
    return home


def find_ck() -> Path:
    """Find the include folder with ck_tile/: from the knob, else from the chosen ROCm, else the fetched one."""
    found = discover()
    part = find_ck_component(found.rocm_root if found.chosen == ROCM else None)
    if part.path is None:
        raise ToolchainError(str(part))
    return part.path


def find_ck_tools() -> Path:
    """Find the folder of CK's tile_engine: in the checkout that the knob names, else in the fetched tree."""
    configured = knobs.CK_PATH.get()
    if configured is not None:
        if (configured / TOOLS).is_dir():
            return configured / TOOLS
        raise ToolchainError(
            f"{knobs.CK_PATH.name}={configured} has no {TOOLS}/, which only a checkout of "
            f"composable_kernel has. Unset it, then run: {FETCH} --tools"
        )
    home = _get_ck_folder()
    if _find_absent(home, (TOOLS,)):
        raise ToolchainError(f"CK's {TOOLS} is not in {home}. Get it with: {FETCH} --tools")
    return home / TOOLS


def find_ck_component(rocm: Path | None) -> Component:
    """Find the current CK headers as a toolchain component; `rocm` is the ROCm in use, if any."""
    configured = knobs.CK_PATH.get()
    if configured is not None:
        include = configured / HEADERS
        if _has_ck(include):
            return _make_component(include, _read_version(include))
        problem = f"{knobs.CK_PATH.name}={configured} has no include/ck_tile"
        return _make_component(None, problem=problem, fix=f"unset {knobs.CK_PATH.name}")
    if rocm is not None and _has_ck(rocm / HEADERS):
        return _make_component(rocm / HEADERS, _read_version(rocm / HEADERS))
    home = _get_ck_folder()
    try:
        absent = _find_absent(home, (HEADERS,))
    except FileFormatError as error:
        return _make_component(None, problem=str(error))
    if not absent:
        return _make_component(home / HEADERS, f"{PACKAGE} {VERSION}")
    places = f"{home} does not hold them" + (f", nor does {rocm}/include" if rocm else "")
    return _make_component(None, problem=places)


def _make_component(path: Path | None, version: str = "", problem: str = "", fix: str = FETCH) -> Component:
    return Component("ck", "CK Tile headers", path, version, problem, fix)


def _has_ck(include: Path) -> bool:
    return (include / "ck_tile").is_dir()


def _read_version(include: Path) -> str:
    """Read CK_VERSION of an installed tree; a checkout only has the template of that file."""
    stated = include / "ck" / "version.h"
    if not stated.is_file():
        return ""
    words = (line.split() for line in stated.read_text(errors="replace").splitlines())
    return next((w[2] for w in words if w[:2] == ["#define", "CK_VERSION"] and len(w) > 2), "")


def _get_ck_folder() -> Path:
    return knobs.cache_dir() / "ck" / VERSION


def _find_absent(home: Path, parts: tuple[str, ...]) -> tuple[str, ...]:
    present = read_manifest(home)["files"]
    return tuple(part for part in parts if part not in present or not (home / part).is_dir())


def read_manifest(home: Path) -> Mapping[str, Any]:
    """Read the manifest of the fetched files in `home`: wheel, sha256 and file count of each part."""
    path = home / "manifest.json"
    if not path.exists():
        return {"files": {}}
    with convert_read_errors(path, f"delete the folder and run `{FETCH}`"):
        manifest = expect_table("a manifest", read_json(path))
        expect_table("files", manifest["files"])
    return manifest


def _fetch_parts(home: Path, parts: tuple[str, ...]) -> None:
    """Download and unpack into a private folder next to `home`, then move each part into place."""
    with (
        report_task("fetching CK Tile headers", total=3) as advance,
        tempfile.TemporaryDirectory(dir=home.parent, prefix=".fetch-") as private,
    ):
        wheel = download_wheel(Path(private))
        advance("downloaded")
        sha256 = _check_digest(wheel)
        advance("checked")
        counts = unpack_wheel(wheel, Path(private), parts)
        home.mkdir(exist_ok=True)
        for part in parts:
            shutil.rmtree(home / part, ignore_errors=True)  # left by a caller that died before its manifest
            (Path(private) / part).rename(home / part)
        _write_manifest(home, wheel.name, sha256, counts)
        advance("unpacked")


def download_wheel(folder: Path) -> Path:
    """Download the wheel into `folder`: with pip if it is installed, since it knows all of its settings."""
    try:
        if importlib.util.find_spec("pip") is None:
            from tilewright.building.package_index import WantedFile, download_file  # noqa: PLC0415  (start-up time)

            return download_file(WantedFile(PACKAGE, WHEEL, WHEEL_SHA256, _MOST_BYTES), folder, _DOWNLOAD_TIMEOUT_S)
        return _download_by_pip(folder)
    except ToolchainError as error:
        raise ToolchainError(
            f"CK Tile's headers ({PACKAGE} {VERSION}) could not be downloaded: {error}\n"
            f"Name an index that has {PACKAGE} {VERSION} (PIP_INDEX_URL), or without a network set "
            f"{knobs.CK_PATH.name} to a checkout of composable_kernel."
        ) from error


def _download_by_pip(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--pre", "--quiet"]
    read_tool_output([*pip, f"{PACKAGE}=={VERSION}", "-d", str(folder)], timeout_s=_DOWNLOAD_TIMEOUT_S)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ToolchainError(f"pip left {len(wheels)} wheels of {PACKAGE} {VERSION} instead of 1")
    return wheels[0]


def _check_digest(wheel: Path) -> str:
    with wheel.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != WHEEL_SHA256:
        raise ToolchainError(
            f"{wheel.name} has sha256 {sha256}, expected {WHEEL_SHA256}: the package index returned "
            f"a different file. Set {knobs.CK_PATH.name} to a checkout of composable_kernel instead."
        )
    return sha256


def unpack_wheel(wheel: Path, target: Path, parts: tuple[str, ...]) -> dict[str, int]:
    """Extract the named folders of CK's tree from `wheel` to `target`; return their file counts."""
    from zipfile import BadZipFile, ZipFile  # noqa: PLC0415  (costs start-up time)

    counts = dict.fromkeys(parts, 0)
    try:
        with ZipFile(wheel) as archive:
            for member in archive.infolist():
                part = _find_part(member, parts)
                if part is not None:
                    _extract(archive, member, target)
                    counts[part] += 1
    except BadZipFile as error:
        raise ToolchainError(f"{wheel.name} is not a wheel: {error}") from error
    if empty := [part for part, count in counts.items() if count == 0]:
        raise ToolchainError(f"{wheel.name} has no {TREE_IN_WHEEL}/{empty[0]}/")
    return counts


def _find_part(member: ZipInfo, parts: tuple[str, ...]) -> str | None:
    if member.is_dir() or not member.filename.startswith(TREE_IN_WHEEL + "/"):
        return None
    first = member.filename.removeprefix(TREE_IN_WHEEL + "/").split("/")[0]
    return first if first in parts else None


def _extract(archive: ZipFile, member: ZipInfo, target: Path) -> None:
    """Extract one file. Names that leave the target and symbolic links are rejected: a wheel has neither."""
    relative = PurePosixPath(member.filename.removeprefix(TREE_IN_WHEEL + "/"))
    if ".." in relative.parts or "\\" in member.filename or relative.is_absolute():
        raise ToolchainError(f"{archive.filename}: the name {member.filename!r} leads out of its folder")
    if stat.S_ISLNK(member.external_attr >> 16):  # Unix mode, upper half (zip APPNOTE 4.4.15)
        raise ToolchainError(f"{archive.filename}: {member.filename!r} is a link")
    path = target / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, path.open("xb") as sink:
        shutil.copyfileobj(source, sink)


def _write_manifest(home: Path, wheel: str, sha256: str, counts: Mapping[str, int]) -> None:
    files = {**read_manifest(home)["files"], **counts}
    manifest = {"wheel": wheel, "sha256": sha256, "files": files}
    private = home / "manifest.json.new"  # no other writer uses this name: the caller holds the lock
    private.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    private.replace(home / "manifest.json")
