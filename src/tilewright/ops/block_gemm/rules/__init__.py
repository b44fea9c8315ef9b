"""Rules about the GEMM of one work-group.

They read a config as `tilewright.ops.block_gemm` says, and nothing that only one op has. Their examples are those of
GEMM's example config; `lift.lifted` gives them another op's. File names in rules are below ck_tile/ops/.
"""

from __future__ import annotations

from tilewright.ops.block_gemm.rules import hardware, pipeline, storage, tiles
from tilewright.ops.rule import Rule, rules_in

RULES: tuple[Rule, ...] = rules_in(hardware, tiles, pipeline, storage)
