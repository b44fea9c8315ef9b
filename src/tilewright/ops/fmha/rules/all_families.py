"""The rules of all families: A1xx GPU features, T2xx fields and tile arithmetic, R401 LDS."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rules import hardware, tiles
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import COMBINE, DQ_DK_DV, FAMILIES, FORWARD, USED, get_tile
from tilewright.ops.fmha.kind import find_kind, list_gemm_types, split_triples
from tilewright.ops.rule import Rejection, Rule, rule

_TILES = ("family", "block", "waves", "mma")
COMBINE_EXAMPLE: Mapping[str, Any] = {
    **{"family": COMBINE, "pipeline": "combine", "block": (32, 128), "waves": (), "mma": ()},
    **{"pad_k": False, "log_max_splits": 3},
}
DQ_DK_DV_EXAMPLE: Mapping[str, Any] = {
    **{"family": DQ_DK_DV, "pipeline": "kr_ktr_vr", "block": (32, 128, 64, 32, 64, 32, 32, 64, 64)},
    **{"waves": (1, 4, 1, 4, 1, 1, 1, 4, 1), "mma": (16, 16, 32, 16, 16, 16, 16, 16, 32)},
    **{"pad_q": False, "pad_k": False, "pad_hdim_q": 8, "pad_hdim_v": 8},
}


def list_gemms(config: Config) -> list[Any]:
    """Return each GEMM of a config in the form of ops/block_gemm; none if a list does not have the family's length."""
    tile, waves, mma = get_tile(config), split_triples(config.waves), split_triples(config.mma)
    count = FAMILIES[config.family].gemm_count
    if not tile or not len(config.waves) == len(config.mma) == 3 * count:
        return []
    types = list_gemm_types(config)
    return [
        SimpleNamespace(block=block, waves=waves[i], mma=mma[i], dtype_a=types[i][0], dtype_b=types[i][1])
        for block, i in ((gemm.get_tile(tile), gemm.index) for gemm in find_kind(config).gemms)
    ]


def _apply_to_each_gemm(shared: Rule, *, reads: Sequence[str], good: Mapping[str, Any], bad: Mapping[str, Any]) -> Rule:
    """Return a rule of ops/block_gemm, applied to each GEMM of an attention kernel."""

    def check(config: Config, arch: Arch) -> Rejection | None:
        for number, gemm in enumerate(list_gemms(config)):
            fault = shared.check(SimpleNamespace(**vars(gemm), dtype_acc="fp32"), arch)
            if fault is not None:
                return Rejection(f"GEMM {number}: {fault.message}", fault.field if fault.field in reads else "dtype")
        return None

    return dataclasses.replace(shared, reads=tuple(reads), check=check, good=good, bad=bad)


check_matrix_instruction = _apply_to_each_gemm(
    hardware.check_matrix_instruction,
    reads=("dtype", *_TILES),
    good={"mma": (32, 32, 8, 32, 32, 8)},
    bad={"mma": (32, 32, 16, 32, 32, 4)},
)
check_block_coverage = _apply_to_each_gemm(
    tiles.check_block_multiple,
    reads=("dtype", *_TILES),
    good={"block": (128, 64, 32, 128, 32, 128)},
    bad={"block": (128, 48, 32, 128, 16, 128)},
)


@rule(
    "A102",
    "block-too-large",
    reads=("family", "block", "waves"),
    enforced_by="device",
    good={},
    bad={"waves": (32, 1, 1, 32, 1, 1), "block": (1024, 128, 32, 128, 32, 128)},
)
def check_thread_limit(config: Config, arch: Arch) -> Rejection | None:
    """A work-group must not have more threads than the GPU allows.

    Why: the hardware cannot start a larger one. The compiler does not check it.

    Fix: use fewer waves, or fewer threads if the block includes them.
    """
    threads, field = get_tile(config).get("threads", 0), "block"
    if not threads and config.waves:
        threads, field = max(w.m * w.n * w.k for w in split_triples(config.waves)) * arch.wave_size, "waves"
    limit = arch.compute.max_block_threads
    if threads <= limit:
        return None
    return Rejection(f"the work-group has {threads} threads, but {arch.name} allows {limit}", field)


@rule(
    "T206",
    "other-pipeline",
    reads=("family", "pipeline"),
    enforced_by="tilewright",
    good={"pipeline": "qr_async"},
    bad={"pipeline": "combine"},
)
def check_pipeline(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline must be one of the family's.

    Why: a family's kernel only works with the pipelines that were written for it.

    Fix: use one of the family's pipelines.
    """
    known = FAMILIES[config.family].pipelines
    if config.pipeline in known:
        return None
    return Rejection(
        f"{config.family} has no pipeline {config.pipeline}; it has {', '.join(known)}", "pipeline", known[0]
    )


@rule(
    "T207",
    "block-length",
    reads=("family", "block"),
    enforced_by="tilewright",
    good={},
    bad={"block": (128, 128, 32, 128)},
)
def check_block_length(config: Config, arch: Arch) -> Rejection | None:
    """A block must have as many integers as the family's block has names.

    Why: each integer has its own meaning.

    Fix: pass the integers that the message lists.
    """
    names = FAMILIES[config.family].block
    if len(config.block) == len(names):
        return None
    return Rejection(
        f"the block of {config.family} is {', '.join(names)}, but has {len(config.block)} integers", "block"
    )


@rule(
    "T208",
    "gemm-count",
    reads=("family", "waves", "mma"),
    enforced_by="tilewright",
    good={},
    bad={"waves": (4, 1, 1)},
)
def check_gemm_count(config: Config, arch: Arch) -> Rejection | None:
    """Waves and mma must have three integers for each GEMM of the family.

    Why: each GEMM has its own waves and matrix instruction. The five GEMMs of gradients share three of them.

    Fix: pass three integers for each GEMM, or none if the family has no GEMM.
    """
    wanted = 3 * FAMILIES[config.family].gemm_count
    for name in ("waves", "mma"):
        given = len(getattr(config, name))
        if given != wanted:
            return Rejection(f"{config.family} has {wanted} integers in {name}, got {given}", name)
    return None


@rule(
    "T209",
    "unequal-waves",
    reads=("family", "waves"),
    enforced_by="compiler",
    good={"waves": (2, 1, 1, 2, 1, 1), "block": (64, 128, 32, 128, 32, 128)},
    bad={"waves": (4, 1, 1, 2, 1, 1)},
)
def check_equal_waves(config: Config, arch: Arch) -> Rejection | None:
    """All GEMMs of a kernel must have the same number of waves.

    Why: one work-group computes them one after another (fmha/pipeline/tile_fmha_shape.hpp asserts that the counts
    divide each other).

    Fix: distribute the same number of waves along m and n of each GEMM.
    """
    counts = [w.m * w.n * w.k for w in split_triples(config.waves)]
    if len(set(counts)) <= 1:
        return None
    return Rejection(f"the GEMMs have {', '.join(map(str, counts))} waves", "waves")


@rule(
    "T210",
    "waves-along-k",
    reads=("waves",),
    enforced_by="tilewright",
    good={},
    bad={"waves": (2, 1, 2, 2, 1, 2)},
)
def check_waves_along_k(config: Config, arch: Arch) -> Rejection | None:
    """Waves must be distributed along m and n only.

    Why: no pipeline splits a sum among waves. Waves along k repeat the work of others: results are correct, but a part
    of the work-group is wasted.

    Fix: use 1 wave along k.
    """
    for number, waves in enumerate(split_triples(config.waves)):
        if waves.k != 1:
            return Rejection(f"GEMM {number} has {waves.k} waves along k, must have 1", "waves")
    return None


@rule(
    "T211",
    "group-without-pads",
    reads=("family", "mode", "pad_q", "pad_k"),
    enforced_by="device",
    good={"mode": "group", "pad_q": False},
    bad={"mode": "group", "pad_k": False},
)
def check_group_pads(config: Config, arch: Arch) -> Rejection | None:
    """Group mode needs pad_k, and also pad_q in families other than forward, if the family has these fields.

    Why: sequences may end inside a tile, and the following keys belong to the next sequence. A forward kernel knows
    the end of the queries from the sizes of its buffers.

    Fix: set pad_q and pad_k.
    """
    if config.mode != "group":
        return None
    for name in ("pad_k",) if config.family == FORWARD else ("pad_q", "pad_k"):
        if name in USED[config.family] and not getattr(config, name):
            return Rejection(
                f"sequences of a group may end in a tile, but {name} is {getattr(config, name)}", name, True
            )
    return None


@rule(
    "T212",
    "pad-step",
    reads=("pad_hdim_q", "pad_hdim_v"),
    enforced_by="tilewright",
    good={"pad_hdim_q": 8, "pad_hdim_v": 8},
    bad={"pad_hdim_q": 4},
)
def check_pad_step(config: Config, arch: Arch) -> Rejection | None:
    """pad_hdim_q and pad_hdim_v must be 0, 1 or 8.

    Why: 0 means no pads, 1 loads of single elements, 8 loads of vectors. CK Tile has no others.

    Fix: use one of these three.
    """
    for name in ("pad_hdim_q", "pad_hdim_v"):
        value = getattr(config, name)
        if value not in PADS:
            return Rejection(f"{name} is {value}, must be one of {', '.join(map(str, PADS))}", name, 8)
    return None


PADS = (0, 1, 8)


@rule(
    "T213",
    "gradient-without-bias",
    reads=("bias", "bias_gradient"),
    enforced_by="tilewright",
    good={**DQ_DK_DV_EXAMPLE, "bias": "elementwise", "bias_gradient": True},
    bad={**DQ_DK_DV_EXAMPLE, "bias": "alibi", "bias_gradient": True},
)
def check_bias_gradient(config: Config, arch: Arch) -> Rejection | None:
    """Only an elementwise bias has a gradient.

    Why: only an elementwise bias is a tensor of variables; ALiBi's slopes are constants. CK Tile still compiles such
    kernels.

    Fix: use bias elementwise, or leave bias_gradient out.
    """
    if not config.bias_gradient or config.bias == "elementwise":
        return None
    return Rejection(f"bias_gradient is set with bias {config.bias}", "bias", "elementwise")


@rule(
    "T217",
    "sink-without-mask",
    reads=("mask_form", "sink"),
    enforced_by="tilewright",
    good={"mask_form": "any", "sink": 4},
    bad={"sink": 4},
)
def check_sink_mask(config: Config, arch: Arch) -> Rejection | None:
    """Sinks need a mask.

    Why: sinks are keys that a window does not hide. Without a mask no key is hidden, and no problem has both.

    Fix: set mask_form, or leave sink out.
    """
    if not config.sink or config.mask_form != "none":
        return None
    return Rejection(f"sink is {config.sink}, but mask_form is {config.mask_form}", "mask_form", "any")


HOST_WAVE = 64  # lanes of a wave in the compiler's host pass (get_warp_size in ck_tile/core/arch/arch.hpp)


@rule(
    "T218",
    "threads-not-whole",
    reads=("family", "block"),
    enforced_by="tilewright",
    good={"family": "dot_do_o", "block": (64, 64)},
    bad={"family": "dot_do_o", "block": (32, 64)},
    arch="gfx1201",
)
def check_thread_count(config: Config, arch: Arch) -> Rejection | None:
    """The threads in a block must be a multiple of 64 on every GPU.

    Why: CK Tile also asserts whole waves in the host pass, which does not know the GPU and assumes waves of 64 lanes.

    Fix: use a multiple of 64 threads.
    """
    threads = get_tile(config).get("threads", HOST_WAVE)
    if threads % HOST_WAVE == 0:
        return None
    return Rejection(f"{threads} threads are not a multiple of {HOST_WAVE}", "block")


@rule(
    "R401",
    "lds-overflow",
    reads=("dtype", "pipeline", *_TILES, "bias", "dropout", "log_max_splits"),
    enforced_by="compiler",
    good={},
    bad={"block": (128, 128, 128, 256, 128, 256), "mma": (32, 32, 16, 32, 32, 16)},
)
def check_lds_size(config: Config, arch: Arch) -> Rejection | None:
    """The tiles of a work-group must fit into LDS.

    Why: a work-group cannot use more LDS than the GPU has.

    Fix: reduce k0 and k1 first, then n0.
    """
    if any(other.check(config, arch) for other in (check_block_length, check_gemm_count, check_pipeline)):
        return None
    needed = find_kind(config).lds_bytes(config, arch)
    if needed <= arch.lds.bytes:
        return None
    return Rejection(f"the tiles need {needed:,} bytes of LDS, but {arch.name} has {arch.lds.bytes:,}", "block")
