"""Attention over a cache of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.resources.forward import compute_pipeline_lds

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.fmha.config import Config


def _compute_lds(config: Config, arch: Arch) -> int:
    """The policy is that of the forward pipeline qr."""
    return compute_pipeline_lds(config, "qr", arch)


PAGEDKV = parts.make_attention_kind(
    name="pagedkv",
    doc="attention over a cache of pages",
    number=1,
    fields=(*parts.ATTENTION_FIELDS, "v_layout", "paged", "skip_min_seqlen_q"),
    pipelines=("qr_pagedkv",),
    keeps=(*parts.SIZES, *parts.SCORES, *parts.CACHE, *parts.QUANTISED, "lse", "min_seqlen_q"),
    has_key_lengths=parts.has_always,
    launcher="PagedKv",
    launchers=parts.list_launchers("cache", "pagedkv"),
    profiles=("flash",),
    lds_bytes=_compute_lds,
    list_trial_values=parts.list_page_sizes,
    fill_trial=parts.fill_page_size,
)
