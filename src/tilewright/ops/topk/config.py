"""The config of a top-k kernel: exactly the fields that change the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, DtypeType, config_field

ACTIVATIONS = ("softmax", "sigmoid")
DTYPES = ("fp32", "fp16", "bf16")
# Fields of config and problem that must be the same.
COMMON_FIELDS = ("activation", "dtype")


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time values of one top-k kernel. The lanes of a wave, or a part of them, hold a row of x together."""

    activation: str = config_field(
        ChoiceType(ACTIVATIONS), "softmax: weights are probabilities; sigmoid: 1 / (1 + exp(-x)) of each element"
    )
    dtype: str = config_field(DtypeType(DTYPES), "element type of x")
    experts: int = config_field(CountType(1, 2048), "elements of a row that lanes hold: rows may be shorter", tag="e")
    rows: int = config_field(CountType(1, 16), "rows that the same lanes compute at once", tag="m")
    threads: int = config_field(CountType(1, 1024), "threads of a work-group", tag="t")
    vector: int = config_field(CountType(1, 16), "neighbouring elements that a lane loads at once", tag="v")


def count_lanes(config: Config, arch: Arch) -> int:
    """Lanes of a row (`LanesPerRow` in topk_softmax_warp_per_row_problem.hpp)."""
    return min(config.experts // config.vector, arch.wave_size)


def count_rows(config: Config, arch: Arch) -> int:
    """Rows of a work-group (`RowsPerBlock`)."""
    return config.rows * (config.threads // max(1, count_lanes(config, arch)))


def get_common_fields(given: object) -> dict[str, Any]:
    """The values that a config and its problems have in common."""
    return {name: getattr(given, name) for name in COMMON_FIELDS}
