"""Config fields of a work-group's GEMM, declared once, so that they mean the same in every op."""

from __future__ import annotations

from typing import Any

from tilewright.ops.fields import Choice, Count, Flag, Tile, config_field

EPILOGUES = ("cshuffle", "default")


def block() -> Any:
    return config_field(Tile(), "C tile (m, n) and step along k of one work-group", tag="b")


def waves() -> Any:
    return config_field(Tile(most=64), "waves of a work-group along m, n, k", tag="w")


def mma() -> Any:
    return config_field(Tile(most=256), "tile of one wave-level matrix operation", tag="i")


def pipeline(offered: tuple[str, ...]) -> Any:
    return config_field(Choice(offered), "how global loads, LDS and matrix operations overlap")


def scheduler(offered: tuple[str, ...]) -> Any:
    return config_field(Choice(offered), "whether instructions are interleaved within a wave or between waves")


def epilogue() -> Any:
    return config_field(
        Choice(EPILOGUES), "how C is stored: cshuffle uses LDS for wide stores, default does not"
    )


def split_k() -> Any:
    return config_field(
        Flag(),
        "also built with atomic adds, so that K can be split among work-groups",
        tag="splitk",
        default=False,
    )


def wave_groups() -> Any:
    return config_field(Count(1, 2), "groups of waves that take turns in loading and computing", tag="wg", default=1)


def blocks_per_cu() -> Any:
    return config_field(
        Count(1, 8), "work-groups per compute unit that registers are limited for", tag="bpc", default=1
    )
