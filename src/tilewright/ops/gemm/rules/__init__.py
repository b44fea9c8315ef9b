"""The rules of GEMM configs: those of the block GEMM, and GEMM's own.

Codes: A1xx GPU features, T2xx tile sizes, P3xx pipeline and epilogue, R4xx resources. File names in rules are relative
to ck_tile/ops/. Each rule declares what enforces it; `make truth` compares the rules with the compiler.
"""

from __future__ import annotations

from tilewright.ops.block_gemm.rules import RULES as SHARED
from tilewright.ops.gemm.rules import preshuffle, variants
from tilewright.ops.rule import Rule, collect_rules, merge_rules

RULES: tuple[Rule, ...] = merge_rules(SHARED, collect_rules(preshuffle, variants))
