"""Config fields of a work-group's GEMM, declared once, so that they mean the same in every op."""

from __future__ import annotations

from typing import Protocol

from tilewright.arch.spec import Shape
from tilewright.ops.fields import ChoiceType, CountType, FlagType, TileType, config_field

EPILOGUES = ("cshuffle", "default")


class BlockGemmConfig(Protocol):
    """The attributes that shared code reads. An op whose config has other fields provides a view with these."""

    @property
    def dtype_a(self) -> str: ...

    @property
    def dtype_b(self) -> str: ...

    @property
    def dtype_acc(self) -> str: ...

    @property
    def dtype_c(self) -> str: ...

    @property
    def layout(self) -> str: ...

    @property
    def block(self) -> Shape: ...

    @property
    def waves(self) -> Shape: ...

    @property
    def mma(self) -> Shape: ...

    @property
    def pipeline(self) -> str: ...

    @property
    def scheduler(self) -> str: ...

    @property
    def epilogue(self) -> str: ...

    @property
    def vector(self) -> Shape | None: ...

    @property
    def wave_groups(self) -> int: ...

    @property
    def split_k(self) -> bool: ...


def make_block_field() -> Shape:
    return config_field(TileType(), "C tile (m, n) and step along k of one work-group", tag="b")


def make_waves_field() -> Shape:
    return config_field(TileType(most=64), "waves of a work-group along m, n, k", tag="w")


def make_mma_field() -> Shape:
    return config_field(TileType(most=256), "tile of one wave-level matrix operation", tag="i")


def make_pipeline_field(offered: tuple[str, ...]) -> str:
    return config_field(ChoiceType(offered), "how global loads, LDS and matrix operations overlap")


def make_scheduler_field(offered: tuple[str, ...]) -> str:
    return config_field(ChoiceType(offered), "whether instructions are interleaved within a wave or between waves")


def make_epilogue_field() -> str:
    return config_field(ChoiceType(EPILOGUES), "how C is stored: cshuffle uses LDS for wide stores, default does not")


def make_split_k_field() -> bool:
    return config_field(
        FlagType(),
        "also built with atomic adds, so that K can be split among work-groups",
        tag="splitk",
        default=False,
    )


def make_wave_groups_field() -> int:
    return config_field(
        CountType(1, 2), "groups of waves that take turns in loading and computing", tag="wg", default=1
    )


def make_blocks_per_cu_field() -> int:
    return config_field(
        CountType(1, 8), "work-groups that must fit on a compute unit together; limits registers", tag="bpc", default=1
    )
