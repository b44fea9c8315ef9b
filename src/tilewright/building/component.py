"""One part of a toolchain: where it is and its version, or what is wrong and how to get it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base.errors import ToolchainError
from tilewright.building.driver import Driver, ask_driver, version_line
from tilewright.building.process import tool_output
from tilewright.building.tree_digest import remembered_text

_HIP_DEFINE = re.compile(r"^#define HIP_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Component:
    """`problem` is empty when the part is usable; `fix` is the command that installs it."""

    name: str
    what: str
    path: Path | None
    version: str
    problem: str
    fix: str
    optional: bool = False  # compiling and inspecting device code works without it
    driver: Driver | None = None  # of a compiler: what it runs

    @property
    def ok(self) -> bool:
        """Whether this part can be used."""
        return not self.problem

    @property
    def blocks(self) -> bool:
        """Whether nothing can be compiled before this part is put right."""
        return bool(self.problem) and not self.optional

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.path} ({self.version or 'version unknown'})"
        return f"{self.name} ({self.what}): {self.problem}. Get it with: {self.fix}"


def program(
    name: str,
    what: str,
    path: Path | None,
    *,
    missing: str,
    fix: str,
    optional: bool = False,
    ask: tuple[str, ...] = ("--version",),
) -> Component:
    """A program at `path`, asked for its version; `missing` says where it was looked for."""
    if path is None:
        return Component(name, what, None, "", missing, fix, optional)
    command = [str(path), *ask]
    try:
        # A script says what some other program says, which may change without it.
        version = (
            version_line(tool_output(command))
            if is_script(path)
            else remembered_text(" ".join(command), [path.resolve()], lambda: version_line(tool_output(command)))
        )
    except (ToolchainError, OSError) as error:
        return Component(name, what, path, "", str(error), fix, optional)
    return Component(name, what, path, version, "", fix, optional)


def compiler(name: str, what: str, path: Path | None, *, missing: str, fix: str) -> Component:
    """A compiler at `path`, asked each time for its version and for what it runs: neither need be the file's own."""
    if path is None:
        return Component(name, what, None, "", missing, fix)
    try:
        driver = ask_driver(path)
    except ToolchainError as error:
        # What it says of itself tells more than why it could not be asked, if it says anything.
        return replace(program(name, what, path, missing=missing, fix=fix), problem=str(error))
    return Component(name, what, path, driver.version, "", fix, driver=driver)


def is_script(path: Path) -> bool:
    """Whether a program is a text that an interpreter runs."""
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


def hip_headers(include: Path, fix: str) -> Component:
    """The HIP headers below `include`, with the version they state."""
    name, what = "hip-headers", "HIP headers"
    header = include / "hip" / "hip_version.h"
    if not header.is_file():
        return Component(name, what, None, "", f"{header} does not exist", fix)
    if not (include / "hip" / "hip_runtime.h").is_file():
        problem = f"{include / 'hip'} has no hip_runtime.h"
        return Component(name, what, None, "", problem, fix)
    parts = dict(_HIP_DEFINE.findall(header.read_text(encoding="utf-8", errors="replace")))
    if len(parts) != 3:
        return Component(name, what, None, "", f"{header} states no HIP version", fix)
    version = f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
    return Component(name, what, include / "hip", version, "", fix)


def device_libraries(folders: tuple[Path, ...], needed: tuple[str, ...], fix: str) -> Component:
    """The first of `folders` that holds the bitcode libraries `needed` (names without .bc)."""
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
