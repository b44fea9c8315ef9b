"""The native engine, loaded: built by `native.library`, or given to this process by its parent."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.base.errors import DeviceError
from tilewright.emulator.native.layout import NativeLaunch
from tilewright.emulator.tools import get_given_tools


@dataclass(frozen=True, slots=True)
class EngineLibrary:
    """The loaded library."""

    path: Path
    handle: ctypes.CDLL

    def run(self, launch: NativeLaunch) -> int:
        """Run a launch; return the code of its fault, or 0."""
        return int(self.handle.tilewright_run(ctypes.byref(launch)))


def find_engine() -> EngineLibrary | None:
    """Return the library that this process was given, or build one if necessary; None without a compiler."""
    if (given := get_given_tools()) is not None:
        return None if given.engine is None else _open_given(given.engine)
    from tilewright.emulator.native.library import load_engine  # noqa: PLC0415 - takes long to import

    return load_engine()


@cache
def _open_given(path: Path) -> EngineLibrary:
    # The parent has checked it.
    return open_library(path)


def open_library(path: Path) -> EngineLibrary:
    """Load a library."""
    try:
        return EngineLibrary(path, ctypes.CDLL(os.fspath(path)))
    except OSError as error:
        raise DeviceError(f"the emulator's engine, {path}, cannot be loaded: {error}") from error
