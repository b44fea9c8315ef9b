"""Resource usage of built kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.building.store.artifact import Artifact
from tilewright.ops.cost_model.cost import ResourceUse
from tilewright.ops.kernel import Kernel

_READ = ("vgprs", "agprs", "sgprs", "lds_bytes", "scratch_bytes")


def read_resource_usage(results: Mapping[Kernel, Any]) -> dict[Kernel, ResourceUse]:
    """Registers and LDS of the kernels whose artifact has them."""
    found = {kernel: _read_usage(entry) for kernel, entry in results.items() if isinstance(entry, Artifact)}
    return {kernel: use for kernel, use in found.items() if use is not None}


def _read_usage(artifact: Artifact) -> ResourceUse | None:
    """The maximum over the device kernels of one artifact (loop and tail variants): any of them may be launched."""
    listed = artifact.resources
    if not listed:
        return None
    return ResourceUse(**{name: max(getattr(each, name) for each in listed) for name in _READ})
