"""What kernels are named by: nothing that is named may come to no kernel without an error."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.base.errors import IllegalConfigError, InvalidValueError
from tilewright.ops.kernel_set import KernelSet
from tilewright.ops.space import Space


def space(pipeline: str = "compv4") -> Space:
    """With compv4 it needs 131,072 bytes of LDS: twice those of gfx942, and legal on gfx950."""
    return tw.gemm.space(
        variant="standard",
        dtype="fp16",
        layout="rcr",
        block=[(256, 256, 64)],
        waves=[(2, 2, 1), (4, 1, 1)],
        mma=[(32, 32, 16)],
        pipeline=pipeline,
        scheduler="intrawave",
        epilogue="cshuffle",
    )


def test_building_a_space_without_a_legal_kernel_names_the_rules() -> None:
    with pytest.raises(IllegalConfigError) as raised:
        tw.build(space(), "gfx942")

    said = str(raised.value)
    assert "this space has no legal kernel on gfx942" in said
    assert "0 of 2 combinations are legal" in said
    assert "R401  lds-overflow  removed 2" in said


def test_a_space_without_a_legal_kernel_among_others_is_an_error_too() -> None:
    with pytest.raises(IllegalConfigError, match="no legal kernel on gfx942"):
        tw.Registry.of([space("compv3"), space()], "gfx942")
    with pytest.raises(IllegalConfigError, match="no legal kernel on gfx942"):
        tw.Registry.of(space(), ["gfx950", "gfx942"])

    assert len(tw.Registry.of([space("compv3"), space()], "gfx950")) > 2


def test_a_set_without_a_legal_kernel_is_named() -> None:
    large = KernelSet("large_tiles", "Tiles that are too large for the LDS.", "gemm", ("gfx950",), (space(),))

    with pytest.raises(IllegalConfigError, match="the set large_tiles has no legal kernel on gfx942"):
        tw.build(large, "gfx942")


def test_an_empty_list_is_an_error() -> None:
    with pytest.raises(InvalidValueError, match="the list of kernels is empty"):
        tw.build([], "gfx942")


def test_more_kernels_than_the_limit_are_not_built() -> None:
    two = space("compv3")
    with pytest.raises(
        InvalidValueError,
        match=r"2 kernels would be built, and the limit is 1\. That takes about \d+ s of CPU time\. Set more fields",
    ):
        tw.build(two, "gfx942", limit=1)
