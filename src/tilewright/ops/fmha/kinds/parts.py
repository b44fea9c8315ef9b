"""Parts that several kinds have in common: names of fields, tensors and tile numbers, and functions of a module."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ops.execution import import_on_call
from tilewright.ops.fmha.kind import AttentionKind, Gemm, is_small, matrix_instructions
from tilewright.ops.fmha.source import make_context
from tilewright.ops.fmha.step_cost import estimate_attention_step
from tilewright.ops.fmha.traffic import count_attention_bytes

if TYPE_CHECKING:
    from tilewright.ops.fmha.config import Config
    from tilewright.ops.fmha.problem import Problem

# Optional config fields of kernels that compute attention.
ATTENTION_FIELDS = (
    *("waves", "mma", "pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v", "mask_form", "sink", "bias", "lse", "soft_cap"),
    *("static_quant", "blocks_per_cu"),
)
# Tensors. A problem may lack some of them: see `tensors.list_tensors`.
ATTENTION_INPUTS = ("q", "k", "v", "bias")
LENGTHS = ("seqstart_q", "seqstart_k", "seqlens_k", "page_table")

# Inputs of gradients that a forward pass has computed, or dot_do_o from them.
FORWARD_RESULTS = ("o", "lse", "d")
# The gradient pipeline in which one work-group processes all keys of a head, and has all queries in one tile.
WHOLE_HEAD = "trload_qr_qtr_dor"

# Problem fields that a stage keeps.
SIZES = (
    *("mode", "dtype", "batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "total_q", "total_k"),
    *("hdim_q", "hdim_v", "layout"),
)
SCORES = ("v_layout", "mask", "window_left", "window_right", "sink", "bias", "scale", "logits_cap")
CACHE = ("page_size", "pages")
QUANTISED = ("static_quant", "scale_p", "scale_o")
DROPOUT = ("p_drop", "drop_seed", "drop_offset")

_PACKAGE = "tilewright.ops.fmha"
from_inputs = functools.partial(import_on_call, f"{_PACKAGE}.inputs")
from_reference = functools.partial(import_on_call, f"{_PACKAGE}.reference_forward")
from_reference_backward = functools.partial(import_on_call, f"{_PACKAGE}.reference_backward")
from_tolerance = functools.partial(import_on_call, f"{_PACKAGE}.tolerance")


def list_launchers(*names: str) -> tuple[str, ...]:
    """Return the include names of files in launch/; a kind's own launcher is the last one."""
    return tuple(f"tilewright_fmha_{name}.hpp" for name in names)


def has_always(problem: Problem) -> bool:
    """For computations over a cache, whose sequences have different numbers of keys."""
    return True


def list_page_sizes(config: Config) -> Iterator[dict[str, Any]]:
    """Yield pages of two tiles; other trials have pages of one."""
    if config.paged:
        yield {"page_size": 2 * config.tile["n0"]}


def fill_page_size(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return pages of one tile."""
    return {"page_size": config.tile["n0"]} if config.paged else {}


def list_split_counts(config: Config) -> Iterator[dict[str, Any]]:
    """Yield numbers of parts."""
    yield from ({"num_splits": count} for count in (3, 1, 7, 8, 5))


def list_dropout_forms(config: Config) -> Iterator[dict[str, Any]]:
    """Yield stored random numbers, and no dropout by a kernel that has it."""
    if config.dropout:
        yield {"store_randval": True}
        yield {"p_drop": 0.0}


def fill_dq_parts(config: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the partial sums of dq: one for each key tile if they are added in a fixed order."""
    if not config.deterministic or config.pipeline == WHOLE_HEAD:
        return {}
    return {"dq_parts": -(-values["seqlen_k"] // config.tile["n0"])}


# A kind of kernel, and one that computes attention: S = Q Kᵀ, a softmax, and O = P V.
make_kind = functools.partial(AttentionKind, context=make_context)
make_attention_kind = functools.partial(
    make_kind,
    block=("m0", "n0", "k0", "n1", "k1", "hdim_q"),
    gemms=(Gemm("m0", "n0", "k0", 0, "hdim_q"), Gemm("m0", "n1", "k1", 1, "n0", a="p")),
    inputs=(*ATTENTION_INPUTS, *LENGTHS),
    outputs=("o", "lse"),
    matrix_instructions=matrix_instructions,
    is_small=is_small,
    step=estimate_attention_step,
    has_scores=True,
    count_bytes=count_attention_bytes,
    finish_inputs=from_inputs("add_dominant_keys"),
    reference=from_reference("compute_forward"),
    tolerance=from_tolerance("bound_attention"),
    loops_over_keys=True,
)
