"""Problems with sinks that kernels cannot compute: S619 to S621. Every rule is on batch_prefill, which alone has sinks.

File names are below ck_tile/ops/fmha/.
"""

from __future__ import annotations

from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.rules.examples import PREFILL
from tilewright.ops.fmha.rules.tile_rules import TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import examples, since, until

_NEWER = "2026-06"
_PREFILL = TileRules({"family": "batch_prefill"})
_TOKENS: dict[str, Any] = {**PREFILL, "mode": "group"}
_TOKENS_PROBLEM: dict[str, Any] = {
    **{"family": "batch_prefill", "mode": "group", "batch": 2, "heads": 4, "page_size": 1},
    **{"seqlen_q": 128, "total_q": 200, "total_k": 200},
}
_SINKS_PROBLEM: dict[str, Any] = {**_TOKENS_PROBLEM, "sink_logits": True}
_ALIBI: dict[str, Any] = {"bias": "alibi", "mask_form": "any"}
_ALIBI_PROBLEM: dict[str, Any] = {"bias": "alibi", "mask": "bottom_right"}


@until(_NEWER)
@examples(good={**_TOKENS, "problem": _TOKENS_PROBLEM}, bad={**_TOKENS, "problem": _SINKS_PROBLEM})
@_PREFILL.rule("S619", "sinks-of-newer-headers", "supports")
def check_sinks(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """sink_logits need CK Tile's headers since 2026-06.

    Why: earlier kernels have no argument for them.
    Fix: use newer headers (TILEWRIGHT_CK)."""
    if not problem.sink_logits:
        return None
    return Rejection(f"sink_logits need CK Tile's headers since 2026-06, not {arch.ck.generation}", "family")


@since(_NEWER)
@examples(
    good={**_TOKENS, "soft_cap": True, "problem": {**_TOKENS_PROBLEM, "logits_cap": 30.0}},
    bad={**_TOKENS, "soft_cap": True, "problem": {**_SINKS_PROBLEM, "logits_cap": 30.0}},
)
@_PREFILL.rule("S620", "sinks-with-cap", "supports", when={"soft_cap": True})
def check_sinks_with_cap(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """sink_logits are not supported with a cap of the scores.

    Why: the kernel divides a sink by the scale, although capped scores have it already (`set_tile(m, sink_v * LOG2E)`
    in pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async.hpp).
    Fix: leave the cap or the sinks out."""
    if not problem.sink_logits:
        return None
    return Rejection(f"sink_logits are not supported with a cap of {problem.logits_cap:g}", "soft_cap", False)


@since(_NEWER)
@examples(
    good={**_TOKENS, **_ALIBI, "problem": {**_TOKENS_PROBLEM, **_ALIBI_PROBLEM}},
    bad={**_TOKENS, **_ALIBI, "problem": {**_SINKS_PROBLEM, **_ALIBI_PROBLEM}},
)
@_PREFILL.rule("S621", "sinks-with-alibi", "supports", when={"bias": "alibi"})
def check_sinks_with_alibi(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """sink_logits are not supported with ALiBi and a causal mask without a window.

    Why: there the kernel multiplies slopes by the index of a key instead of its distance. In a row both differ by a
    constant, which all keys have in common, but not the sink.
    Fix: use another bias, or a window as long as the keys."""
    causal = problem.mask != "none" and problem.window_left < 0 and problem.window_right == 0
    if not causal or not problem.sink_logits:
        return None
    return Rejection(f"sink_logits are not supported with {config.bias} and a causal mask", "bias", "none")
