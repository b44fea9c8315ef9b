"""Rules about the GEMM of one work-group.

They read only the config attributes that `tilewright.ops.block_gemm` lists, and no field of a single op. Their examples
are changes to GEMM's example config; `Rule.on` replaces them for another op. File names in rules
are relative to ck_tile/ops/.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from tilewright.ops.block_gemm.rules import hardware, pipeline, storage, tiles
from tilewright.ops.rule import Rule, collect_rules

RULES: tuple[Rule, ...] = collect_rules(hardware, tiles, pipeline, storage)


def adapt_rule(shared: Rule, view: Callable[[Any], Any], fixed: Container[str], changes: Mapping[str, Any]) -> Rule:
    """A rule for an op that computes a GEMM: `view` is its config as that of a GEMM, in which fields are `fixed`."""
    reads = tuple(name for name in shared.reads if name not in fixed)
    limits = {name: values for name, values in shared.when.items() if name not in fixed}
    key = shared.group_key
    group = None if key is None else lambda config, arch: key(view(config), arch)
    return shared.on(view, reads=reads, when=limits, group_key=group, **changes)
