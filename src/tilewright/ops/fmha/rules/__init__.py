"""The rules of attention configs.

Codes: A1xx GPU features, T2xx fields and tile arithmetic of all kinds, R4xx resources, P4xx the pipelines of a kind:
forward from P401 and P480, over caches from P430, gradients from P460, with newer CK headers only from P490. File names
in rules are below ck_tile/ops/. Each rule has a field `enforced_by`; `make truth` compares the rules with the compiler.
"""

from __future__ import annotations

from tilewright.ops.fmha.kinds import KINDS
from tilewright.ops.fmha.rules import all_kinds, backward, caches, forward, forward_tiles, generations, pages
from tilewright.ops.kind import combine_rules
from tilewright.ops.rule import Rule, collect_rules

_SHARED = collect_rules(all_kinds, forward, forward_tiles, caches, backward, generations, pages)
RULES: tuple[Rule, ...] = combine_rules(_SHARED, {kind.name: kind.rules for kind in KINDS}, "family")
