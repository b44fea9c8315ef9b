"""Batched GEMM: many products of one size in one launch. Rules P322 and P323."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.resources import SINGLE_LDS
from tilewright.ops.block_gemm.rules.examples import COMPV5
from tilewright.ops.gemm.kind import GemmKind
from tilewright.ops.gemm.source import make_context
from tilewright.ops.rule import Rejection, rule
from tilewright.ops.rule_forms import one_of

if TYPE_CHECKING:
    from tilewright.ops.gemm.config import Config

check_buffers = one_of(
    "P322",
    "batched-buffers",
    "A batched kernel has one LDS buffer.",
    {"pipeline": SINGLE_LDS},
    "{value} needs two LDS buffers, a batched kernel has one",
    nearest="compv3",
    enforced_by="compiler",
    good={"variant": "batched"},
    bad={"variant": "batched", "pipeline": "compv4"},
    why="CK Tile's batched kernel passes a single buffer, which the pipelines with two do not accept.",
    fix="use mem, compv3, compv5 or compv6.",
).limit_generations(until="2026-06")


@rule(
    "P323",
    "compv5-batched",
    reads=(),
    when={"pipeline": "compv5"},
    enforced_by="device",
    good={**COMPV5, "block": (64, 64, 32)},
    bad={**COMPV5, "block": (64, 64, 32), "variant": "batched"},
)
def check_compv5(config: Config, arch: Arch) -> Rejection | None:
    """compv5 has no batched form.

    Why: only the first of its two waves may store C. CK Tile's batched kernel does not pass this to the product
    (batched_gemm_kernel.hpp calls RunGemm with its default), so both waves store, and the second overwrites C with
    zeros.

    Fix: use another pipeline, or the standard variant for each product.
    """
    return Rejection("both waves of a batched compv5 kernel store C", "pipeline", "compv3")


BATCHED = GemmKind(
    name="batched",
    doc="many products of one size",
    fields=("pad_m", "pad_n", "pad_k", "split_k", "vector", "blocks_per_cu"),
    rules=(check_buffers, check_compv5),
    context=make_context,
    kernel_template="BatchedGemmKernel",
    batched=True,
)
