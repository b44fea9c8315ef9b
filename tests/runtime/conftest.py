"""Kernels of the small op `scale`, built once and kept in the user's cache between runs of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scale_calls import ScaleLibrary

from built_kernels import STORE
from tilewright.base import knobs
from tilewright.building.builder import build_kernels
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.tiers import Tiers
from tilewright.ops import find_op


@pytest.fixture(scope="module")
def scale(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScaleLibrary]:
    """A library that triples 32-bit numbers on gfx942, in work-groups of 64."""
    ck = tmp_path_factory.mktemp("ck")
    (ck / "include" / "ck_tile").mkdir(parents=True)  # `scale` includes none of CK
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(knobs.CK_PATH.name, str(ck))
        op = find_op("scale")
        kernel = op.make_kernel(op.make_config(dtype="fp32", threads=64, factor=3), "gfx942")
        built = build_kernels([kernel], tiers=Tiers(STORE), jobs=1)
        assert built.failures == {}
        yield ScaleLibrary(built.artifacts[kernel].verify_file(LIBRARY), kernel.symbol)
