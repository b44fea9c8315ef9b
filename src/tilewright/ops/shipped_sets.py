"""What ships with an op: preselected kernel sets and named spaces to search, each a kernel-set file in its folder.

Every combination of a preselected set is legal on every GPU it names. A named space names no GPU: its members are
what the rules leave.
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
def sets_in(folder: Path) -> Mapping[str, KernelSet]:
    """Name → set, for every kernel-set file of a folder."""
    return MappingProxyType({s.name: s for s in map(load_kernel_set, sorted(folder.glob("*.toml")))})


def named_space(op: Op, name: str, **overrides: Any) -> Space:
    """A space that ships with an op, with the overridden fields in place of its own: `dtype="bf16"`.

    A file must bind every required field, so that it can be searched as it is; what its name does
    not promise (types and layout, say) is there to be overridden.
    """
    known = op.spaces()
    (space,) = known[choose(f"named space of {op.name}", name, known)].spaces
    return Space(space.op, {**space.declared, **overrides})
