"""The rules of convolution configs.

Codes: A1xx GPU features, T2xx tile sizes, P3xx pipeline, epilogue and convolution features, R4xx resources. They equal
those of GEMM's rules with the same meaning. File names in rules are relative to ck_tile/ops/. Each rule declares what
enforces it; `make truth` compares the rules with the compiler.
"""

from __future__ import annotations

from tilewright.ops.block_gemm.rule_reuse import merge_rules
from tilewright.ops.grouped_conv.rules import features
from tilewright.ops.grouped_conv.rules.shared import SHARED
from tilewright.ops.rule import Rule, collect_rules

RULES: tuple[Rule, ...] = merge_rules(SHARED, collect_rules(features))
