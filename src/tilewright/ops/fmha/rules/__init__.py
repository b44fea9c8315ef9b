"""The rules of attention configs.

Codes: A1xx GPU features, T2xx fields and tile arithmetic of all families, R4xx resources, P4xx the pipelines of a
family: forward from P401 and P480, over caches from P430, gradients from P460. File names in rules are below
ck_tile/ops/. Each rule has a field `enforced_by`; `make truth` compares the rules with the compiler.
"""

from __future__ import annotations

from tilewright.ops.fmha.rules import (
    all_families,
    backward,
    backward_tiles,
    cache_stages,
    caches,
    forward,
    forward_gfx950,
    forward_tiles,
    unused_fields,
)
from tilewright.ops.rule import Rule, collect_rules

RULES: tuple[Rule, ...] = collect_rules(
    all_families,
    unused_fields,
    forward,
    forward_tiles,
    forward_gfx950,
    caches,
    cache_stages,
    backward,
    backward_tiles,
)
