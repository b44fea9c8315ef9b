"""`Artifact.resources`: the device kernels that compute the op, without those that come with CK Tile's headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.base.errors import CorruptError
from tilewright.building.store.artifact import Artifact

FLUSH = "_ZN7ck_tileL11flush_cacheEv"
KENTRY = "_ZN7ck_tile6kentryILi1ENS_10GemmKernelE"
CONVERT = "_Z7convertIDF16_EvPKfPT_l"


def row(name: str, vgprs: int, lds_bytes: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "vgprs": vgprs,
        "agprs": 0,
        "sgprs": 16,
        "vgpr_spills": 0,
        "sgpr_spills": 0,
        "scratch_bytes": 0,
        "lds_bytes": lds_bytes,
        "kernarg_bytes": 64,
        "wave_size": 64,
        "max_block_threads": 256,
    }


def artifact(**facts: Any) -> Artifact:
    return Artifact("key", Path("folder"), {}, facts)


def test_kernels_of_ck_tiles_headers_are_left_out() -> None:
    listed = [row(FLUSH, 0), row(KENTRY + "1", 58, 8192), row(CONVERT, 4), row(KENTRY + "2", 34)]

    assert [each.vgprs for each in artifact(resources=listed).resources] == [58, 34]


def test_an_op_without_ck_tile_has_its_own_kernels() -> None:
    listed = [row(FLUSH, 0), row("_Z5scalePKfPfm", 6)]

    assert [each.vgprs for each in artifact(resources=listed).resources] == [6]


def test_a_manifest_without_resources_tells_none() -> None:
    assert artifact().resources == ()


def test_resources_that_cannot_be_read_are_named() -> None:
    with pytest.raises(CorruptError, match="the manifest of key has resources that cannot be read"):
        _ = artifact(resources=[{"name": KENTRY}]).resources
