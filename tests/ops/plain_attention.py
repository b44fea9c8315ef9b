"""Attention one number after another: slow, and simple enough to be believed."""

from __future__ import annotations

import math
from typing import Any


def sees(row: int, key: int, queries: int, keys: int, mask: str, left: int, right: int, sink: int) -> bool:
    """Whether a query sees a key."""
    if mask == "none":
        return True
    diagonal = row if mask == "top_left" else row + keys - queries
    if right >= 0 and key > diagonal + right:
        return False
    return left < 0 or key >= diagonal - left or key < sink


def attention(q: Any, k: Any, v: Any, scale: float, seen: Any, bias: Any = None, cap: float = 0.0) -> tuple[Any, Any]:
    """The rows of a head's result, and their LSE. `seen` and `bias` are functions of row and key."""
    results, logs = [], []
    for row, query in enumerate(q):
        weights = {}
        for key, each in enumerate(k):
            if not seen(row, key):
                continue
            score = scale * math.fsum(float(a) * float(b) for a, b in zip(query, each, strict=True))
            if bias is not None:
                score += bias(row, key)
            if cap > 0:
                score = cap * math.tanh(score / cap)
            weights[key] = math.exp(score)
        total = math.fsum(weights.values())
        logs.append(math.log(total) if total else -math.inf)
        results.append(
            [
                math.fsum(weight * float(v[key][column]) for key, weight in weights.items()) / total if total else 0.0
                for column in range(len(v[0]) if len(v) else 0)
            ]
        )
    return results, logs
