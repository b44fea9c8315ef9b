"""The order of B that a preshuffle kernel requires.

The kernel loads B from memory directly into the registers of the matrix instruction, so B must be in memory in the
order of the lanes. B (k × n) is divided into mma tiles of k × n. The tiles of one column of tiles are consecutive along
k. A tile contains the values of one lane after another: lane = group · mma.n + column, and a lane has mma.k / groups
neighbours along k, where groups = wave size / mma.n. (MakeBFlatDramTileDistribution in
ck_tile/ops/gemm/pipeline/wp_pipeline_agmem_bgmem_creg_base_policy.hpp; ck_tile/host/tensor_shuffle_utils.hpp creates
the same order for CK's own examples.)

With `permute_n`, the columns of a block are permuted first: a wave's r-th tile takes every repeat-th column of the
wave's share, starting with the r-th. Then a lane has neighbouring columns of C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ops.execution import Preparation
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.problem import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

# No GPU with waves of 32 has preshuffle tiles in its file (rule P304).
WAVE_SIZE = 64


def list_preparations(config: Config, _: Problem) -> tuple[Preparation, ...]:
    """The reordering of B for a preshuffle kernel, empty for others. The problem must be supported (S509)."""
    if config.variant != "preshuffle":
        return ()
    columns = f", with the columns of each {config.block.n} distributed to the waves" if config.permute_n else ""
    what = f"b is reordered into tiles of {config.mma.k}×{config.mma.n}, each as the lanes load it{columns}"
    return (Preparation("b", what, lambda b: shuffle_b(config, b)),)


def shuffle_b(config: Config, b: NDArray[Any]) -> NDArray[Any]:
    """B (k × n) in the order of the kernel: an array of the same shape whose column-major memory has that order."""
    k, n = b.shape
    mma = config.mma
    columns = _order_columns(config, b.T) if config.permute_n else b.T  # n × k
    groups = WAVE_SIZE // mma.n
    tiles = columns.reshape(n // mma.n, mma.n, k // mma.k, groups, mma.k // groups)
    in_order = tiles.transpose(0, 2, 3, 1, 4).reshape(n, k)
    return in_order.T


def _order_columns(config: Config, columns: NDArray[Any]) -> NDArray[Any]:
    n, k = columns.shape
    waves, width = config.waves.n, config.mma.n
    repeat = config.block.n // (waves * width)
    shares = columns.reshape(n // config.block.n, waves, width, repeat, k)
    return shares.transpose(0, 3, 1, 2, 4).reshape(n, k)
