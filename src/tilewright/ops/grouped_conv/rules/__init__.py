"""The rules of convolution configs: those of the block GEMM, of all directions, and of single ones (`kinds`).

Codes: A1xx GPU features, T2xx tile sizes, P3xx pipeline, epilogue and convolution features, R4xx resources. They equal
those of GEMM's rules with the same meaning. File names in rules are relative to ck_tile/ops/. Each rule declares what
enforces it; `make truth` compares the rules with the compiler.

Rules of ops/block_gemm are applied to the GEMM inside a convolution: vectors are always fixed, the layout follows from
the direction, and the stored type from the type and the stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ops.block_gemm.rules import RULES as BLOCK_GEMM_RULES
from tilewright.ops.block_gemm.rules.examples import COMPV5, FP8
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm
from tilewright.ops.grouped_conv.kinds import KINDS
from tilewright.ops.grouped_conv.rules import features
from tilewright.ops.kind import combine_rules
from tilewright.ops.rule import Rule, collect_rules

_READS = {"layout": ("direction",), "dtype_c": ("dtype_c", "two_stage")}
_ASYNC = {"pipeline": "comp_async", "epilogue": "default", "block": (128, 128, 64), "vector": (8, 8, 1)}
_SPLIT = {"direction": BACKWARD_WEIGHT, "vector": (8, 8, 8), "split_k": True}
_BF16 = {"dtype_a": "bf16", "dtype_b": "bf16", "dtype_c": "bf16"}
# Examples for rules whose own examples have fields that convolutions do not have, or need other vectors.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "A103": {
        "good": {"direction": BACKWARD_DATA, "mma": (32, 32, 16)},
        "bad": {**FP8, "direction": BACKWARD_DATA, "mma": (32, 32, 32), "vector": (16, 16, 8)},
    },
    "T203": {
        "good": {"block": (128, 128, 32)},
        "bad": {"direction": BACKWARD_DATA, "block": (128, 96, 32), "waves": (4, 1, 1)},
    },
    "T205": {
        "good": {"direction": BACKWARD_DATA, "vector": (4, 8, 4)},
        "bad": {"direction": BACKWARD_DATA, "vector": (4, 4, 4)},
    },
    "P315": {
        "good": {"direction": BACKWARD_DATA},
        "bad": {**COMPV5, "direction": BACKWARD_DATA},
    },
    "P316": {"good": _ASYNC, "bad": {**_ASYNC, "vector": (4, 8, 1)}},
    "P318": {"good": _ASYNC, "bad": {**_ASYNC, "epilogue": "cshuffle", "vector": (8, 8, 8)}},
    "P321": {"good": _SPLIT, "bad": {**_SPLIT, **_BF16}},
}
FIXES = {
    "A103": "use another mma, or another direction.",
    "P311": "use powers of two.",
    "P315": "use another pipeline for gradients.",
}


def _adapt_rule(rule: Rule) -> Rule:
    reads = tuple(dict.fromkeys(field for name in rule.reads for field in _READS.get(name, (name,))))
    changes: dict[str, Any] = {**EXAMPLES.get(rule.code, {}), "fix": FIXES.get(rule.code, rule.fix)}
    return rule.on(ImplicitGemm, reads=reads, when=rule.when, **changes)


SHARED: tuple[Rule, ...] = tuple(_adapt_rule(rule) for rule in BLOCK_GEMM_RULES)
_OF_ALL_KINDS = (*SHARED, *collect_rules(features))
RULES: tuple[Rule, ...] = combine_rules(_OF_ALL_KINDS, {kind.name: kind.rules for kind in KINDS}, "direction")
