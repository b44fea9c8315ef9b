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

from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.kernel_set import KernelSet, load_kernel_set
from tilewright.ops.space import Space

_HERE = Path(__file__).parent
PRESELECTED = _HERE / "preselected"
SPACES = _HERE / "spaces"


@functools.cache
def preselected() -> Mapping[str, KernelSet]:
    """Name → set, for every file in `preselected/`."""
    return MappingProxyType({s.name: s for s in map(load_kernel_set, _files(PRESELECTED))})


def space_names() -> tuple[str, ...]:
    """Names that `named_space` knows."""
    return tuple(path.stem for path in _files(SPACES))


def named_space(name: str, **overrides: Any) -> Space:
    """A shipped space, with the overridden fields in place of its own: `dtype="bf16"`.

    A file must bind every required field, so that it can be searched as it is; what its name does
    not promise (types and layout) is there to be overridden.
    """
    path = SPACES / f"{choose('named space of gemm', name, space_names())}.toml"
    spaces = load_kernel_set(path).spaces
    if len(spaces) != 1:
        raise InvalidValueError(f"{path} has {len(spaces)} spaces, a named space has 1")
    return Space(spaces[0].op, {**spaces[0].declared, **overrides})


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))
