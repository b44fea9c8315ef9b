"""Resource usage of built kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.building.store.artifact import Artifact
from tilewright.ops.kernel import Kernel
from tilewright.ops.machine.cost import Use

_READ = ("vgprs", "agprs", "sgprs", "lds_bytes", "scratch_bytes")


def uses_of(results: Mapping[Kernel, Any]) -> dict[Kernel, Use]:
    """Registers and LDS of the kernels whose artifact has them."""
    found = {kernel: _use(entry) for kernel, entry in results.items() if isinstance(entry, Artifact)}
    return {kernel: use for kernel, use in found.items() if use is not None}


def _use(artifact: Artifact) -> Use | None:
    """The maximum over the device kernels of one artifact (loop and tail variants): any of them may be launched."""
    listed = artifact.resources
    if not listed:
        return None
    return Use(**{name: max(getattr(each, name) for each in listed) for name in _READ})
