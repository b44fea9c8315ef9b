"""Rules about the GEMM of one work-group.

They read only the config attributes that `tilewright.ops.block_gemm` lists, and no field of a single op. Their examples
are changes to GEMM's example config; `Rule.on` replaces them for another op. File names in rules
are relative to ck_tile/ops/.
"""

from __future__ import annotations

from tilewright.ops.block_gemm.rules import hardware, pipeline, storage, tiles
from tilewright.ops.rule import Rule, collect_rules

RULES: tuple[Rule, ...] = collect_rules(hardware, tiles, pipeline, storage)
