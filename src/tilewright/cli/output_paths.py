"""Option types for output paths, which check that they can be written before any work is done."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click

from tilewright.base.atomic_write import describe_write_error

STDOUT = "-"


class OutputFile(click.Path):
    """A file to write, with one of `suffixes`; any name is allowed if there are none.

    Its folder must exist and be writable. With `stdout`, `-` is allowed too.
    """

    def __init__(self, *suffixes: str, stdout: bool = False) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self.suffixes = suffixes
        self.stdout = stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if self.stdout and str(path) == STDOUT:
            return path
        if self.suffixes and path.suffix not in self.suffixes:
            known = ", ".join(self.suffixes)
            self.fail(f"{path} ends in {path.suffix or 'nothing'!r}. Can be written: {known}.", param, ctx)
        if path.is_dir():
            self.fail(f"{path} is a folder. Name a file.", param, ctx)
        if not path.exists() or path.is_file():  # neither a pipe nor a device, which have no folder to write to
            _check_folder(self, path, path.parent, param, ctx)
        return path


class OutputFolder(click.Path):
    """A folder to write into. It is created later if needed."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        there = path.absolute()
        while not os.path.lexists(there):
            there = there.parent
        if not there.is_dir():
            self.fail(f"{path} cannot be written: {there} is a file. Name a folder.", param, ctx)
        _check_folder(self, path, there, param, ctx)
        return path


def _check_folder(
    kind: click.Path, path: Path, folder: Path, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    """Check that a folder is writable by creating something in it: permissions do not show read-only disks."""
    if ctx is not None and ctx.resilient_parsing:  # shell completion
        return
    try:
        Path(tempfile.mkdtemp(prefix=".tilewright-", dir=folder)).rmdir()
    except OSError as error:
        kind.fail(describe_write_error(path, error), param, ctx)
