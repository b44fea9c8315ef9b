"""Find the wheels of kernels that are installed in this environment. Nothing in them is imported."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from pathlib import Path

from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.base.events import Notice, emit
from tilewright.base.knobs import PREBUILT_NEVER, get_prebuilt_mode
from tilewright.building.prebuilt.kernel_wheel import GROUP, KernelWheel, check_package_name, read_wheel


def list_wheels() -> tuple[KernelWheel, ...]:
    """The installed wheels that may be used, by name. A wheel that cannot be read is reported, and counts as absent."""
    if get_prebuilt_mode() == PREBUILT_NEVER:
        return ()
    return _list_installed(tuple(sys.path))


@functools.lru_cache(maxsize=4)
def _list_installed(_path: tuple[str, ...]) -> tuple[KernelWheel, ...]:
    """The wheels on Python's search path, which is the argument; looked up once in a process."""
    found = []
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.value):
        if point.dist is None:
            continue
        try:
            folder = Path(str(point.dist.locate_file(check_package_name(point.value))))
            found.append(read_wheel(point.dist.name, point.dist.version, folder))
        except (FileFormatError, InvalidValueError) as error:
            emit(Notice(f"the wheel of kernels {point.dist.name} is not used: {error}"))
    return tuple(found)
