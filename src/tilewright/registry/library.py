"""Loading a built kernel."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from tilewright.building.store.artifact import Artifact
from tilewright.building.unit import LIBRARY

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.runtime.forwarded import ForwardedLibrary


def load_library(artifact: Artifact, device: Device) -> ctypes.CDLL | ForwardedLibrary:
    """The kernel's shared library over the device's HIP library, its bytes checked just before it is loaded."""
    return device.library(artifact.checked(LIBRARY))
