"""Attention over parts of the keys, the first stage of a forward problem with `num_splits`; combine merges them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ops.fmha.element_types import FP32_BYTES
from tilewright.ops.fmha.kinds import parts
from tilewright.ops.fmha.resources.forward import (
    SUMS_IN_VECTOR,
    compute_pipeline_lds,
    count_packed_elements,
    count_v_buffer_elements,
    get_sizes,
    loaded_hdim,
    v_pixels,
)
from tilewright.ops.fmha.step_cost import estimate_attention_step
from tilewright.ops.fmha.traffic import TensorSizes, Traffic

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.fmha.config import Config

# Vector instructions of a score in addition to those of forward kernels; counted as in `step_cost`.
_INSTRUCTIONS = 3.0


def _compute_lds(config: Config, arch: Arch) -> int:
    if config.pipeline == "qr_nwarp_sshuffle":
        return _compute_nwarp_sshuffle_lds(config, arch)
    return compute_pipeline_lds(config, "qr", arch)


def _compute_nwarp_sshuffle_lds(config: Config, arch: Arch) -> int:
    """fmha/pipeline/block_fmha_fwd_splitkv_pipeline_nwarp_sshuffle_qr_ks_vs_default_policy.hpp, GetSmemSize.

    Queries and keys share one buffer, values and scores another.
    """
    facts = get_sizes(config, arch)
    lengths_fit = facts.tile and len(facts.waves) == 6 and len(facts.mma) == 6
    if not lengths_fit or facts.threads == 0 or v_pixels(facts) == 0:
        return 0
    tile, width = facts.tile, loaded_hdim(facts.tile["hdim_q"])
    pack = min(tile["m0"] * width // facts.threads, facts.pack) or 1
    queries = count_packed_elements(tile["m0"], width, pack) * facts.size
    keys = count_packed_elements(tile["n0"], tile["k0"], facts.pack) * facts.size
    scores = count_packed_elements(tile["m0"], tile["n0"], SUMS_IN_VECTOR) * FP32_BYTES
    return max(queries, keys) + max(count_v_buffer_elements(facts, 1) * facts.size, scores)


def _count_bytes(sizes: TensorSizes) -> Traffic:
    return sizes.operands, sizes.parts + sizes.random_numbers


def _list_trial_values(config: Config) -> Iterator[dict[str, Any]]:
    yield from parts.list_split_counts(config)
    yield from parts.list_page_sizes(config)


def _fill_trial(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"num_splits": 2 if config.uneven_splits else 1, **parts.fill_page_size(config, values)}


SPLITKV = parts.make_attention_kind(
    name="splitkv",
    doc="attention over parts of the keys; combine merges them",
    number=2,
    fields=(
        *(name for name in parts.ATTENTION_FIELDS if name != "lse"),
        *("v_layout", "paged", "uneven_splits", "merge_heads"),
    ),
    pipelines=("qr", "qr_nwarp_sshuffle"),
    keeps=(*parts.SIZES, *parts.SCORES, *parts.CACHE, *parts.QUANTISED, "num_splits"),
    outputs=("o_acc", "lse_acc"),
    has_key_lengths=parts.has_always,
    launcher="SplitKv",
    launchers=parts.list_launchers("cache", "splitkv"),
    profiles=("flash", "aiter"),
    lds_bytes=_compute_lds,
    step=functools.partial(estimate_attention_step, more=_INSTRUCTIONS),
    splits_keys=True,
    count_bytes=_count_bytes,
    list_trial_values=_list_trial_values,
    fill_trial=_fill_trial,
    reference=parts.from_reference("compute_splitkv"),
    tolerance=parts.from_tolerance("bound_splitkv"),
)
