"""Loads a built kernel."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.runtime.forwarded_hip import ForwardedLibrary


def load_library(artifact: Artifact, device: Device) -> ctypes.CDLL | ForwardedLibrary:
    """Load a kernel's shared library on top of the device's HIP library. Its bytes are checked just before."""
    return device.library(artifact.verify_file(LIBRARY))
