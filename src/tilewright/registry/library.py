"""Loading a built kernel."""

from __future__ import annotations

import ctypes

from tilewright.base.errors import StoreError
from tilewright.building.store.artifact import Artifact
from tilewright.building.unit import LIBRARY


def load_library(artifact: Artifact) -> ctypes.CDLL:
    """The kernel's shared library, its bytes checked just before it is loaded. Needs no GPU and makes no context."""
    path = artifact.checked(LIBRARY)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be loaded: {error}. It needs the HIP library (libamdhip64) that it was linked with."
        ) from error
