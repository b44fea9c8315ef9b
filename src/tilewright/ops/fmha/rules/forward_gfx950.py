"""The pipelines of gfx950, v3 and qr_async_trload: P419, P420, P425 to P429.

File names are below ck_tile/ops/fmha/pipeline/.
"""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.resources.forward import PREFILL_ROWS, get_sizes, loaded_hdim
from tilewright.ops.fmha.resources.tile_distribution import check_copied_tile, check_row_tile
from tilewright.ops.fmha.rules.examples import MMA_16, TRLOAD, V3
from tilewright.ops.fmha.rules.forward_tiles import format_numbers
from tilewright.ops.fmha.rules.tile_rules import Tile, TileRules
from tilewright.ops.rule import Rejection
from tilewright.ops.rule_forms import examples

_V3 = TileRules({"family": "forward", "pipeline": "v3"}, V3, "gfx950")
_TRLOAD = TileRules({"family": "forward", "pipeline": "qr_async_trload"}, TRLOAD, "gfx950")
_WHOLE_HEAD_FROM = 64  # block_fmha_pipeline_qr_ks_vs_async_trload.hpp, kKLoadOnce
_READS_WAITED_FOR = 15  # core/arch/arch.hpp, WaitcntLayoutLegacy::LGKM_MASK


@examples(bad={"lse": True})
@_V3.rule("P419", "v3-lse", "device", when={"lse": True})
def check_v3_lse(config: Config, arch: Arch) -> Rejection | None:
    """v3 cannot store the LSE.

    Why: it adds a row's largest product to the log of the sum without the scale of the scores: `lse(i_idx)` in
    block_fmha_fwd_v3_pipeline.hpp lacks the factor `scale_s` of the other pipelines.
    Fix: use another pipeline, or leave lse out.
    """
    return Rejection("v3 computes the LSE without the scale", "lse", False)


@examples(bad={"block": (64, 64, 64, 32, 32, 64)})
@_TRLOAD.tile_rule("P420", "trload-heads", "device")
def check_trload_heads(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """With qr_async_trload, n1 and hdim_q must both be 64 or both be 128.

    Why: pieces of a row are permuted by an exclusive or with the row's index, and for values the kernel uses the pieces
    of a query's head (make_v_dram in kernel/fmha_fwd_kernel.hpp). Results are wrong for smaller heads.
    Fix: use 64 or 128 for both, with pads.
    """
    if tile.n1 == tile.hdim_q and tile.n1 in (64, 128):
        return None
    return Rejection(f"hdim_q = {tile.hdim_q} and n1 = {tile.n1} are not both 64 or both 128", "block")


@examples(bad={"block": (256, 64, 128, 128, 32, 128)})
@_V3.tile_rule("P425", "v3-tiles", "compiler", ("dtype", "waves", "mma"))
def check_v3_tiles(config: Config, tile: Tile, arch: Arch) -> Rejection | None:
    """v3 needs 8 waves along m with 32 rows each, one step for a head and for a tile's keys, and 16-bit types.

    Why: two groups of four waves alternate, a lane has the sum of one row, and the steps are written out
    (block_fmha_fwd_v3_pipeline.hpp asserts these).
    Fix: use block 256 x n0 x hdim_q x hdim_v x n0 x hdim_q, waves 8x1x1x8x1x1, mma 32x32x16x32x32x16.
    """
    if config.dtype not in ("fp16", "bf16"):
        return Rejection(f"v3 does not support {config.dtype}", "dtype", "fp16")
    if config.waves != V3["waves"] or tile.m0 != 256:
        waves = format_numbers(config.waves)
        return Rejection(f"v3 needs m0 = 256 and 8 waves along m, not {tile.m0} and {waves}", "waves")
    if config.mma != V3["mma"]:
        return Rejection(f"v3 needs mma 32x32x16x32x32x16, not {format_numbers(config.mma)}", "mma", V3["mma"])
    if tile.k0 != tile.hdim_q or tile.k1 != tile.n0:
        return Rejection(f"v3 needs one step: k0 must be {tile.hdim_q} and k1 {tile.n0}", "block")
    facts = get_sizes(config, arch)
    fault = check_copied_tile(facts, "keys", tile.n0, tile.k0) or check_copied_tile(facts, "values", tile.k1, tile.n1)
    return Rejection(fault, "block") if fault else None


@examples(bad={"mask_form": "any"})
@_V3.rule("P426", "v3-two-tiles", "device", ("mode", "mask_form"))
def check_v3_mode_and_mask(config: Config, arch: Arch) -> Rejection | None:
    """v3 supports only batch mode without a mask.

    Why: where queries see exactly two key tiles, it reads the second one from LDS before the copy has finished (the
    wait is inside `if(2 < num_total_loop)` in block_fmha_fwd_v3_pipeline.hpp). This can happen with a mask and with
    sequences of any lengths. In batch mode without a mask, the built kernel rejects such a number of keys.
    Fix: use qr_async or qr_async_trload.
    """
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
    Fix: use one of these types, tiles and waves.
    """
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
    Fix: use k0 = hdim_q, or another m0.
    """
    if not _WHOLE_HEAD_FROM <= tile.m0 < PREFILL_ROWS or tile.k0 == tile.hdim_q:
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
    Fix: use a smaller k1 or n0.
    """
    facts, head, prefill = get_sizes(config, arch), loaded_hdim(tile.hdim_q), tile.m0 >= PREFILL_ROWS
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
