"""The rules of GEMM configs.

Codes: A1xx what the GPU has, T2xx tile arithmetic, P3xx pipeline and epilogue, R4xx resources. File names in
rules are below ck_tile/ops/. Each rule says who enforces it; `make truth` compares them with the compiler.
"""

from __future__ import annotations

from tilewright.ops.gemm.rules import epilogue, hardware, pipeline, tiles
from tilewright.ops.rule import Rule, rules_in

RULES: tuple[Rule, ...] = rules_in(hardware, tiles, pipeline, epilogue)
