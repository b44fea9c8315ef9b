"""The pipelines of forward kernels: P401 to P410 and P481. File names are below ck_tile/ops/fmha/.

Rules for their tiles are in forward_tiles, those for gfx950's own pipelines in forward_gfx950.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import BATCH_PREFILL, DTYPES, FORWARD
from tilewright.ops.fmha.resources.forward import count_drawn_rows, get_dropout_room, v_pixels
from tilewright.ops.fmha.rules import forward_tiles
from tilewright.ops.fmha.rules.all_families import COMBINE_EXAMPLE
from tilewright.ops.fmha.rules.forward_gfx950 import TRLOAD
from tilewright.ops.rule import Rejection, rule

# Tested on the emulated gfx942 with masks, bias, ALiBi and dropout. Seven other tiles were all wrong.
_TILE: Mapping[str, Any] = {
    "block": (64, 64, 16, 32, 16, 32),
    "waves": (4, 1, 1, 4, 1, 1),
    "mma": (16, 16, 16, 16, 16, 16),
}
_FORM: Mapping[str, Any] = {**_TILE, "soft_cap": False, "v_layout": "row"}
_TYPES = ("fp16", "bf16")


@rule(
    "P480",
    "whole-k-form",
    reads=("family", "pipeline", "dtype", *_FORM),
    enforced_by="device",
    good={"pipeline": "qr_whole_k", **_TILE},
    bad={"pipeline": "qr_whole_k", **_TILE, "block": (64, 64, 32, 64, 32, 64)},
)
def check_whole_k_form(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qr_whole_k supports one tile, 16-bit types, v_layout row, no cap, and waves of 64 lanes.

    Why: kernels with other tiles or types, or with a cap, compile and compute wrong results. The cause is not known
    (block_fmha_pipeline_qr_ks_vs_whole_k_prefetch.hpp).

    Fix: use the pipeline qr, or block 64x64x16x32x16x32 with 4 waves along m and mma 16x16x16.
    """
    if config.family != FORWARD or config.pipeline != "qr_whole_k":
        return None
    for name, value in _FORM.items():
        if getattr(config, name) != value:
            return Rejection(
                f"qr_whole_k is correct only with {name} = {value}, not {getattr(config, name)}", name, value
            )
    if config.dtype not in _TYPES or arch.wave_size != 64:
        return Rejection(f"qr_whole_k gives wrong results with {config.dtype} on {arch.name}", "pipeline", "qr")
    return None


# An example: a kernel that copies keys to LDS asynchronously.
ASYNC: Mapping[str, Any] = {"pipeline": "qr_async", "pad_hdim_q": 8, "pad_hdim_v": 8}
# The features that these two pipelines lack, with the value that means "without".
_ABSENT: Mapping[str, Any] = {
    **{"bias": "none", "soft_cap": False, "dropout": False, "static_quant": False, "skip_min_seqlen_q": False},
    **{"v_layout": "row"},
}
_SHORT_OF_FEATURES = ("qr_async_trload", "v3")


@rule(
    "P401",
    "no-transposing-reads",
    reads=("family", "pipeline"),
    enforced_by="device",
    good={"pipeline": "qr"},
    bad=TRLOAD,
)
def check_transposing_reads(config: Config, arch: Arch) -> Rejection | None:
    """The pipelines qr_async_trload and v3 need a GPU with transposing LDS reads.

    Why: they read values with them. For another GPU the former compiles to a kernel that returns at once and writes
    nothing (FmhaFwdKernel::kIsAvailable in kernel/fmha_fwd_kernel.hpp), and the latter does not compile.

    Fix: use the pipeline qr_async instead.
    """
    if config.family != FORWARD or config.pipeline not in _SHORT_OF_FEATURES or arch.lds.transpose_read_bytes:
        return None
    return Rejection(f"{arch.name} has no transposing LDS reads, which {config.pipeline} needs", "pipeline", "qr")


@rule(
    "P402",
    "no-async-copy",
    reads=("family", "pipeline"),
    enforced_by="compiler",
    good={"pipeline": "qr", "mma": (16, 16, 16, 16, 16, 16)},
    bad={**ASYNC, "mma": (16, 16, 16, 16, 16, 16)},
    arch="gfx1201",
)
def check_async_copy(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qr_async needs a GPU with asynchronous copies from memory to LDS.

    Why: it loads keys with them, by an instruction in inline assembly.

    Fix: use the pipeline qr instead.
    """
    if config.family != FORWARD or config.pipeline != "qr_async" or arch.lds.async_copy_bytes:
        return None
    return Rejection(f"{arch.name} has no asynchronous copies to LDS, which qr_async needs", "pipeline", "qr")


@rule(
    "P403",
    "one-lane-layout",
    reads=("family",),
    enforced_by="compiler",
    good=COMBINE_EXAMPLE,
    bad={"mma": (16, 16, 16, 16, 16, 16)},
    arch="gfx1100",
)
def check_lane_layout(config: Config, arch: Arch) -> Rejection | None:
    """RDNA 3 does not support attention with these headers.

    Why: probabilities stay in the registers of the first GEMM's result and are the second GEMM's operand. A matrix
    instruction of RDNA 3 needs each operand twice, once in each half of a wave, but returns its result once:
    BlockGemmARegBSmemCRegV2 in gemm/block/ gets 8 elements instead of 16.

    Fix: use another GPU for attention.
    """
    if config.family != FORWARD or not arch.name.startswith("gfx11"):
        return None
    return Rejection(f"{arch.name} needs operands of matrix instructions in both halves of a wave", "family")


@rule(
    "P404",
    "pads-missing",
    reads=("family", "pipeline", "pad_q", "pad_hdim_q", "pad_hdim_v"),
    enforced_by="compiler",
    good=ASYNC,
    bad={**ASYNC, "pad_q": False},
)
def check_required_pads(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qr_async must pad queries and both head sizes.

    Why: its loads always check where a tensor ends (block_fmha_pipeline_qr_ks_vs_async.hpp asserts the three).

    Fix: set pad_q, and pad_hdim_q and pad_hdim_v to 8.
    """
    if config.family != FORWARD or config.pipeline != "qr_async":
        return None
    for name, wanted in (("pad_q", True), ("pad_hdim_q", 8), ("pad_hdim_v", 8)):
        if not getattr(config, name):
            return Rejection(f"qr_async always pads, but {name} is {getattr(config, name)}", name, wanted)
    return None


@rule(
    "P405",
    "pad-by-another",
    reads=("family", "pipeline", "pad_hdim_q", "pad_hdim_v"),
    enforced_by="tilewright",
    good={"pad_hdim_q": 1},
    bad={"pad_hdim_q": 8},
)
def check_head_padding(config: Config, arch: Arch) -> Rejection | None:
    """The pad of a head size must be the width of the pipeline's loads: 8 if it loads vectors, else 1.

    Why: CK Tile only distinguishes padded and not padded. Most pipelines load single elements of a padded head
    (kAlignmentQ and similar constants are 1); those with asynchronous copies still load vectors, which must be
    completely inside or outside the head.

    Fix: use 8 for qr_async and qr_async_trload, 1 for the others, 0 for no pad.
    """
    if config.family != FORWARD:
        return None
    wanted = 8 if config.pipeline in ("qr_async", "qr_async_trload") else 1
    for name in ("pad_hdim_q", "pad_hdim_v"):
        if getattr(config, name) not in (0, wanted):
            return Rejection(f"{name} is {getattr(config, name)}, but {config.pipeline} pads by {wanted}", name, wanted)
    return None


@rule(
    "P406",
    "capped-bias",
    reads=("family", "bias", "soft_cap"),
    enforced_by="compiler",
    good={"soft_cap": True},
    bad={"soft_cap": True, "bias": "elementwise"},
)
def check_capped_bias(config: Config, arch: Arch) -> Rejection | None:
    """A kernel can have soft_cap or a bias, but not both.

    Why: the pipelines assert it (pipeline/block_fmha_pipeline_qr_ks_vs.hpp and others).

    Fix: leave one of them out.
    """
    if config.family != FORWARD or not config.soft_cap or config.bias == "none":
        return None
    return Rejection(f"scores with bias {config.bias} cannot be capped", "soft_cap", False)


@rule(
    "P407",
    "feature-missing",
    reads=("family", "pipeline", *_ABSENT),
    enforced_by="device",
    good={**TRLOAD},
    bad={**TRLOAD, "bias": "elementwise"},
    arch="gfx950",
)
def check_missing_features(config: Config, arch: Arch) -> Rejection | None:
    """The pipelines qr_async_trload and v3 have no bias, cap, dropout, quantisation, skipping or transposed values.

    Why: the former gets the bias and ignores it, and neither gets the others. Kernels compile and compute as if the
    features were not set. qs gets dropout and drops nothing; with a cap it returns NaN for a sequence without keys.

    Fix: use the pipeline qr or qr_async.
    """
    if config.family != FORWARD or config.pipeline not in (*_SHORT_OF_FEATURES, "qs"):
        return None
    absent = {"dropout": False, "soft_cap": False} if config.pipeline == "qs" else _ABSENT
    for name, without in absent.items():
        if getattr(config, name) != without:
            return Rejection(f"{config.pipeline} does not support {name} = {getattr(config, name)}", name, without)
    return None


@rule(
    "P408",
    "sink-without-window",
    reads=("family", "mask_form", "sink"),
    enforced_by="tilewright",
    good={"mask_form": "any", "sink": 4},
    bad={"mask_form": "causal", "sink": 4},
)
def check_sink_window(config: Config, arch: Arch) -> Rejection | None:
    """Sinks need a mask form with a window.

    Why: sinks are first keys that a window would hide. A causal mask hides none of the first keys.

    Fix: use mask_form any or window, or sink 0.
    """
    if config.family != FORWARD or not config.sink or config.mask_form in ("any", "window"):
        return None
    return Rejection(f"{config.sink} sinks, but mask_form {config.mask_form} has no left limit", "mask_form", "any")


@rule(
    "P409",
    "skip-in-batches",
    reads=("family", "mode", "skip_min_seqlen_q"),
    enforced_by="tilewright",
    good={"mode": "group", "skip_min_seqlen_q": True},
    bad={"skip_min_seqlen_q": True},
)
def check_skip_mode(config: Config, arch: Arch) -> Rejection | None:
    """Short sequences can be skipped only in group mode.

    Why: in batch mode all have the same length, and the kernel does not get the limit (FmhaFwdBatchModeKargs in
    kernel/fmha_fwd_kernel.hpp).

    Fix: use mode group, or leave skip_min_seqlen_q out.
    """
    if config.family != FORWARD or not config.skip_min_seqlen_q or config.mode == "group":
        return None
    return Rejection(f"all sequences have the same length in mode {config.mode}", "skip_min_seqlen_q", False)


@rule(
    "P410",
    "dropout-overflow",
    reads=("family", "pipeline", "dtype", "block", "waves", "mma", "dropout"),
    enforced_by="device",
    good={**ASYNC, "dropout": True},
    bad={**ASYNC, "dropout": True, "mma": (16, 16, 16, 16, 16, 16)},
)
def check_dropout_lds(config: Config, arch: Arch) -> Rejection | None:
    """The random numbers of dropout must fit into LDS, and m0 must be a multiple of the rows drawn at once.

    Why: a wave with several rows of 16 × 16 matrix tiles draws two of them at once, but LDS is reserved for one
    (GetSmemSizeDropout in pipeline/, compared with BlockDropout::MakeRandValLdsBlockDescriptor in block/). Kernels
    compile and write beyond the end of their LDS.

    Fix: use m0 = waves × 16, or 32 × 32 matrix tiles, or the pipeline qr.
    """
    if config.family != FORWARD or not config.dropout or config.pipeline not in ("qr", "qr_async", "qr_whole_k"):
        return None
    facts = forward_tiles.get_forward_sizes(config, arch, config.pipeline, dropout=True)
    if facts is None or 0 in (facts.threads, v_pixels(facts)):
        return None
    rows, tall = count_drawn_rows(facts), facts.tile["m0"]
    if tall % rows:
        return Rejection(f"m0 = {tall} is not a multiple of the {rows} rows that are drawn at once", "block")
    needed, room = get_dropout_room(facts, config.pipeline)
    return None if needed <= room else Rejection(f"random numbers need {needed} bytes of LDS but have {room}", "block")


@rule(
    "P481",
    "eight-bit-dropout",
    reads=("family", "dtype", "dropout"),
    enforced_by="compiler",
    good={"dropout": True},
    bad={"dtype": "fp8bf16", "dropout": True, "mma": (32, 32, 32, 32, 32, 32)},
)
def check_eight_bit_dropout(config: Config, arch: Arch) -> Rejection | None:
    """8-bit types do not support dropout.

    Why: block/block_dropout.hpp distributes random numbers with an 8-bit matrix operation that does not exist
    (WarpGemmDispatcher without transposed results).

    Fix: use 16-bit types, or no dropout.
    """
    if config.family not in (FORWARD, BATCH_PREFILL) or not config.dropout:
        return None
    if DTYPES[config.dtype].qkv not in ("fp8", "bf8"):
        return None
    return Rejection(f"{config.dtype} does not support dropout", "dropout", False)
