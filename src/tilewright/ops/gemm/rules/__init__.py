"""The rules of GEMM configs: those of the block GEMM, GEMM's own, and those of single variants (`kinds`).

Codes: A1xx GPU features, T2xx tile sizes, P3xx pipeline and epilogue, R4xx resources. File names in rules are relative
to ck_tile/ops/. Each rule declares what enforces it; `make truth` compares the rules with the compiler.
"""

from __future__ import annotations

from tilewright.ops.block_gemm.rules import RULES as BLOCK_GEMM_RULES
from tilewright.ops.gemm.kinds import KINDS
from tilewright.ops.gemm.rules import changed, variants
from tilewright.ops.kind import combine_rules
from tilewright.ops.rule import Rule, collect_rules, merge_rules

_OF_ALL_KINDS = merge_rules(BLOCK_GEMM_RULES, collect_rules(changed, variants))
RULES: tuple[Rule, ...] = combine_rules(_OF_ALL_KINDS, {kind.name: kind.rules for kind in KINDS}, "variant")
