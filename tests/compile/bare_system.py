"""A root file system with Python, a shell and nothing else: no compiler, no linker, no HIP, no C headers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

# What a build runs besides Python and the toolchain, and a shell for the toolchain's scripts.
PROGRAMS = ("sh", "env", "timeout", "rm")
# For downloads: certificates, and the settings of the resolver and of pip.
SETTINGS = ("/etc/ssl", "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/pip.conf", "/etc/passwd")
_LIBRARY = re.compile(r"(/\S+\.so\S*)(?: \(0x|$)", re.MULTILINE)


def can_unshare() -> bool:
    """Whether this user may make a mount namespace of their own."""
    return shutil.which("unshare") is not None and (
        subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False, capture_output=True).returncode
        == 0
    )


class BareSystem:
    """The file system in `root`. Folders of this machine are mounted into it while a command runs."""

    def __init__(self, root: Path, folders: Iterable[Path]) -> None:
        self.root = root
        standard = Path(sysconfig.get_path("stdlib"))
        self._folders = [Path(sys.prefix), standard, *folders]
        programs = [*_follow_links(Path(sys.executable)), *(Path(shutil.which(name) or name) for name in PROGRAMS)]
        modules = [path for folder in (standard, Path(sys.prefix)) for path in folder.rglob("*.so*") if path.is_file()]
        for program in programs:
            self._copy(program)
        for library in _list_libraries([*programs, *modules]):
            self._copy(library)
        for path in map(Path, SETTINGS):
            if path.exists():
                self._copy(path)
        for name in ("tmp", "proc", "dev"):
            (root / name).mkdir(exist_ok=True)
        for name in ("bin", "lib", "lib64"):  # links to /usr in every current distribution
            if Path("/", name).is_symlink() and not (root / name).exists():
                (root / "usr" / name).mkdir(parents=True, exist_ok=True)
                (root / name).symlink_to(f"usr/{name}")

    def _copy(self, path: Path) -> None:
        target = self.root / path.resolve().relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        elif not target.exists():
            shutil.copy(path.resolve(), target)
        named = self.root / path.parent.resolve().relative_to("/") / path.name
        if not named.exists():  # a link, such as sh → dash
            named.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path.resolve(), named)

    def run(
        self, command: Iterable[str], variables: Mapping[str, str], limit_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with only these environment variables."""
        lines = ["set -e"]
        for folder in ("/proc", "/dev", *map(str, self._folders)):
            place = self.root / folder.lstrip("/")
            lines += [
                f"mkdir -p {shlex.quote(str(place))}",
                f"mount --rbind {shlex.quote(folder)} {shlex.quote(str(place))}",
            ]
        settings = [f"{name}={value}" for name, value in {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **variables}.items()]
        words = ["chroot", str(self.root), "/usr/bin/env", "-i", *settings, *command]
        lines.append(f"exec {shlex.join(words)}")
        unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c", "\n".join(lines)]
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        return subprocess.run(unshare, capture_output=True, text=True, timeout=limit_s, check=False, env=environment)

    def list_files(self, pattern: str) -> list[str]:
        """List its own files, without mounted folders, whose path has the pattern."""
        return [str(path) for path in self.root.rglob("*") if re.search(pattern, str(path.relative_to(self.root)))]


def _follow_links(path: Path) -> list[Path]:
    """List the file that a link names, and every link between, outside this environment."""
    found = [path]
    while found[-1].is_symlink():
        found.append(Path(os.path.normpath(found[-1].parent / found[-1].readlink())))
    return [each for each in found if not each.is_relative_to(sys.prefix)]


def _list_libraries(programs: Iterable[Path]) -> list[Path]:
    """List the shared libraries of this machine that programs and modules need."""
    found: dict[str, None] = {}
    listed = [str(program) for program in programs]
    for start in range(0, len(listed), 200):
        done = subprocess.run(["ldd", *listed[start : start + 200]], capture_output=True, text=True, check=False)
        found |= dict.fromkeys(_LIBRARY.findall(done.stdout))
    return [Path(path) for path in found if not path.startswith(sys.prefix) and Path(path).exists()]
