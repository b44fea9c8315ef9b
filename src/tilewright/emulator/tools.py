"""The programs and libraries that the emulated device uses, where they are known already.

Finding them takes a second: the toolchain's programs are started and asked. A process whose parent has found them gets
their paths instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmulatorTools:
    """Paths of LLVM's tools (None where the compiler lists code itself) and of the native engine (None: NumPy).

    `kernels` is the folder of `kernel_cache`; None if nothing is kept.
    """

    objdump: Path | None
    readelf: Path | None
    engine: Path | None
    kernels: Path | None = None


_given: EmulatorTools | None = None


def use_tools(tools: EmulatorTools) -> None:
    """Use these tools in this process instead of searching for them."""
    global _given  # noqa: PLW0603 - one toolchain per process
    _given = tools


def get_given_tools() -> EmulatorTools | None:
    """Return the tools that this process was given, or None."""
    return _given
