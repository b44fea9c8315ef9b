"""Real kernels as artifacts of a store, built once and kept in the user's cache between runs of the tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import platformdirs

from tilewright.building.builder import build_kernels, build_units
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find
from tilewright.building.unit import Unit
from tilewright.codegen.render import Source
from tilewright.ops.kernel import Kernel

STORE = Store(Path(platformdirs.user_cache_dir("tilewright-tests")) / "kernels")


def built(kernels: Iterable[Kernel]) -> list[Artifact]:
    """What the build engine makes of the kernels, all of which must compile."""
    listed = list(kernels)
    result = build_kernels(listed, tiers=Tiers(STORE))
    assert result.failures == {}
    return [result.artifacts[kernel] for kernel in listed]


def built_unchecked(source: Source) -> Artifact:
    """What the build engine makes of a source, whatever the rules say about its kernel. It must compile."""
    result = build_units([Unit(source, find())], jobs=1, tiers=Tiers(STORE))
    assert result.failures == {}
    return result.artifacts[source.kernel]
