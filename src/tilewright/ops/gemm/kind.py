"""The facts in which GEMM's variants differ. Each variant is one file in `kinds/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.execution import Preparation
from tilewright.ops.kind import Kind, index_package

if TYPE_CHECKING:
    from tilewright.ops.gemm.config import Config


def prepare_nothing(config: Config) -> tuple[Preparation, ...]:  # noqa: ARG001
    """For kernels that read their inputs as they are."""
    return ()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class GemmKind(Kind):
    """A variant of GEMM kernels, an instance of CK Tile's `kernel_template`.

    A `batched` kernel computes several products of one size. With `reordered_b`, B is in memory in the order in which
    lanes load it: in complete mma tiles, without lines. `preparations` are the changes to inputs that a kernel needs.
    """

    kernel_template: str
    batched: bool = False
    reordered_b: bool = False
    preparations: Callable[[Config], tuple[Preparation, ...]] = prepare_nothing
    lds_bytes: Callable[[Any, Arch], int] = resources.lds_bytes
    matrix_instructions: Callable[[Any, Arch], tuple[str, ...]] = resources.matrix_instructions
    is_small: Callable[[Any], bool] = resources.is_small


class HasVariant(Protocol):
    """A config, complete or partly bound."""

    @property
    def variant(self) -> str: ...


def find_kind(config: HasVariant) -> GemmKind:
    """The kind of a config's kernels."""
    kind: GemmKind = index_package("tilewright.ops.gemm.kinds")[config.variant]
    return kind
