"""Attention over pages, listed for each sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.resources.forward import compute_pipeline_lds

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem


def _compute_lds(config: Config, arch: Arch) -> int:
    return compute_pipeline_lds(config, "qr_async", arch)


def _has_table(problem: Problem) -> bool:
    """Whether lengths of sequences come with a table of their pages; a list has them."""
    return problem.page_lookup == "table"


def _fill_trial(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"page_size": config.page_size} if config.paged else {}


BATCH_PREFILL = parts.make_attention_kind(
    name="batch_prefill",
    doc="attention over pages, listed for each sequence",
    number=5,
    fields=(*parts.ATTENTION_FIELDS, "dropout", "paged", "page_size", "kv_layout", "page_lookup"),
    pipelines=("qr_async",),
    inputs=(
        *parts.ATTENTION_INPUTS,
        "seqstart_q",
        "page_starts",
        "page_list",
        "last_page_lens",
        "seqlens_k",
        "page_table",
        "sink_logits",
    ),
    outputs=("o", "lse", "randval"),
    lists_pages=True,
    has_key_lengths=_has_table,
    launcher="BatchPrefill",
    launchers=parts.list_launchers("cache", "batch_prefill"),
    profiles=("aiter",),
    lds_bytes=_compute_lds,
    list_trial_values=parts.list_dropout_forms,
    fill_trial=_fill_trial,
)
