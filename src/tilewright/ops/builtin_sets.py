"""Built-in kernel sets of an op: preselected sets and named spaces to search, each a kernel-set file in its folder.

Every combination of a preselected set is legal on every GPU that the set lists. A named space lists no GPUs: its
members are the combinations that no rule rejects.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tilewright.base.errors import choose
from tilewright.ops.kernel_set import KernelSet, load_kernel_set
from tilewright.ops.op import Op
from tilewright.ops.space import Space


@functools.cache
def load_sets(folder: Path) -> Mapping[str, KernelSet]:
    """Load all kernel-set files of a folder: name → set."""
    return MappingProxyType({s.name: s for s in map(load_kernel_set, sorted(folder.glob("*.toml")))})


def find_space(op: Op, name: str, **overrides: Any) -> Space:
    """A built-in space of an op, with some fields overridden: `dtype="bf16"`.

    A file must bind every required field, so that the space can be searched as it is. Fields that the space's name
    does not imply, such as types and layout, are intended to be overridden.
    """
    known = op.spaces()
    (space,) = known[choose(f"named space of {op.name}", name, known)].spaces
    return Space(space.op, {**space.declared, **overrides})
