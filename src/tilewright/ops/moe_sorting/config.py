"""The config of a sorting kernel: exactly the fields that change the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ops.fields import ConfigBase, CountType, FlagType, config_field

THREADS = 256  # `kBlockSize` of MoeSortingKernel: one work-group sorts all tokens
STEP = 8  # lanes that count the tokens of one expert together (`lane_group_sz`)
LDS_BYTES = 65536  # of a work-group on every GPU
# Fields of config and problem that must be the same.
COMMON_FIELDS = ("masked", "keep_empty")


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time values of one sorting kernel. One work-group holds a table of tokens × experts in LDS."""

    tile: int = config_field(CountType(1, 16), "tokens that a lane counts at once", tag="tile")
    masked: bool = config_field(
        FlagType(), "only some experts are on this GPU: the others are left out", tag="masked", default=False
    )
    keep_empty: bool = config_field(
        FlagType(), "an expert without tokens has one block, too", tag="keepempty", default=False
    )


def count_step(config: Config) -> int:
    """Tokens that all lanes of an expert count at once: the held tokens are a multiple of it."""
    return STEP * config.tile
