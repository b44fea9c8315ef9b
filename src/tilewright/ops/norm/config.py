"""The config of a norm kernel: exactly the fields that change the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, DtypeType, FlagType, config_field

KIND_NAMES = ("rms", "layer", "smoothquant")
DTYPES = ("fp32", "fp16", "bf16")
QUANTIZED_DTYPES = ("int8", "fp8")
RESIDUALS = ("none", "add", "store")
QUANTS = ("none", "dynamic", "smooth")
# Fields of config and problem that must be the same.
COMMON_FIELDS = ("kind", "dtype", "dtype_y", "residual", "quant", "save")


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time values of one norm kernel. A thread computes one row of its work-group, together with others."""

    kind: str = config_field(
        ChoiceType(KIND_NAMES), "rms: RMSNorm; layer: LayerNorm; smoothquant: x · smooth, quantised row by row"
    )
    dtype: str = config_field(DtypeType(DTYPES), "element type of x, residual, sum, weight and bias")
    dtype_y: str = config_field(DtypeType((*DTYPES, *QUANTIZED_DTYPES)), "element type of y")
    rows: int = config_field(CountType(1, 64), "rows of a work-group", tag="m")
    columns: int = config_field(CountType(1, 65536), "elements of a row that a work-group holds at a time", tag="n")
    threads: int = config_field(CountType(1, 1024), "threads of a row", tag="t")
    vector: int = config_field(CountType(1, 16), "neighbouring elements that a thread loads at once", tag="v")
    residual: str = config_field(
        ChoiceType(RESIDUALS),
        "none; add: x + residual is normalised; store: the sum is also an output",
        tag="residual_",
        default="none",
    )
    quant: str = config_field(
        ChoiceType(QUANTS),
        "none; dynamic: y is quantised with a scale for each row; smooth: it is multiplied by smooth before",
        tag="quant_",
        default="none",
    )
    save: bool = config_field(
        FlagType(), "the mean (LayerNorm) and the inverse deviation of rows are outputs", tag="save", default=False
    )
    pad: bool = config_field(FlagType(), "rows need not be a multiple of `columns`", tag="pad", default=False)
    two_pass: bool = config_field(
        FlagType(), "rows may be longer than `columns`: they are read twice", tag="twopass", default=False
    )


def count_threads(config: Config, arch: Arch) -> int:
    """Threads of a work-group. Rows of fewer threads than a wave take a wave each (`Generic2dBlockShape`)."""
    return config.rows * max(config.threads, arch.wave_size)


def compute_lds_bytes(config: Config, arch: Arch) -> int:
    """LDS for the sums of waves that share a row: 4 bytes of each wave, for LayerNorm 16.

    GetSmemSize in ops/reduce/block/block_reduce2d.hpp and ops/norm_reduce/block/block_norm_reduce.hpp.
    """
    if config.threads <= arch.wave_size:
        return 0
    return count_threads(config, arch) // arch.wave_size * (16 if config.kind == "layer" else 4)


def get_common_fields(given: object) -> dict[str, Any]:
    """The values that a config and its problems have in common."""
    return {name: getattr(given, name) for name in COMMON_FIELDS}
