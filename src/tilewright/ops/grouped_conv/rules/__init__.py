"""The rules of convolution configs.

Codes: A1xx what the GPU has, T2xx tile arithmetic, P3xx pipeline, epilogue and form, R4xx resources: those of a GEMM
where they mean the same. File names in rules are below ck_tile/ops/. Each rule says who enforces it; `make truth`
compares them with the compiler.
"""

from __future__ import annotations

from tilewright.ops.block_gemm.lift import joined
from tilewright.ops.grouped_conv.rules import forms
from tilewright.ops.grouped_conv.rules.shared import SHARED
from tilewright.ops.rule import Rule, rules_in

RULES: tuple[Rule, ...] = joined(SHARED, rules_in(forms))
