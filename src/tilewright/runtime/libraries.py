"""Loads kernel libraries on top of the process's HIP library."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from tilewright.base.errors import DeviceError
from tilewright.runtime import hip_library
from tilewright.runtime.hip import Hip

# glibc's messages for a missing symbol or symbol version.
_UNDEFINED = re.compile(r"undefined symbol: (?P<symbol>\w+)")
_VERSION = re.compile(r"version [`'](?P<version>\S+?)' not found")

_libraries: dict[Path, ctypes.CDLL] = {}


def load_kernel_library(hip: Hip, path: Path, *, emulated: bool) -> ctypes.CDLL:
    """The library at `path`, loaded once. Fails if it loads another HIP library into the process."""
    known = _libraries.get(path)
    if known is not None:
        return known
    hip_library.check_after_loading(hip)  # other code may have loaded one
    try:
        library = ctypes.CDLL(str(path))  # ctypes binds all symbols at once (RTLD_NOW), so a missing one shows here
    except OSError as error:
        raise DeviceError(_explain_failure(path, hip, str(error), emulated)) from error
    # A library that was linked against another version of HIP also loads that version.
    hip_library.check_after_loading(hip)
    return _libraries.setdefault(path, library)


def _explain_failure(path: Path, hip: Hip, said: str, emulated: bool) -> str:
    symbol, version = _UNDEFINED.search(said), _VERSION.search(said)
    if symbol is None and version is None:
        return f"{path} cannot be loaded: {said}"
    lacks = f"function {symbol['symbol']}" if symbol else f"version {version['version']}" if version else ""
    if emulated:
        return f"{path} needs the {lacks}, which the emulated device does not have ({said})"
    return f"{path} needs the {lacks}, which {hip.path} does not have: it was linked with another HIP ({said})"
