"""Kernel libraries, loaded over the HIP library that is in the process."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from tilewright.base.errors import DeviceError
from tilewright.runtime import loaded
from tilewright.runtime.hip import Hip

# What glibc says about a symbol, or a version of symbols, that no library has.
_UNDEFINED = re.compile(r"undefined symbol: (?P<symbol>\w+)")
_VERSION = re.compile(r"version [`'](?P<version>\S+?)' not found")

_libraries: dict[Path, ctypes.CDLL] = {}


def kernel_library(hip: Hip, path: Path, *, emulated: bool) -> ctypes.CDLL:
    """The library at `path`, loaded once. Fails when it would bring another HIP library into the process."""
    known = _libraries.get(path)
    if known is not None:
        return known
    loaded.check_after_loading(hip)  # by somebody else
    try:
        library = ctypes.CDLL(str(path))  # ctypes binds all symbols at once (RTLD_NOW), so a missing one shows here
    except OSError as error:
        raise DeviceError(_why(path, hip, str(error), emulated)) from error
    # A library that was linked against another version of HIP loads that one, too.
    loaded.check_after_loading(hip)
    return _libraries.setdefault(path, library)


def _why(path: Path, hip: Hip, said: str, emulated: bool) -> str:
    symbol, version = _UNDEFINED.search(said), _VERSION.search(said)
    if symbol is None and version is None:
        return f"{path} cannot be loaded: {said}"
    lacks = f"function {symbol['symbol']}" if symbol else f"version {version['version']}" if version else ""
    if emulated:
        return f"{path} needs the {lacks}, and the emulated device has no such entry point ({said})"
    return f"{path} needs the {lacks}, which {hip.path} does not have: it was linked with another HIP ({said})"
