"""A faster memory allocator for compilers, where one is installed."""

from __future__ import annotations

from pathlib import Path

from tilewright.base import knobs
from tilewright.base.errors import ToolchainError

# Where Debian and Red Hat install libtcmalloc-minimal4 (gperftools-libs) and libjemalloc2.
_PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
_NAMES = ("libtcmalloc_minimal.so.4", "libjemalloc.so.2")


def find_fast_allocator() -> Path | None:
    """Find the library to preload into compilers: the one the knob names, else the first known one that exists."""
    configured = knobs.ALLOCATOR.get()
    if configured is not None:
        if configured.is_file():
            return configured
        raise ToolchainError(f"{knobs.ALLOCATOR.name}={configured} does not exist. Unset it, or name a shared library.")
    candidates = (Path(place) / name for name in _NAMES for place in _PLACES)
    return next((path for path in candidates if path.is_file()), None)
