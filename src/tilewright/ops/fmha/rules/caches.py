"""Kernels over caches, pagedkv, batch_prefill, splitkv and appendkv: P430 to P435, P440, P441, P444 and P445.

splitkv, pagedkv and batch_prefill are forward kernels that find their keys in another way. They have the limitations of
the pipelines qr and qr_async: P430 to P435 apply the forward rules. File names are below ck_tile/ops/fmha/.
"""

from __future__ import annotations

import functools

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_kind
from tilewright.ops.fmha.rules import forward, forward_tiles
from tilewright.ops.fmha.rules.examples import APPEND, MMA_16, PAGED, PREFILL, SPLIT
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection, Rule
from tilewright.ops.rule_forms import Overlay, examples, join_rules

# Pipelines that keep scores in registers, as forward kernels do, and the one that sends them through LDS.
_IN_REGISTERS = ("qr", "qr_pagedkv", "qr_async")
_THROUGH_LDS = "qr_nwarp_sshuffle"
# pipeline/block_fmha_pipeline_problem.hpp, BlockFmhaFwdAppendKVPipelineProblem: threads of a work-group.
_APPEND_THREADS = 256
_FIX = "follow the fix of the forward rule that the message names"


def _see_as_forward(config: Config) -> Overlay | None:
    """The forward kernel with the same policy."""
    if config.pipeline not in find_kind(config).pipelines:
        return None
    return Overlay(config, family="forward", pipeline="qr_async" if config.pipeline == "qr_async" else "qr")


def _name_forward_rule(code: str, fault: Rejection, _: int) -> Rejection:
    nearest = None if fault.field in ("family", "pipeline") else fault.nearest
    return Rejection(f"by the rule {code} of forward kernels, {fault.message}", fault.field, nearest)


def _apply(*rules: Rule, pipelines: tuple[str, ...] = (*_IN_REGISTERS, _THROUGH_LDS)) -> list[Rule]:
    """Forward rules for kernels over caches with one of these pipelines."""
    limits = {"family": ("splitkv", "pagedkv", "batch_prefill"), "pipeline": pipelines}
    return [
        each.on(_see_as_forward, when=limits, report=functools.partial(_name_forward_rule, each.code)) for each in rules
    ]


check_forward_tile = join_rules(
    "P430",
    "tile-of-no-forward",
    "splitkv, pagedkv and batch_prefill support only the tiles of the forward pipelines qr and qr_async.",
    _apply(
        forward_tiles.check_head_size,
        forward_tiles.check_head_steps,
        forward_tiles.check_key_steps,
        forward_tiles.check_step_count,
        forward_tiles.check_eight_bit_mma,
        forward_tiles.check_key_sharing,
        forward_tiles.check_async_copies,
        forward_tiles.check_buffer_order,
        forward_tiles.check_value_sharing,
    ),
    enforced_by="compiler",
    good={**SPLIT, "block": (128, 128, 64, 128, 32, 128)},
    bad={**SPLIT, "block": (128, 128, 128, 128, 32, 128)},
    why="their policies derive from the same one (pipeline/block_fmha_pipeline_qx_ks_vs_custom_policy.hpp), and their "
    "pipelines have the same assertions.",
    fix=f"{_FIX}.",
)
check_forward_layout = join_rules(
    "P431",
    "layout-of-no-forward",
    "As in a forward kernel, the result layout of the first GEMM must be the operand layout of the second.",
    _apply(forward_tiles.check_waves_along_n, forward_tiles.check_register_layout, pipelines=_IN_REGISTERS),
    enforced_by="device",
    good={**PAGED, "mma": (32, 32, 8, 32, 32, 16)},
    bad={**PAGED, "mma": (32, 32, 16, 32, 32, 8)},
    why="probabilities stay in registers. Only qr_nwarp_sshuffle sends scores through LDS.",
    fix=f"{_FIX}, or use qr_nwarp_sshuffle for waves along n.",
)
check_forward_gpu = join_rules(
    "P432",
    "gpu-of-no-forward",
    "The GPU must support a forward kernel with the same policy.",
    _apply(forward.check_async_copy, forward.check_lane_layout, pipelines=_IN_REGISTERS),  # for the other, P446
    enforced_by="compiler",
    good=APPEND,
    bad={**PAGED, "mma": MMA_16},
    arch="gfx1100",
    why="both need the same instructions and the same operand layout.",
    fix=f"{_FIX}.",
)
check_forward_features = join_rules(
    "P433",
    "feature-of-no-forward",
    "The combinations of pads, bias and cap are limited as in a forward kernel.",
    _apply(forward.check_required_pads, forward.check_capped_bias),
    enforced_by="compiler",
    good={**SPLIT, "soft_cap": True},
    bad={**SPLIT, "soft_cap": True, "bias": "alibi"},
    why="the pipelines have the same assertions: batch_prefill always pads queries and heads, and no pipeline caps "
    "scores with a bias.",
    fix=f"{_FIX}.",
)
check_forward_fields = join_rules(
    "P434",
    "words-of-no-forward",
    "Head pads and sinks have the same values as in a forward kernel, so that each kernel has one name.",
    _apply(forward.check_head_padding, forward.check_sink_window),
    enforced_by="tilewright",
    good={**PAGED, "pad_hdim_q": 1},
    bad={**PAGED, "pad_hdim_q": 8},
    why="CK Tile only distinguishes padded and not padded heads; the allowed head sizes follow from the pipeline.",
    fix=f"{_FIX}.",
)
check_forward_skip_and_dropout = join_rules(
    "P435",
    "unseen-as-in-forward",
    "As in a forward kernel, sequences can be skipped only in group mode, and dropout needs enough LDS.",
    _apply(forward.check_skip_mode, forward.check_dropout_lds),
    enforced_by="tilewright",
    good={**PAGED, "mode": "group", "skip_min_seqlen_q": True},
    bad={**PAGED, "skip_min_seqlen_q": True},
    why="in batch mode the kernel does not get the limit (kernel/fmha_fwd_pagedkv_kernel.hpp), and random numbers use "
    "the same LDS.",
    fix=f"{_FIX}.",
)

_CACHES = TileRules({"family": ("splitkv", "pagedkv", "appendkv", "batch_prefill")}, PAGED)
_APPEND = TileRules({"family": "appendkv"}, APPEND)


@examples(good={"pad_k": False, "mask_form": "any"}, bad={"pad_k": False})
@_CACHES.rule(
    "P440", "lengths-not-cut", "supports", ("mask_form", "uneven_splits", "bias", "v_layout"), when={"pad_k": False}
)
def check_key_padding(config: Config, arch: Arch) -> Rejection | None:
    """pagedkv needs pad_k or a mask, splitkv pad_k, a mask or uneven_splits; others over a cache need pad_k.

    Why: the number of keys in each sequence of a cache is known only on the GPU, so the last tile must always be cut:
    by pad_k, by the mask, or by uneven_splits. Rows along the keys, as in an elementwise bias and in transposed values,
    would be read and written in vectors beyond their end. batch_prefill reads pages beyond the end with any mask.
    Fix: set pad_k, so that the kernel checks where keys end.
    """
    kind = find_kind(config)
    if config.bias == "elementwise" or config.v_layout == "col":
        rows = "the bias" if config.bias == "elementwise" else "transposed values"
        return Rejection(f"rows of {rows} may end inside a tile, but pad_k is False", "pad_k", True)
    masked = config.mask_form != "none" and not kind.lists_pages
    uneven = config.uneven_splits and kind.has_field("uneven_splits")
    if masked or uneven or kind.appends:
        return None
    return Rejection("sequences of a cache may end inside a tile, but pad_k is False", "pad_k", True)


@examples(bad={"paged": False})
@TileRules({"family": "batch_prefill"}, PREFILL).rule("P441", "no-pages", "tilewright", when={"paged": False})
def check_pages(config: Config, arch: Arch) -> Rejection | None:
    """batch_prefill needs paged.

    Why: its only kernel finds each key in a list of one-token pages (FmhaBatchPrefillWithPagedKVCacheKernel).
    Fix: set paged, as in all kernels of this family.
    """
    return Rejection("paged is False, but batch_prefill supports only pages", "paged", True)


@examples(bad={"mode": "group"})
@_APPEND.rule("P444", "append-group", "compiler", when={"mode": "group"})
def check_append_mode(config: Config, arch: Arch) -> Rejection | None:
    """appendkv supports only batch mode.

    Why: FmhaFwdAppendKVKernel has no other mode; the launcher asserts it.
    Fix: use mode batch, which supports any lengths.
    """
    return Rejection("appendkv has no group mode", "mode", "batch")


@examples(good={"block": (16, 16, 128, 128)}, bad={"block": (16, 24, 128, 128)})
@_APPEND.tile_rule("P445", "append-tile", "device", ("dtype", "v_layout", "rotary"))
def check_append_tile(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The 256 threads of appendkv must share each tile evenly, 16 bytes of a row at a time.

    Why: other elements are not written: the rows after the last whole pass, and those of the lanes after the last whole
    row (MakeKnewDramTileDistribution and similar functions in
    pipeline/block_fmha_fwd_appendkv_pipeline_default_policy.hpp). Without rotation m0 is not used.
    Fix: use powers of two for all four integers of the block.
    """
    vector = 16 * 8 // find_dtype(DTYPES[config.dtype].qkv).bits
    shared = [("n0", "hdim_q"), ("n0", "hdim_v") if config.v_layout == "row" else ("hdim_v", "n0")]
    if config.rotary != "none":
        shared.append(("m0", "hdim_q"))
    for name, other in shared:
        rows, width = getattr(tile, name), getattr(tile, other)
        lanes = width // vector
        whole = lanes and width % vector == 0 and arch.wave_size % lanes == 0
        if not whole or rows % (_APPEND_THREADS // lanes):
            message = f"{name} x {other} = {rows} x {width} cannot be shared evenly by {_APPEND_THREADS} threads"
            return Rejection(message, "block")
    return None
