"""Problems that single forward pipelines do not support. Code S616."""

from __future__ import annotations

from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import FORWARD, get_tile
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.rule import Rejection, rule

_V3 = {
    **{"pipeline": "v3", "block": (256, 32, 128, 128, 32, 128)},
    **{"waves": (8, 1, 1, 8, 1, 1), "mma": (32, 32, 16, 32, 32, 16)},
}


@rule(
    "S616",
    "two-tiles-of-keys",
    reads=("family", "pipeline", "block"),
    enforced_by="supports",
    good={**_V3, "problem": {"seqlen_q": 256, "seqlen_k": 128}},
    bad={**_V3, "problem": {"seqlen_q": 256, "seqlen_k": 64}},
    arch="gfx950",
)
def check_key_tile_count(config: Any, problem: Problem, arch: Arch) -> Rejection | None:
    """v3 supports one key tile, or at least three.

    Why: with two it reads the second one from LDS before the copy has finished (the wait is inside
    `if(2 < num_total_loop)` in ck_tile/ops/fmha/pipeline/block_fmha_fwd_v3_pipeline.hpp).

    Fix: use a kernel with another pipeline.
    """
    width = get_tile(config).get("n0", 0) if config.family == FORWARD and config.pipeline == "v3" else 0
    if not width < problem.seqlen_k <= 2 * width:
        return None
    return Rejection(f"{problem.seqlen_k} keys take exactly two tiles of {width}", "pipeline", "qr_async")
