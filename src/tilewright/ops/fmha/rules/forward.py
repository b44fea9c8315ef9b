"""The pipelines of forward kernels: P401 to P410, P419, P420, P425 to P429, P480 and P481.

File names are below ck_tile/ops/fmha/, for P419 to P429 below its folder pipeline/. Other rules for tiles are in
forward_tiles.
"""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.resources import forward as sizes
from tilewright.ops.fmha.resources.tile_distribution import check_copied_tile, check_row_tile
from tilewright.ops.fmha.rules.examples import ASYNC, COMBINED, MMA_16, TRLOAD, V3
from tilewright.ops.fmha.rules.forward_tiles import format_numbers
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import examples, until

_FORWARD = TileRules({"family": "forward"})
_ASYNC = TileRules({"family": "forward", "pipeline": "qr_async"}, ASYNC)
_V3 = TileRules({"family": "forward", "pipeline": "v3"}, V3, "gfx950")
_TRLOAD = TileRules({"family": "forward", "pipeline": "qr_async_trload"}, TRLOAD, "gfx950")
_DROPOUT = TileRules({"family": "forward", "pipeline": ("qr", "qr_async", "qr_whole_k"), "dropout": True})
_ANY_DROPOUT = TileRules({"family": ("forward", "batch_prefill"), "dropout": True})
_WHOLE_HEAD_FROM = 64  # block_fmha_pipeline_qr_ks_vs_async_trload.hpp, kKLoadOnce
_READS_WAITED_FOR = 15  # core/arch/arch.hpp, WaitcntLayoutLegacy::LGKM_MASK

# The only tile that is correct; tested on the emulated gfx942 with masks, bias, ALiBi and dropout. Seven others were
# wrong.
_WHOLE_K_TILE = {"block": (64, 64, 16, 32, 16, 32), "waves": (4, 1, 1, 4, 1, 1), "mma": MMA_16}
_WHOLE_K_FORM: dict[str, object] = {**_WHOLE_K_TILE, "soft_cap": False, "v_layout": "row"}
_WHOLE_K = TileRules({"family": "forward", "pipeline": "qr_whole_k"}, {"pipeline": "qr_whole_k", **_WHOLE_K_TILE})


@examples(good={"pipeline": "qr"}, bad=TRLOAD)
@_FORWARD.rule("P401", "no-transposing-reads", "device", when={"pipeline": ("qr_async_trload", "v3")})
def check_transposing_reads(config: Config, arch: Arch) -> Rejection | None:
    """The pipelines qr_async_trload and v3 need a GPU with transposing LDS reads.

    Why: they read values with them. For another GPU the former compiles to a kernel that returns at once and writes
    nothing (FmhaFwdKernel::kIsAvailable in kernel/fmha_fwd_kernel.hpp), and the latter does not compile.
    Fix: use the pipeline qr_async instead."""
    if arch.lds.transpose_read_bytes:
        return None
    return Rejection(f"{arch.name} has no transposing LDS reads, which {config.pipeline} needs", "pipeline", "qr")


@examples(good={"pipeline": "qr", "mma": MMA_16}, bad={**ASYNC, "mma": MMA_16}, arch="gfx1201")
@_FORWARD.rule("P402", "no-async-copy", "compiler", when={"pipeline": "qr_async"})
def check_async_copy(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qr_async needs a GPU with asynchronous copies from memory to LDS.

    Why: it loads keys with them, by an instruction in inline assembly.
    Fix: use the pipeline qr instead."""
    if arch.lds.async_copy_bytes:
        return None
    return Rejection(f"{arch.name} has no asynchronous copies to LDS, which qr_async needs", "pipeline", "qr")


@until("2026-06")
@examples(good=COMBINED, bad={"mma": MMA_16}, arch="gfx1100")
@_FORWARD.rule("P403", "one-lane-layout", "compiler")
def check_lane_layout(config: Config, arch: Arch) -> Rejection | None:
    """RDNA 3 supports attention since CK 2026-06 only.

    Why: probabilities stay in the registers of the first GEMM's result and are the second GEMM's operand. A matrix
    instruction of RDNA 3 needs each operand twice, once in each half of a wave, but returns its result once:
    BlockGemmARegBSmemCRegV2 in gemm/block/ gets 8 elements instead of 16.
    Fix: use another GPU for attention."""
    if not arch.name.startswith("gfx11"):
        return None
    return Rejection(f"{arch.name} needs operands of matrix instructions in both halves of a wave", "family")


@examples(bad={"pad_q": False})
@_ASYNC.rule("P404", "pads-missing", "compiler", ("pad_q", "pad_hdim_q", "pad_hdim_v"))
def check_required_pads(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qr_async must pad queries and both head sizes.

    Why: its loads always check where a tensor ends (block_fmha_pipeline_qr_ks_vs_async.hpp asserts the three).
    Fix: set pad_q, and pad_hdim_q and pad_hdim_v to 8."""
    for name, wanted in (("pad_q", True), ("pad_hdim_q", 8), ("pad_hdim_v", 8)):
        if not (value := getattr(config, name)):
            return Rejection(f"qr_async always pads, but {name} is {value}", name, wanted)
    return None


@examples(good={"pad_hdim_q": 1}, bad={"pad_hdim_q": 8})
@_FORWARD.rule("P405", "pad-by-another", "tilewright", ("pipeline", "pad_hdim_q", "pad_hdim_v"))
def check_head_padding(config: Config, arch: Arch) -> Rejection | None:
    """The pad of a head size must be the width of the pipeline's loads: 8 if it loads vectors, else 1.

    Why: CK Tile only distinguishes padded and not padded. Most pipelines load single elements of a padded head
    (kAlignmentQ and similar constants are 1); those with asynchronous copies still load vectors, which must be
    completely inside or outside the head.
    Fix: use 8 for qr_async and qr_async_trload, 1 for the others, 0 for no pad."""
    wanted = 8 if config.pipeline in ("qr_async", "qr_async_trload") else 1
    for name in ("pad_hdim_q", "pad_hdim_v"):
        if (value := getattr(config, name)) not in (0, wanted):
            return Rejection(f"{name} is {value}, but {config.pipeline} pads by {wanted}", name, wanted)
    return None


@examples(good={"soft_cap": True}, bad={"soft_cap": True, "bias": "elementwise"})
@_FORWARD.rule("P406", "capped-bias", "compiler", when={"soft_cap": True, "bias": ("elementwise", "alibi")})
def check_capped_bias(config: Config, arch: Arch) -> Rejection | None:
    """A kernel can have soft_cap or a bias, but not both.

    Why: the pipelines assert it (pipeline/block_fmha_pipeline_qr_ks_vs.hpp and others).
    Fix: leave one of them out."""
    return Rejection(f"scores with bias {config.bias} cannot be capped", "soft_cap", False)


# The features that pipelines lack, with the value that means "without".
_ABSENT_IN_QS = dict[str, object](dropout=False, soft_cap=False)
_ABSENT = dict[str, object](
    bias="none", soft_cap=False, dropout=False, static_quant=False, skip_min_seqlen_q=False, v_layout="row"
)


@examples(good=TRLOAD, bad={**TRLOAD, "bias": "elementwise"}, arch="gfx950")
@_FORWARD.rule("P407", "feature-missing", "device", tuple(_ABSENT), when={"pipeline": ("qr_async_trload", "v3", "qs")})
def check_missing_features(config: Config, arch: Arch) -> Rejection | None:
    """The pipelines qr_async_trload and v3 have no bias, cap, dropout, quantisation, skipping or transposed values.

    Why: the former gets the bias and ignores it, and neither gets the others. Kernels compile and compute as if the
    features were not set. qs gets dropout and drops nothing; with a cap it returns NaN for a sequence without keys.
    Fix: use the pipeline qr or qr_async."""
    for name, without in (_ABSENT_IN_QS if config.pipeline == "qs" else _ABSENT).items():
        if (value := getattr(config, name)) != without:
            return Rejection(f"{config.pipeline} does not support {name} = {value}", name, without)
    return None


@examples(good={"mask_form": "any", "sink": 4}, bad={"mask_form": "causal", "sink": 4})
@_FORWARD.rule("P408", "sink-without-window", "tilewright", ("sink",), when={"mask_form": ("none", "causal")})
def check_sink_window(config: Config, arch: Arch) -> Rejection | None:
    """Sinks need a mask form with a window.

    Why: sinks are first keys that a window would hide. A causal mask hides none of the first keys.
    Fix: use mask_form any or window, or sink 0."""
    if not config.sink:
        return None
    return Rejection(f"{config.sink} sinks, but mask_form {config.mask_form} has no left limit", "mask_form", "any")


@examples(good={"mode": "group", "skip_min_seqlen_q": True}, bad={"skip_min_seqlen_q": True})
@_FORWARD.rule("P409", "skip-in-batches", "tilewright", when={"mode": "batch", "skip_min_seqlen_q": True})
def check_skip_mode(config: Config, arch: Arch) -> Rejection | None:
    """Short sequences can be skipped only in group mode.

    Why: in batch mode all have the same length, and the kernel does not get the limit (FmhaFwdBatchModeKargs in
    kernel/fmha_fwd_kernel.hpp).
    Fix: use mode group, or leave skip_min_seqlen_q out."""
    return Rejection("all sequences have the same length in mode batch", "skip_min_seqlen_q", False)


@examples(good={**ASYNC, "dropout": True}, bad={**ASYNC, "dropout": True, "mma": MMA_16})
@_DROPOUT.tile_rule("P410", "dropout-overflow", "device", ("dtype", "waves", "mma"))
def check_dropout_lds(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The random numbers of dropout must fit into LDS, and m0 must be a multiple of the rows drawn at once.

    Why: a wave with several rows of 16 × 16 matrix tiles draws two of them at once, but LDS is reserved for one
    (GetSmemSizeDropout in pipeline/, compared with BlockDropout::MakeRandValLdsBlockDescriptor in block/). Kernels
    compile and write beyond the end of their LDS.
    Fix: use m0 = waves × 16, or 32 × 32 matrix tiles, or the pipeline qr."""
    facts = sizes.get_sizes(config, arch, dropout=True)
    if sizes.v_pixels(facts) == 0:
        return None
    rows = sizes.count_drawn_rows(facts)
    if tile.m0 % rows:
        return Rejection(f"m0 = {tile.m0} is not a multiple of the {rows} rows that are drawn at once", "block")
    needed, room = sizes.get_dropout_room(facts, config.pipeline)
    return None if needed <= room else Rejection(f"random numbers need {needed} bytes of LDS but have {room}", "block")


@until("2026-06")
@examples(bad={"lse": True})
@_V3.rule("P419", "v3-lse", "device", when={"lse": True})
def check_v3_lse(config: Config, arch: Arch) -> Rejection | None:
    """v3 can store the LSE since CK 2026-06 only.

    Why: it adds a row's largest product to the log of the sum without the scale of the scores: `lse(i_idx)` in
    block_fmha_fwd_v3_pipeline.hpp lacks the factor `scale_s` of the other pipelines.
    Fix: use another pipeline, or leave lse out."""
    return Rejection("v3 computes the LSE without the scale", "lse", False)


@examples(bad={"block": (64, 64, 64, 32, 32, 64)})
@_TRLOAD.tile_rule("P420", "trload-heads", "device")
def check_trload_heads(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With qr_async_trload, n1 and hdim_q must both be 64 or both be 128.

    Why: pieces of a row are permuted by an exclusive or with the row's index, and for values the kernel uses the pieces
    of a query's head (make_v_dram in kernel/fmha_fwd_kernel.hpp). Results are wrong for smaller heads.
    Fix: use 64 or 128 for both, with pads."""
    if tile.n1 == tile.hdim_q and tile.n1 in (64, 128):
        return None
    return Rejection(f"hdim_q = {tile.hdim_q} and n1 = {tile.n1} are not both 64 or both 128", "block")


@examples(bad={"block": (256, 64, 128, 128, 32, 128)})
@_V3.tile_rule("P425", "v3-tiles", "compiler", ("dtype", "waves", "mma"))
def check_v3_tiles(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """v3 needs 8 waves along m with 32 rows each, one step for a head and for a tile's keys, and 16-bit types.

    Why: two groups of four waves alternate, a lane has the sum of one row, and the steps are written out
    (block_fmha_fwd_v3_pipeline.hpp asserts these).
    Fix: use block 256 x n0 x hdim_q x hdim_v x n0 x hdim_q, waves 8x1x1x8x1x1, mma 32x32x16x32x32x16."""
    if config.dtype not in ("fp16", "bf16"):
        return Rejection(f"v3 does not support {config.dtype}", "dtype", "fp16")
    if config.waves != V3["waves"] or tile.m0 != 256:
        waves = format_numbers(config.waves)
        return Rejection(f"v3 needs m0 = 256 and 8 waves along m, not {tile.m0} and {waves}", "waves")
    if config.mma != V3["mma"]:
        return Rejection(f"v3 needs mma 32x32x16x32x32x16, not {format_numbers(config.mma)}", "mma", V3["mma"])
    if tile.k0 != tile.hdim_q or tile.k1 != tile.n0:
        return Rejection(f"v3 needs one step: k0 must be {tile.hdim_q} and k1 {tile.n0}", "block")
    facts = sizes.get_sizes(config, arch)
    fault = check_copied_tile(facts, "keys", tile.n0, tile.k0) or check_copied_tile(facts, "values", tile.k1, tile.n1)
    return Rejection(fault, "block") if fault else None


@examples(bad={"mask_form": "any"})
@_V3.rule("P426", "v3-two-tiles", "device", ("mode", "mask_form"))
def check_v3_mode_and_mask(config: Config, arch: Arch) -> Rejection | None:
    """v3 supports only batch mode without a mask.

    Why: where queries see exactly two key tiles, it reads the second one from LDS before the copy has finished (the
    wait is inside `if(2 < num_total_loop)` in block_fmha_fwd_v3_pipeline.hpp). This can happen with a mask and with
    sequences of any lengths. In batch mode without a mask, the built kernel rejects such a number of keys.
    Fix: use qr_async or qr_async_trload."""
    if config.mode != "batch":
        return Rejection("a sequence of a group may have exactly 2 key tiles", "mode", "batch")
    if config.mask_form == "none":
        return None
    return Rejection(f"with mask_form {config.mask_form} some queries see exactly 2 key tiles", "mask_form", "none")


@examples(bad={"mma": MMA_16})
@_TRLOAD.rule("P427", "trload-mma", "tilewright", ("dtype", "waves", "mma"))
def check_trload_mma(config: Config, arch: Arch) -> Rejection | None:
    """qr_async_trload supports fp16 and bf16, mma 16x16x32 or 32x32x16 for both GEMMs, and waves along m.

    Why: LDS is read transposed in pieces of four 16-bit elements, two of which are the operand of one of these two
    instructions (GetPVBlockGemm in block_fmha_pipeline_qr_ks_vs_async_trload_policy.hpp). Others were not tested.
    Fix: use one of these types, tiles and waves."""
    rows = config.waves[0] if config.waves else 0
    if config.dtype not in ("fp16", "bf16"):
        return Rejection(f"qr_async_trload does not support {config.dtype}", "dtype", "fp16")
    for name, known in (("mma", (TRLOAD["mma"], (32, 32, 16, 32, 32, 16))), ("waves", ((rows, 1, 1, rows, 1, 1),))):
        if (value := getattr(config, name)) not in known:
            return Rejection(f"qr_async_trload does not support {name} {format_numbers(value)}", name, known[0])
    return None


@examples(bad={"block": (64, 64, 32, 64, 32, 64)})
@_TRLOAD.tile_rule("P428", "trload-head-in-steps", "device")
def check_trload_head_steps(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With qr_async_trload and m0 from 64 to 127, k0 must be hdim_q.

    Why: the kernel arranges keys for tiles of a whole head from m0 = 64 on (kKLoadOnce), but reads such tiles only from
    m0 = 128 on (PrefillCase in kernel/fmha_fwd_kernel.hpp). In between, pieces of rows are swapped.
    Fix: use k0 = hdim_q, or another m0."""
    if not _WHOLE_HEAD_FROM <= tile.m0 < sizes.PREFILL_ROWS or tile.k0 == tile.hdim_q:
        return None
    return Rejection(f"m0 is {tile.m0}, so k0 = {tile.k0} must be hdim_q = {tile.hdim_q}", "block")


@examples(
    good={"block": (128, 64, 32, 64, 32, 64), "mma": (32, 32, 16, 32, 32, 16)},
    bad={"block": (128, 64, 64, 64, 64, 64), "mma": (32, 32, 16, 32, 32, 16)},
)
@_TRLOAD.tile_rule("P429", "trload-tiles", "compiler", ("dtype", "waves", "mma"))
def check_trload_tiles(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """The threads of qr_async_trload must share its tiles evenly and, from m0 = 128 on, wait for at most 15 LDS reads.

    Why: tiles are copied asynchronously to LDS, 16 bytes per lane; and a wait counts up to 15 LDS reads
    (block_sync_lds in block_fmha_pipeline_qr_ks_vs_async_trload.hpp). A lane reads 8 elements of keys at once, and 4
    of values.
    Fix: use a smaller k1 or n0."""
    facts, head, prefill = sizes.get_sizes(config, arch), sizes.loaded_hdim(tile.hdim_q), tile.m0 >= sizes.PREFILL_ROWS
    fault = (
        check_row_tile(facts, "the query", tile.m0, head)
        or check_row_tile(facts, "the key", tile.n0, head if prefill else tile.k0)
        or check_row_tile(facts, "the value", tile.n0, tile.n1)
    )
    if fault is not None:
        return Rejection(fault, "block")
    reads = max(tile.n0 * tile.k0 // (64 * 8), tile.k1 * tile.n1 // (64 * 4))
    if prefill and reads > _READS_WAITED_FOR:
        return Rejection(f"a lane has {reads} LDS reads in flight, but a wait counts only {_READS_WAITED_FOR}", "block")
    return None


@examples(bad={"block": (64, 64, 32, 64, 32, 64)})
@_WHOLE_K.rule("P480", "whole-k-form", "device", ("dtype", *_WHOLE_K_FORM))
def check_whole_k_form(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline qr_whole_k supports one tile, 16-bit types, v_layout row, no cap, and waves of 64 lanes.

    Why: kernels with other tiles or types, or with a cap, compile and compute wrong results. The cause is not known
    (block_fmha_pipeline_qr_ks_vs_whole_k_prefetch.hpp).
    Fix: use the pipeline qr, or block 64x64x16x32x16x32 with 4 waves along m and mma 16x16x16."""
    for name, wanted in _WHOLE_K_FORM.items():
        if (value := getattr(config, name)) != wanted:
            return Rejection(f"qr_whole_k is correct only with {name} = {wanted}, not {value}", name, wanted)
    if config.dtype not in ("fp16", "bf16") or arch.wave_size != 64:
        return Rejection(f"qr_whole_k gives wrong results with {config.dtype} on {arch.name}", "pipeline", "qr")
    return None


@examples(good={"dropout": True}, bad={"dtype": "fp8bf16", "dropout": True, "mma": (32,) * 6})
@_ANY_DROPOUT.rule("P481", "eight-bit-dropout", "compiler", ("dtype",))
def check_eight_bit_dropout(config: Config, arch: Arch) -> Rejection | None:
    """8-bit types do not support dropout.

    Why: block/block_dropout.hpp distributes random numbers with an 8-bit matrix operation that does not exist
    (WarpGemmDispatcher without transposed results).
    Fix: use 16-bit types, or no dropout."""
    if DTYPES[config.dtype].qkv not in ("fp8", "bf8"):
        return None
    return Rejection(f"{config.dtype} does not support dropout", "dropout", False)
