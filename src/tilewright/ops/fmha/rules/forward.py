"""What the pipelines of forward kernels can do: P401 to P410. File names are below ck_tile/ops/fmha/.

Rules about their tiles are in forward_tiles, those about gfx950's own pipelines in forward_gfx950.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import BATCH_PREFILL, FORWARD
from tilewright.ops.fmha.resources.forward import drawn_rows, dropout_room, v_pixels
from tilewright.ops.fmha.rules import forward_tiles
from tilewright.ops.fmha.rules.fields import COMBINE_EXAMPLE
from tilewright.ops.fmha.rules.forward_gfx950 import TRLOAD
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.rule import Fault, rule

# An example: a kernel whose keys pass registers by.
ASYNC: Mapping[str, Any] = {"pipeline": "qr_async", "pad_hdim_q": 8, "pad_hdim_v": 8}
# What these two pipelines leave out, with the value that means "without".
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
def no_transposing_reads(config: Any, arch: Arch) -> Fault | None:
    """The pipelines qr_async_trload and v3 need a GPU that transposes what it reads from LDS.

    Why: they read values so. For another GPU the former compiles to a kernel that returns at once and writes nothing
    (FmhaFwdKernel::kIsAvailable in kernel/fmha_fwd_kernel.hpp), the latter does not compile.

    Fix: take the pipeline qr_async instead.
    """
    if config.family != FORWARD or config.pipeline not in _SHORT_OF_FEATURES or arch.lds.transpose_read_bytes:
        return None
    return Fault(f"{arch.name} has no transposing LDS read, which {config.pipeline} is made of", "pipeline", "qr")


@rule(
    "P402",
    "no-async-copy",
    reads=("family", "pipeline"),
    enforced_by="compiler",
    good={"pipeline": "qr", "mma": (16, 16, 16, 16, 16, 16)},
    bad={**ASYNC, "mma": (16, 16, 16, 16, 16, 16)},
    arch="gfx1201",
)
def no_async_copy(config: Any, arch: Arch) -> Fault | None:
    """The pipeline qr_async needs a GPU that copies from memory to LDS without registers.

    Why: it loads keys so, by an instruction in inline assembly.

    Fix: take the pipeline qr instead.
    """
    if config.family != FORWARD or config.pipeline != "qr_async" or arch.lds.async_copy_bytes:
        return None
    return Fault(f"{arch.name} has no copy from memory to LDS, which qr_async is made of", "pipeline", "qr")


@rule(
    "P403",
    "one-lane-layout",
    reads=("family",),
    enforced_by="compiler",
    good=COMBINE_EXAMPLE,
    bad={"mma": (16, 16, 16, 16, 16, 16)},
    arch="gfx1100",
)
def one_lane_layout(config: Any, arch: Arch) -> Fault | None:
    """RDNA 3 computes no attention with these headers.

    Why: probabilities stay in the registers where the first GEMM put them and are the second one's operand. A matrix
    instruction of RDNA 3 wants each operand twice, once in either half of a wave, but gives its result once:
    BlockGemmARegBSmemCRegV2 in gemm/block/ finds 16 elements where it has 8.

    Fix: choose another GPU for attention.
    """
    if config.family != FORWARD or not arch.name.startswith("gfx11"):
        return None
    return Fault(f"{arch.name} wants operands of a matrix instruction in both halves of a wave", "family")


@rule(
    "P404",
    "pads-missing",
    reads=("family", "pipeline", "pad_q", "pad_hdim_q", "pad_hdim_v"),
    enforced_by="compiler",
    good=ASYNC,
    bad={**ASYNC, "pad_q": False},
)
def pads_missing(config: Any, arch: Arch) -> Fault | None:
    """The pipeline qr_async pads queries and both head sizes.

    Why: its loads look where a tensor ends in any case (block_fmha_pipeline_qr_ks_vs_async.hpp asserts the three).

    Fix: set pad_q, and pad_hdim_q and pad_hdim_v to 8.
    """
    if config.family != FORWARD or config.pipeline != "qr_async":
        return None
    for name, wanted in (("pad_q", True), ("pad_hdim_q", 8), ("pad_hdim_v", 8)):
        if not getattr(config, name):
            return Fault(f"qr_async pads always, {name} is {getattr(config, name)}", name, wanted)
    return None


@rule(
    "P405",
    "pad-by-another",
    reads=("family", "pipeline", "pad_hdim_q", "pad_hdim_v"),
    enforced_by="tilewright",
    good={"pad_hdim_q": 1},
    bad={"pad_hdim_q": 8},
)
def pad_by_another(config: Any, arch: Arch) -> Fault | None:
    """A head size is padded by what the pipeline loads at once: 8 where it keeps its vectors, else 1.

    Why: CK Tile knows padded and not padded. Most pipelines load single elements of a padded head (kAlignmentQ and its
    like are 1); those that pass registers by go on loading vectors, all or nothing of which must be inside the head.

    Fix: 8 for qr_async and qr_async_trload, 1 for the others, 0 for no pad.
    """
    if config.family != FORWARD:
        return None
    wanted = 8 if config.pipeline in ("qr_async", "qr_async_trload") else 1
    for name in ("pad_hdim_q", "pad_hdim_v"):
        if getattr(config, name) not in (0, wanted):
            return Fault(f"{config.pipeline} pads heads by {wanted}, {name} is {getattr(config, name)}", name, wanted)
    return None


@rule(
    "P406",
    "capped-bias",
    reads=("family", "bias", "soft_cap"),
    enforced_by="compiler",
    good={"soft_cap": True},
    bad={"soft_cap": True, "bias": "elementwise"},
)
def capped_bias(config: Any, arch: Arch) -> Fault | None:
    """Scores are capped, or have a bias, not both.

    Why: the pipelines have code for either, and assert it (pipeline/block_fmha_pipeline_qr_ks_vs.hpp and others).

    Fix: leave one of them out.
    """
    if config.family != FORWARD or not config.soft_cap or config.bias == "none":
        return None
    return Fault(f"scores with bias {config.bias} cannot be capped", "soft_cap", False)


@rule(
    "P407",
    "feature-missing",
    reads=("family", "pipeline", *_ABSENT),
    enforced_by="device",
    good={**TRLOAD},
    bad={**TRLOAD, "bias": "elementwise"},
    arch="gfx950",
)
def feature_missing(config: Any, arch: Arch) -> Fault | None:
    """The pipelines qr_async_trload and v3 know no bias, cap, dropout, quantisation, skipping or transposed values.

    Why: the former takes the bias and does not look at it, and neither is told of the others. Kernels compile and
    compute as if nothing had been asked for. qs is told of dropout and drops nothing; with a cap it gives NaN for a
    sequence without keys.

    Fix: take the pipeline qr or qr_async.
    """
    if config.family != FORWARD or config.pipeline not in (*_SHORT_OF_FEATURES, "qs"):
        return None
    absent = {"dropout": False, "soft_cap": False} if config.pipeline == "qs" else _ABSENT
    for name, without in absent.items():
        if getattr(config, name) != without:
            return Fault(f"{config.pipeline} knows nothing of {name} = {getattr(config, name)}", name, without)
    return None


@rule(
    "P408",
    "sink-without-window",
    reads=("family", "mask_form", "sink"),
    enforced_by="tilewright",
    good={"mask_form": "any", "sink": 4},
    bad={"mask_form": "causal", "sink": 4},
)
def sink_without_window(config: Any, arch: Arch) -> Fault | None:
    """Sinks need a mask that can have a window.

    Why: they are keys that a window leaves out. A causal mask leaves out none of the first keys.

    Fix: mask_form any or window, or sink 0.
    """
    if config.family != FORWARD or not config.sink or config.mask_form in ("any", "window"):
        return None
    return Fault(f"{config.sink} sinks with mask form {config.mask_form}, which has no left end", "mask_form", "any")


@rule(
    "P409",
    "skip-in-batches",
    reads=("family", "mode", "skip_min_seqlen_q"),
    enforced_by="tilewright",
    good={"mode": "group", "skip_min_seqlen_q": True},
    bad={"skip_min_seqlen_q": True},
)
def skip_in_batches(config: Any, arch: Arch) -> Fault | None:
    """Short sequences are left out in group mode only.

    Why: in batch mode all have one length, and the kernel is not told the number (FmhaFwdBatchModeKargs in
    kernel/fmha_fwd_kernel.hpp).

    Fix: mode group, or no skip_min_seqlen_q.
    """
    if config.family != FORWARD or not config.skip_min_seqlen_q or config.mode == "group":
        return None
    return Fault(f"sequences in mode {config.mode} all have one length", "skip_min_seqlen_q", False)


@rule(
    "P410",
    "dropout-overflow",
    reads=("family", "pipeline", "dtype", "block", "waves", "mma", "dropout"),
    enforced_by="device",
    good={**ASYNC, "dropout": True},
    bad={**ASYNC, "dropout": True, "mma": (16, 16, 16, 16, 16, 16)},
)
def dropout_overflow(config: Any, arch: Arch) -> Fault | None:
    """Random numbers of dropout must have room in LDS, and tiles are a whole number of what is drawn at once.

    Why: a wave with several rows of 16 × 16 matrix tiles draws two of them at once, and LDS is reserved for one
    (GetSmemSizeDropout in pipeline/ against BlockDropout::MakeRandValLdsBlockDescriptor in block/). Kernels
    compile and write behind the end of their LDS.

    Fix: m0 = waves × 16, or 32 × 32 matrix tiles, or the pipeline qr.
    """
    if config.family != FORWARD or not config.dropout or config.pipeline not in ("qr", "qr_async", "qr_whole_k"):
        return None
    facts = forward_tiles.facts_for(config, arch, config.pipeline, dropout=True)
    if facts is None or 0 in (facts.threads, v_pixels(facts)):
        return None
    rows, tall = drawn_rows(facts), facts.tile["m0"]
    if tall % rows:
        return Fault(f"m0 = {tall} is no multiple of the {rows} rows that are drawn at once", "block")
    needed, room = dropout_room(facts, config.pipeline)
    return None if needed <= room else Fault(f"random numbers need {needed} bytes of LDS and have {room}", "block")


@rule(
    "P481",
    "eight-bit-dropout",
    reads=("family", "dtype", "dropout"),
    enforced_by="compiler",
    good={"dropout": True},
    bad={"dtype": "fp8bf16", "dropout": True, "mma": (32, 32, 32, 32, 32, 32)},
)
def eight_bit_dropout(config: Any, arch: Arch) -> Fault | None:
    """8-bit types have no dropout.

    Why: random numbers are spread by a matrix operation of 8-bit types that is not there (WarpGemmDispatcher without
    transposed results, asked for by block/block_dropout.hpp).

    Fix: no dropout, or 16-bit types.
    """
    if config.family not in (FORWARD, BATCH_PREFILL) or not config.dropout:
        return None
    if DTYPES[config.dtype].qkv not in ("fp8", "bf8"):
        return None
    return Fault(f"{config.dtype} with dropout", "dropout", False)
