"""What ships with attention: the tiles of each GPU's own table, the space `default`, and the sets."""

from __future__ import annotations

import time

import pytest

from tilewright import arch as archs
from tilewright.base.errors import FileFormatError, InvalidValueError, UnknownValueError
from tilewright.ops import find_op
from tilewright.ops.fmha.arch_table import format_tile, list_tiles, read_tile
from tilewright.ops.fmha.config import PAD_FIELDS, PAD_PRESETS
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kinds import KINDS
from tilewright.ops.space import Space

FMHA = find_op("fmha")
DEFAULT = FMHA.spaces()["default"]
# gfx1100 has no attention with CK Tile's headers (P403): what has no GEMM is left.
GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1201")


def by_family(arch: str) -> dict[str, int]:
    return {family: report.legal for family, report in DEFAULT.report(arch, "family").by.items()}


@pytest.mark.parametrize("arch", archs.arch_names())
def test_every_tile_of_a_table_is_legal_with_some_features(arch: str) -> None:
    spaces = {family: space for space in DEFAULT.spaces for family in space.declared["family"]}
    useless = []
    for tile in list_tiles(archs.load(arch)):
        declared = spaces[tile.family].declared
        space = Space(FMHA, {**declared, "family": tile.family, "dtype": tile.dtype, "tile": tile.text})
        if next(space.iter(arch), None) is None:
            useless.append(f"{tile.family} {tile.dtype} {tile.text}")
    assert useless == []


@pytest.mark.parametrize("arch", GPUS)
def test_tables_have_tiles_of_every_kind(arch: str) -> None:
    found = list_tiles(archs.load(arch))
    assert {tile.family for tile in found} >= {kind.name for kind in KINDS} - {"batch_prefill", "dq_dk_dv"}
    heads = {tile.block[-1] for tile in found if tile.family == "forward"}
    assert heads >= {32, 64, 96, 128, 192, 256}
    types = {tile.dtype for tile in found}
    assert types >= {"fp16", "bf16"}
    assert ("fp8" in types) == (arch != "gfx90a")


def test_a_tile_is_written_as_it_is_read() -> None:
    for tile in list_tiles(archs.load("gfx950")):
        assert read_tile(tile.text) == (tile.block, tile.waves, tile.mma)
    assert format_tile(((32, 64), (), ())) == "32x64"
    with pytest.raises(InvalidValueError, match="block/waves/mma"):
        read_tile("64x64/4x1x1")


def test_an_unknown_family_in_a_table_is_refused(tmp_path: object) -> None:
    import dataclasses

    arch = archs.load("gfx942")
    wrong = {"fmha": {"tiles": [{"families": ["forwards"], "dtypes": ["fp16"], "tiles": ["1x1"], "tile": 1}]}}
    with pytest.raises(FileFormatError) as caught:
        list_tiles(dataclasses.replace(arch, op_tables=wrong, source=f"{tmp_path}/gpu.toml"))
    assert "forward" in str(caught.value)
    assert "tile" in str(caught.value)


def test_the_space_is_counted_by_family_within_seconds() -> None:
    started = time.process_time()
    counts = {arch: by_family(arch) for arch in ("gfx942", "gfx1100")}
    assert time.process_time() - started < 10
    assert set(counts["gfx942"]) == {kind.name for kind in KINDS}
    assert min(counts["gfx942"].values()) > 100
    # Only what has no GEMM compiles for RDNA 3.
    assert {family for family, count in counts["gfx1100"].items() if count} == {
        kind.name for kind in KINDS if not kind.gemms
    }


def test_counting_agrees_with_naming() -> None:
    narrow = Space(
        FMHA, {**DEFAULT.spaces[0].declared, "dtype": "bf16", "tile": "64x64x32x64x32x64/4x1x1x4x1x1/16x16x16x16x16x16"}
    )
    reports = narrow.report_by("pipeline", "gfx942")
    named = [kernel.config.pipeline for kernel in narrow.iter("gfx942")]  # type: ignore[attr-defined]
    assert {pipeline: report.legal for pipeline, report in reports.items() if report.legal} == {
        pipeline: named.count(pipeline) for pipeline in set(named)
    }
    assert sum(report.raw for report in reports.values()) == narrow.count_raw("gfx942")


def test_pads_stand_for_four_fields() -> None:
    for name, values in PAD_PRESETS.items():
        assert FMHA.shorthands["pads"].expand_value(name) == dict(zip(PAD_FIELDS, values, strict=True))
    with pytest.raises(UnknownValueError, match="pads"):
        FMHA.shorthands["pads"].row("all")


def test_the_sets_hold_what_their_use_needs() -> None:
    sets = FMHA.sets()
    families = {
        name: {kernel.config.family for arch in found.archs for kernel in found.kernels(arch)}  # type: ignore[attr-defined]
        for name, found in sets.items()
    }
    assert families["decode"] == {"splitkv", "combine", "appendkv"}
    assert families["training"] == {"forward", "dot_do_o", "dq_dk_dv", "convert_dq"}
    assert {arch for found in sets.values() for arch in found.archs} >= set(GPUS)
    assert all(DTYPES[name] for name in ("fp16", "fp8bf16"))
