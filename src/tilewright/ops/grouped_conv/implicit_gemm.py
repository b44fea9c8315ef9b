"""The GEMM inside a convolution: the meaning of M, N and K in each direction, and the layouts of its matrices.

| direction       | A (M × K)          | B (K × N)   | C (M × N)             | M          | N          | K            |
|-----------------|--------------------|-------------|-----------------------|------------|------------|--------------|
| forward         | input, unfolded    | weights     | output                | N · Ho·Wo  | K          | Y·X · C      |
| backward_data   | gradient of output | weights     | gradient of input     | N · Hi·Wi  | C          | Y·X · K      |
| backward_weight | gradient of output | input       | gradient of weights   | K          | Y·X · C    | N · Ho·Wo    |

Channels are those of one group; groups are independent GEMMs.
"""

from __future__ import annotations

import math

from tilewright.arch.spec import Shape
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD, Config

# For the vectors of a, b and c: the channels of the input or those of the output, of one group.
VECTOR_CHANNELS = {
    FORWARD: ("c", "c", "k"),
    BACKWARD_DATA: ("k", "c", "c"),
    BACKWARD_WEIGHT: ("k", "c", "c"),
}


def channel_units(config: Config) -> tuple[int, int]:
    """The numbers that must divide the input and output channels of one group: the vectors along them."""
    along = list(zip(VECTOR_CHANNELS[config.direction], config.vector, strict=True))
    c, k = (math.lcm(*(vector for letter, vector in along if letter == wanted)) for wanted in ("c", "k"))
    return c, k


# AsLayoutFwd etc. in GroupedConvTraits (grouped_convolution/utils/grouped_convolution_utils.hpp).
LAYOUTS = {FORWARD: "rcr", BACKWARD_DATA: "rrr", BACKWARD_WEIGHT: "crr"}


class ImplicitGemm:
    """A view of a convolution's config, complete or partly bound, as the config of the GEMM inside it."""

    __slots__ = ("_config",)
    # The same as in the convolution's config: `__getattr__` finds them there.
    dtype_a: str
    dtype_b: str
    dtype_acc: str
    block: Shape
    waves: Shape
    mma: Shape
    pipeline: str
    scheduler: str
    epilogue: str
    vector: Shape
    wave_groups: int
    split_k: bool

    def __init__(self, config: Config) -> None:
        self._config = config

    def __getattr__(self, name: str) -> object:
        return getattr(self._config, name)

    @property
    def layout(self) -> str:
        return LAYOUTS[self._config.direction]

    @property
    def dtype_c(self) -> str:
        """The type that the GEMM stores. With two stages, another kernel converts the sums."""
        return "fp32" if self._config.two_stage else self._config.dtype_c
