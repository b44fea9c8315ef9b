"""The components of a toolchain: programs and folders that are checked, and the reason why one is unusable."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.base.digest import read_cached_text
from tilewright.base.errors import ToolchainError
from tilewright.building.driver import Driver, find_version_line, inspect_driver
from tilewright.building.process import read_tool_output

_HIP_DEFINE = re.compile(r"^#define HIP_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Component:
    """A toolchain component. `problem` is empty if it is usable; `fix` is the command that installs it."""

    name: str
    what: str
    path: Path | None
    version: str
    problem: str
    fix: str
    optional: bool = False  # compiling and inspecting device code works without it
    driver: Driver | None = None  # for a compiler: the programs it runs

    @property
    def ok(self) -> bool:
        """Whether this component can be used."""
        return not self.problem

    @property
    def blocks(self) -> bool:
        """Whether nothing can be compiled until this component is fixed."""
        return bool(self.problem) and not self.optional

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "what": self.what,
            "ok": self.ok,
            "optional": self.optional,
            "version": self.version,
            "path": str(self.path) if self.path else None,
            "problem": self.problem,
            "fix": self.fix,
        }

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.path} ({self.version or 'version unknown'})"
        return f"{self.name} ({self.what}): {self.problem}. Get it with: {self.fix}"


def check_program(
    name: str,
    what: str,
    path: Path | None,
    *,
    missing: str,
    fix: str,
    optional: bool = False,
    ask: tuple[str, ...] = ("--version",),
) -> Component:
    """Check a program at `path` and read its version; `missing` is the problem to report if `path` is None."""
    if path is None:
        return Component(name, what, None, "", missing, fix, optional)
    command = [str(path), *ask]
    try:
        # A script may print the version of another program, which can change without the script.
        version = (
            find_version_line(read_tool_output(command))
            if is_script(path)
            else read_cached_text(
                " ".join(command), [path.resolve()], lambda: find_version_line(read_tool_output(command))
            )
        )
    except (ToolchainError, OSError) as error:
        return Component(name, what, path, "", str(error), fix, optional)
    return Component(name, what, path, version, "", fix, optional)


def check_compiler(name: str, what: str, path: Path | None, *, missing: str, fix: str) -> Component:
    """Check a compiler at `path`. Its version and programs are never cached: a script may run another compiler."""
    if path is None:
        return Component(name, what, None, "", missing, fix)
    try:
        driver = inspect_driver(path)
    except ToolchainError as error:
        # Its version output, if any, is more useful than the reason why the driver could not be inspected.
        return replace(check_program(name, what, path, missing=missing, fix=fix), problem=str(error))
    return Component(name, what, path, driver.version, "", fix, driver=driver)


def is_script(path: Path) -> bool:
    """Return whether a program is a script."""
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


def check_hip_headers(include: Path, fix: str) -> Component:
    """Check the HIP headers below `include` and read their version."""
    name, what = "hip-headers", "HIP headers"
    header = include / "hip" / "hip_version.h"
    if not header.is_file():
        return Component(name, what, None, "", f"{header} does not exist", fix)
    if not (include / "hip" / "hip_runtime.h").is_file():
        problem = f"{include / 'hip'} has no hip_runtime.h"
        return Component(name, what, None, "", problem, fix)
    parts = dict(_HIP_DEFINE.findall(header.read_text(encoding="utf-8", errors="replace")))
    if len(parts) != 3:
        return Component(name, what, None, "", f"{header} does not define a HIP version", fix)
    version = f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
    return Component(name, what, include / "hip", version, "", fix)


def check_device_libraries(folders: tuple[Path, ...], needed: tuple[str, ...], fix: str) -> Component:
    """Check the first existing folder for the bitcode libraries `needed` (names without .bc)."""
    name, what = "device-libraries", "bitcode libraries of device functions"
    present = next((folder for folder in folders if folder.is_dir()), None)
    if present is None:
        listing = ", ".join(str(folder) for folder in folders)
        return Component(name, what, None, "", f"none of these folders exists: {listing}", fix)
    absent = [stem for stem in needed if not (present / f"{stem}.bc").is_file()]
    if absent:
        problem = f"{present} lacks {', '.join(f'{stem}.bc' for stem in absent)}"
        return Component(name, what, None, "", problem, fix)
    count = sum(1 for _ in present.glob("*.bc"))
    return Component(name, what, present, f"{count} libraries", "", fix)
