"""Attention in one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.resources.forward import compute_pipeline_lds

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem


def _compute_lds(config: Config, arch: Arch) -> int:
    return compute_pipeline_lds(config, config.pipeline, arch)


def _has_key_lengths(problem: Problem) -> bool:
    """Whether a stage of the problem works on a cache."""
    return problem.paged or problem.num_splits > 0


def _keeps_wide_results(problem: Problem) -> bool:
    return problem.num_splits == 0 and DTYPES[problem.dtype].o != "fp8"


FORWARD = parts.make_attention_kind(
    name="forward",
    doc="attention in one kernel",
    number=0,
    fields=(*parts.ATTENTION_FIELDS, "dropout", "v_layout", "skip_min_seqlen_q"),
    pipelines=("qr", "qr_async", "qr_async_trload", "qr_whole_k", "qs", "v3"),
    outputs=("o", "lse", "randval"),
    has_key_lengths=_has_key_lengths,
    pads_group_queries=False,
    launcher="Forward",
    launchers=parts.list_launchers("forward"),
    profiles=("flash", "pytorch", "aiter"),
    lds_bytes=_compute_lds,
    list_trial_values=parts.list_dropout_forms,
    tolerance=parts.from_tolerance("bound_forward"),
    keeps_wide_results=_keeps_wide_results,
)
