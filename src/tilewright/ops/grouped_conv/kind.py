"""The facts in which the directions of a convolution differ. Each direction is one file in `kinds/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tilewright.ops.block_gemm import resources
from tilewright.ops.cost_model.block_gemm import AddressCost
from tilewright.ops.grouped_conv.trial_filters import Forms
from tilewright.ops.kind import Kind, index_package

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.problem import Problem

# The letter of the contiguous channels of each tensor.
_CONTIGUOUS = {"input": "c", "weight": "c", "output": "k"}


class GemmSizes(NamedTuple):
    """Sizes of an implicit GEMM. `k` is the number of products that are summed for each element of the result."""

    m: int
    n: int
    k: int


class GemmFactors(NamedTuple):
    """The factors of each dimension of an implicit GEMM.

    `inputs` and `outputs` are positions in all images, `taps` those of the filter, `c` and `k` the channels of one
    group.
    """

    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]

    def find_dimension(self, factor: str) -> str:
        """The name of the dimension that has a factor."""
        return next(name for name, factors in self._asdict().items() if factor in factors)


def compute_as_one(problem: Problem, sizes: GemmSizes) -> tuple[GemmSizes, int]:  # noqa: ARG001
    """For kernels that compute a group in one GEMM."""
    return sizes, 1


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ConvKind(Kind):
    """A direction of a convolution, an instance of CK Tile's `kernel_template`.

    `tensors` are the names of A, B and C, each with the tensor that has its shape. `layout` is that of the implicit
    GEMM, and `factors` are its sizes.
    """

    kernel_template: str
    tensors: Mapping[str, str]
    layout: str
    factors: GemmFactors
    least_ndim: int = 1  # the fewest spatial dimensions that CK Tile computes correctly
    specialized: bool = False  # CK Tile has special kernels for some filters
    # One launch computes a GEMM for each remainder of the position by the stride, with sums of different lengths.
    several_gemms: bool = False
    # The sizes and the number of the GEMMs of a group (problem, sizes of all of them together).
    split_gemm: Callable[[Problem, GemmSizes], tuple[GemmSizes, int]] = compute_as_one
    # Coordinates, bounds and address of every load are computed in every step. Counted in disassembled loops (clang 22,
    # 16-bit types). Two buffers overlap nothing: measured compv4 kernels are not faster than compv3.
    address_cost: AddressCost
    # The result in the type of A and B (problem, a, b).
    reference: Callable[..., Any]
    # Puts numbers that use all bits into test inputs (generator, problem, a, b, arch).
    put_wide_numbers: Callable[..., None]
    # Filters of trials that test every form of the loop: with many tiles, and with few tiles and many steps.
    loop_filters: tuple[Forms, ...]
    long_filters: tuple[Forms, ...]
    # Filters that lead to GEMMs with different numbers of steps, and filters with a stride in one dimension only.
    uneven_filters: tuple[Forms, ...] = ()
    one_stride_filters: tuple[Forms, ...] = ()
    edges_cover_loops: bool = False  # edge trials have all numbers of steps that need no loop
    is_small: Callable[[Any], bool] = resources.is_small

    @property
    def vector_channels(self) -> tuple[str, ...]:
        """For the vectors of a, b and c: the channels of the input or those of the output, of one group."""
        return tuple(_CONTIGUOUS[like] for like in self.tensors.values())

    @property
    def sums_positions(self) -> bool:
        """Whether sums run over the positions of all images, instead of taps and channels."""
        return "outputs" in self.factors.k

    @property
    def summed_channels(self) -> str:
        """The channels that sums run over, if they do not run over positions."""
        return self.factors.k[-1]


class HasDirection(Protocol):
    """A config, complete or partly bound, or a problem."""

    @property
    def direction(self) -> str: ...


def find_kind(subject: HasDirection) -> ConvKind:
    """The kind of a config's kernels, or of the kernels that compute a problem."""
    kind: ConvKind = index_package("tilewright.ops.grouped_conv.kinds")[subject.direction]
    return kind
