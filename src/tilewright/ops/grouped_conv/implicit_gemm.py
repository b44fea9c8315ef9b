"""The GEMM inside a convolution: its sizes, its config and its resources.

| direction       | A (M × K)          | B (K × N)   | C (M × N)             | M          | N          | K            |
|-----------------|--------------------|-------------|-----------------------|------------|------------|--------------|
| forward         | input, unfolded    | weights     | output                | N · Ho·Wo  | K          | Y·X · C      |
| backward_data   | gradient of output | weights     | gradient of input     | N · Hi·Wi  | C          | Y·X · K      |
| backward_weight | gradient of output | input       | gradient of weights   | K          | Y·X · C    | N · Ho·Wo    |

Channels are those of one group; groups are independent GEMMs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm import resources
from tilewright.ops.grouped_conv.kind import GemmSizes, find_kind

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.config import Config
    from tilewright.ops.grouped_conv.problem import Problem


def compute_gemm_sizes(problem: Problem) -> GemmSizes:
    """The GEMM of one group, as in the table in `implicit_gemm`.

    The gradient of the input is computed in several GEMMs if the stride is above 1. These are the sizes of all of them
    together: every element is a sum of at most `k` products.
    """
    c, k = problem.group_channels
    counts = {
        "inputs": problem.n * math.prod(problem.input_size),
        "outputs": problem.n * math.prod(problem.output_size),
        "taps": math.prod(problem.filter_size),
        "c": c,
        "k": k,
    }
    return GemmSizes(*(math.prod(counts[name] for name in factors) for factors in find_kind(problem).factors))


def channel_units(config: Config) -> tuple[int, int]:
    """The numbers that must divide the input and output channels of one group: the vectors along them."""
    along = list(zip(find_kind(config).vector_channels, config.vector, strict=True))
    c, k = (math.lcm(*(vector for letter, vector in along if letter == wanted)) for wanted in ("c", "k"))
    return c, k


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
        return find_kind(self._config).layout

    @property
    def dtype_c(self) -> str:
        """The type that the GEMM stores. With two stages, another kernel converts the sums."""
        return "fp32" if self._config.two_stage else self._config.dtype_c


def lds_bytes(config: Config, arch: Arch) -> int:
    """Bytes of LDS of one work-group."""
    return resources.lds_bytes(ImplicitGemm(config), arch)


def matrix_instructions(config: Config, arch: Arch) -> tuple[str, ...]:
    """The matrix instruction of the kernel's one GEMM; an empty string if the GPU has none for it."""
    return resources.matrix_instructions(ImplicitGemm(config), arch)
