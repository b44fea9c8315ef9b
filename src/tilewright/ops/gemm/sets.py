"""What Tilewright ships for GEMM: preselected kernel sets and named spaces to search.

Both are kernel-set files. Every combination of a preselected set is legal on every GPU it names; a
named space names no GPU, its members are what the rules leave.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tilewright.base.errors import choose
from tilewright.ops.kernel_set import KernelSet, load_kernel_set
from tilewright.ops.space import Space

_HERE = Path(__file__).parent
PRESELECTED = _HERE / "preselected"
SPACES = _HERE / "spaces"


@functools.cache
def preselected() -> Mapping[str, KernelSet]:
    """Name → set, for every file in `preselected/`."""
    return MappingProxyType({s.name: s for s in map(load_kernel_set, _files(PRESELECTED))})


@functools.cache
def spaces() -> Mapping[str, KernelSet]:
    """Name → space to search, for every file in `spaces/`."""
    return MappingProxyType({path.stem: load_kernel_set(path) for path in _files(SPACES)})


def named_space(name: str, **overrides: Any) -> Space:
    """A shipped space, with the overridden fields in place of its own: `dtype="bf16"`.

    A file must bind every required field, so that it can be searched as it is; what its name does
    not promise (types and layout) is there to be overridden.
    """
    (space,) = spaces()[choose("named space of gemm", name, spaces())].spaces
    return Space(space.op, {**space.declared, **overrides})


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))
