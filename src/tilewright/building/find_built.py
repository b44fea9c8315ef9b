"""Find built kernels without compiling any: in the store, in installed wheels, in the remote tier."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import ToolchainError
from tilewright.building.compile_job import make_compile_job
from tilewright.building.prebuilt.choose import take_same_source, take_without_toolchain
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.tiers import open_tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.ops.kernel import Kernel


def find_built(kernels: Sequence[Kernel]) -> dict[Kernel, Artifact]:
    """Find kernels in the store, in installed wheels and in the remote tier. Nothing is compiled."""
    tiers = open_tiers()
    try:
        toolchain = find_toolchain()
    except ToolchainError:
        found = take_without_toolchain(kernels, tiers) if tiers.packages else {}
        if found:
            return found
        raise
    units = [make_compile_job(kernel, toolchain) for kernel in kernels]
    entries = tiers.find_entries([unit.key for unit in units])
    known = {unit.kernel: each for unit in units if isinstance(each := entries.get(unit.key), Artifact)}
    missing = [unit for unit in units if unit.kernel not in known]
    return {**known, **take_same_source(missing, tiers)}
