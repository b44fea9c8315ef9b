"""The kinds of attention kernels, and the computations of attention problems.

A problem names a computation. One kernel computes it, of the kind with the same name; `backward`, and `forward` with
split keys, take several kernels, one for each stage (`stages`). Each kind is one file in `kinds/`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.cost_model.arithmetic import Number
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.kind import Kind, index_package

if TYPE_CHECKING:
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem
    from tilewright.ops.fmha.step_cost import StepCost
    from tilewright.ops.fmha.traffic import TensorSizes, Traffic

# A wave's matrix operations for one key tile, all of which are unrolled. Kernels with more compile slowly.
SMALL_TILE = 64


def _never(problem: Problem) -> bool:  # noqa: ARG001
    return False


def _keep_inputs(problem: Problem, made: dict[str, Any], *_: object) -> dict[str, Any]:  # noqa: ARG001
    return made


def _list_none(config: Config) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    return iter(())


def _fill_nothing(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    return {}


def _get_queries_and_keys(problem: Problem, queries: Number, keys: Number) -> tuple[Number, Number]:  # noqa: ARG001
    return queries, keys


def _get_m0(tile: Mapping[str, int]) -> int:
    return tile["m0"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Computation:
    """What a problem computes: its tensors, its test inputs, and the reference and tolerance of its results.

    Functions that take arrays are imported on their first call.
    """

    name: str
    doc: str
    number: int  # its position in lists; also a part of the seed of its test inputs
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    appends: bool = False  # tokens to a cache: outputs are changed in place
    lists_pages: bool = False  # of each sequence, one after another, instead of a page table
    is_gradient: bool = False
    has_key_lengths: Callable[[Problem], bool] = _never  # in batch mode
    # Outputs in float64 by name (problem, inputs, arch), and their tolerances (config, problem, inputs, outputs, arch).
    reference: Callable[..., dict[str, Any]]
    tolerance: Callable[..., dict[str, Any]]
    loops_over_keys: bool = False  # the tolerance depends on the kernel's loop over keys
    keeps_wide_results: Callable[[Problem], bool] = _never  # quantised results are clipped only if they are fp8
    # Test inputs: tensors with numbers that use all bits, whether all others are integers, and the last changes to them
    # (problem, inputs, generator, seed, arch). `computed_inputs` are made by these changes.
    wide_inputs: tuple[str, ...] = ("v",)
    integer_inputs: bool = False
    computed_inputs: tuple[str, ...] = ()
    finish_inputs: Callable[..., dict[str, Any]] = _keep_inputs


@dataclass(frozen=True, slots=True)
class Gemm:
    """One GEMM of a work-group in a step: the names of its tile's numbers, and the index of its waves and mma.

    `whole` is the number that its steps along k cover, `a` the type of its first operand.
    """

    m: str
    n: str
    k: str
    index: int
    whole: str
    a: str = "qkv"

    def get_tile(self, tile: Mapping[str, int]) -> Shape:
        return Shape(tile[self.m], tile[self.n], tile[self.k])


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AttentionKind(Kind, Computation):
    """A kind of attention kernel.

    `block` names the numbers of a work-group's tile. `keeps` are the fields of a whole problem that its stage has.
    `launcher` is the class template in launch/<name>.hpp. `profiles` are the integrations that need it.
    """

    fields: tuple[str, ...]
    block: tuple[str, ...]
    pipelines: tuple[str, ...]
    gemms: tuple[Gemm, ...] = ()
    keeps: tuple[str, ...] = ()
    launcher: str
    profiles: tuple[str, ...]
    tile_rows: Callable[[Mapping[str, int]], int] = _get_m0  # queries in one tile
    pads_group_queries: bool = True  # its group mode needs pad_q, if it has this field
    # The cost model: the cost of a step; the rows of one head of a sequence and the extent that work-groups step along
    # (problem, queries, keys), if these are not the queries and keys; the elements of a row; and bytes moved.
    step: Callable[[Config, Arch], StepCost]
    has_scores: bool = False
    splits_keys: bool = False
    get_extents: Callable[[Problem, Number, Number], tuple[Number, Number]] = _get_queries_and_keys
    columns: str = "hdim_v"
    count_bytes: Callable[[TensorSizes], Traffic]
    # Trials: values that only this kind has, and values that depend on others.
    list_trial_values: Callable[[Config], Iterator[dict[str, Any]]] = _list_none
    fill_trial: Callable[[Config, Mapping[str, Any]], dict[str, Any]] = _fill_nothing

    @functools.cached_property
    def gemm_count(self) -> int:
        """The number of triples in waves and mma."""
        return 1 + max((gemm.index for gemm in self.gemms), default=-1)


class HasBlock(Protocol):
    """A config, or a part of one, with a family and the numbers of a work-group's tile."""

    @property
    def family(self) -> str: ...

    @property
    def block(self) -> tuple[int, ...]: ...


def find_kind(config: HasBlock) -> AttentionKind:
    """Return the kind of a config."""
    kind: AttentionKind = index_package("tilewright.ops.fmha.kinds")[config.family]
    return kind


def find_computation(problem: Problem) -> Computation:
    """Return the computation of a problem."""
    from tilewright.ops.fmha.kinds import COMPUTATIONS  # noqa: PLC0415  (kinds use the functions of this module)

    return COMPUTATIONS[problem.family]


def list_computations() -> tuple[Computation, ...]:
    """Return the computations of all problems."""
    from tilewright.ops.fmha.kinds import COMPUTATIONS  # noqa: PLC0415  (kinds use the functions of this module)

    return tuple(COMPUTATIONS.values())


def compute_reference(problem: Problem, given: Mapping[str, Any], arch: Arch) -> dict[str, Any]:
    """Return outputs in float64 by name from inputs by name. Outputs are not rounded to their types."""
    return find_computation(problem).reference(problem, given, arch)


def get_tile(config: HasBlock) -> dict[str, int]:
    """Return the numbers of a config's block by name; empty if their count is not the kind's (rule T207)."""
    labels = find_kind(config).block
    return dict(zip(labels, config.block, strict=True)) if len(labels) == len(config.block) else {}


def query_tile_rows(config: Config) -> int:
    """The number of queries in one tile."""
    return find_kind(config).tile_rows(config.tile)


def split_triples(numbers: tuple[int, ...]) -> tuple[Shape, ...]:
    """Return waves or mma of each GEMM; the last triple is completed with ones."""
    whole = (*numbers, *(1,) * (-len(numbers) % 3))
    return tuple(Shape(*whole[start : start + 3]) for start in range(0, len(whole), 3))


def list_gemm_types(config: Config) -> tuple[tuple[str, str], ...]:
    """Return the operand types of each GEMM of a kind, by the index of its waves and mma."""
    types = DTYPES[config.dtype]
    by_index = {gemm.index: (getattr(types, gemm.a), types.qkv) for gemm in find_kind(config).gemms}
    return tuple(by_index.values())


def matrix_instructions(config: Config, arch: Arch) -> tuple[str, ...]:
    """The matrix instruction of each GEMM; an empty string if the GPU has none."""
    pairs = zip(list_gemm_types(config), split_triples(config.mma), strict=True)
    return tuple(arch.mma_shapes(a, b, "fp32").get(mma, "") for (a, b), mma in pairs)


def is_small(config: Config) -> bool:
    """Whether a wave has few matrix operations for a key tile; all steps of a GEMM are unrolled."""
    kind, tile = find_kind(config), get_tile(config)
    waves, mma = split_triples(config.waves), split_triples(config.mma)
    if not tile or len(waves) != len(mma) or len(waves) != kind.gemm_count:
        return True
    operations = 0
    for gemm in kind.gemms:
        whole = gemm.get_tile(tile)._replace(k=tile[gemm.whole])
        counts = zip(whole, waves[gemm.index], mma[gemm.index], strict=True)
        operations += functools.reduce(int.__mul__, (-(-extent // (count * size)) for extent, count, size in counts))
    return operations <= SMALL_TILE
