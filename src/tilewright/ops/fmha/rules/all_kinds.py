"""The rules of all kinds of kernels: A1xx GPU features, T2xx fields and tile arithmetic, R401 LDS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm.rules import hardware, tiles
from tilewright.ops.fields import list_fields
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.kind import find_kind, get_tile, list_gemm_types, split_triples
from tilewright.ops.fmha.rules.examples import COMBINED, GRADIENT
from tilewright.ops.fmha.rules.tile_rules import TileRules
from tilewright.ops.rule import Rejection, Rule, make_rule
from tilewright.ops.rule_forms import examples, one_of

_ALL = TileRules()
_GRADIENTS = TileRules(example=GRADIENT)
_TILES = ("family", "block", "waves", "mma")


@dataclass(frozen=True, slots=True)
class GemmView:
    """One GEMM of a kernel, as the rules of ops/block_gemm see it."""

    block: Shape
    waves: Shape
    mma: Shape
    dtype_a: str
    dtype_b: str
    dtype_acc: str = "fp32"


def list_gemms(config: Config) -> list[GemmView]:
    """Return each GEMM of a config in the form of ops/block_gemm; none if a list does not have the kind's length."""
    tile, kind = get_tile(config), find_kind(config)
    if not tile or not len(config.waves) == len(config.mma) == 3 * kind.gemm_count:
        return []
    types, waves, mma = list_gemm_types(config), split_triples(config.waves), split_triples(config.mma)
    return [
        GemmView(each.get_tile(tile), waves[each.index], mma[each.index], *types[each.index]) for each in kind.gemms
    ]


def _name_gemm(fault: Rejection, number: int) -> Rejection:
    return Rejection(f"GEMM {number}: {fault.message}", fault.field if fault.field in _TILES else "dtype")


check_matrix_instruction = hardware.check_matrix_instruction.on(
    list_gemms,
    reads=("dtype", *_TILES),
    report=_name_gemm,
    good={"mma": (32, 32, 8, 32, 32, 8)},
    bad={"mma": (32, 32, 16, 32, 32, 4)},
)
check_block_coverage = tiles.check_block_multiple.on(
    list_gemms,
    reads=("dtype", *_TILES),
    report=_name_gemm,
    good={"block": (128, 64, 32, 128, 32, 128)},
    bad={"block": (128, 48, 32, 128, 16, 128)},
)


@examples(bad={"waves": (32, 1, 1, 32, 1, 1), "block": (1024, 128, 32, 128, 32, 128)})
@_ALL.rule("A102", "block-too-large", "device", ("family", "block", "waves"))
def check_thread_limit(config: Config, arch: Arch) -> Rejection | None:
    """A work-group must not have more threads than the GPU allows.

    Why: the hardware cannot start a larger one. The compiler does not check it.
    Fix: use fewer waves, or fewer threads if the block includes them."""
    threads, field = get_tile(config).get("threads", 0), "block"
    if not threads and config.waves:
        threads, field = max(w.m * w.n * w.k for w in split_triples(config.waves)) * arch.wave_size, "waves"
    limit = arch.compute.max_block_threads
    if threads <= limit:
        return None
    return Rejection(f"the work-group has {threads} threads, but {arch.name} allows {limit}", field)


@examples(good={"pipeline": "qr_async"}, bad={"pipeline": "combine"})
@_ALL.rule("T206", "other-pipeline", "tilewright", ("family", "pipeline"))
def check_pipeline(config: Config, arch: Arch) -> Rejection | None:
    """The pipeline must be one of the family's.

    Why: a family's kernel only works with the pipelines that were written for it.
    Fix: use one of the family's pipelines."""
    kind, pipeline = find_kind(config), config.pipeline
    if pipeline in kind.pipelines:
        return None
    known = ", ".join(kind.pipelines)
    return Rejection(f"{kind.name} has no pipeline {pipeline}; it has {known}", "pipeline", kind.pipelines[0])


@examples(bad={"block": (128, 128, 32, 128)})
@_ALL.rule("T207", "block-length", "tilewright", ("family", "block"))
def check_block_length(config: Config, arch: Arch) -> Rejection | None:
    """A block must have as many integers as the family's block has names.

    Why: each integer has its own meaning.
    Fix: pass the integers that the message lists."""
    kind, given = find_kind(config), len(config.block)
    if given == len(kind.block):
        return None
    return Rejection(f"the block of {kind.name} is {', '.join(kind.block)}, but has {given} integers", "block")


@examples(bad={"waves": (4, 1, 1)})
@_ALL.rule("T208", "gemm-count", "tilewright", ("family", "waves", "mma"))
def check_gemm_count(config: Config, arch: Arch) -> Rejection | None:
    """Waves and mma must have three integers for each GEMM of the family.

    Why: each GEMM has its own waves and matrix instruction. The five GEMMs of gradients share three of them.
    Fix: pass three integers for each GEMM, or none if the family has no GEMM."""
    kind = find_kind(config)
    for name, given in (("waves", len(config.waves)), ("mma", len(config.mma))):
        if given != 3 * kind.gemm_count:
            return Rejection(f"{kind.name} has {3 * kind.gemm_count} integers in {name}, got {given}", name)
    return None


@examples(good={"waves": (2, 1, 1, 2, 1, 1), "block": (64, 128, 32, 128, 32, 128)}, bad={"waves": (4, 1, 1, 2, 1, 1)})
@_ALL.rule("T209", "unequal-waves", "compiler", ("family", "waves"))
def check_equal_waves(config: Config, arch: Arch) -> Rejection | None:
    """All GEMMs of a kernel must have the same number of waves.

    Why: one work-group computes them one after another (fmha/pipeline/tile_fmha_shape.hpp asserts that the counts
    divide each other).
    Fix: distribute the same number of waves along m and n of each GEMM."""
    counts = [w.m * w.n * w.k for w in split_triples(config.waves)]
    return None if len(set(counts)) <= 1 else Rejection(f"the GEMMs have {', '.join(map(str, counts))} waves", "waves")


@examples(bad={"waves": (2, 1, 2, 2, 1, 2)})
@_ALL.rule("T210", "waves-along-k", "tilewright", ("waves",))
def check_waves_along_k(config: Config, arch: Arch) -> Rejection | None:
    """Waves must be distributed along m and n only.

    Why: no pipeline splits a sum among waves. Waves along k repeat the work of others: results are correct, but a part
    of the work-group is wasted.
    Fix: use 1 wave along k."""
    for number, waves in enumerate(split_triples(config.waves)):
        if waves.k != 1:
            return Rejection(f"GEMM {number} has {waves.k} waves along k, must have 1", "waves")
    return None


@examples(good={"mode": "group", "pad_q": False}, bad={"mode": "group", "pad_k": False})
@_ALL.rule("T211", "group-without-pads", "device", ("family", "pad_q", "pad_k"), when={"mode": "group"})
def check_group_pads(config: Config, arch: Arch) -> Rejection | None:
    """Group mode needs pad_k, and also pad_q in families other than forward, if the family has these fields.

    Why: sequences may end inside a tile, and the following keys belong to the next sequence. A forward kernel knows
    the end of the queries from the sizes of its buffers.
    Fix: set pad_q and pad_k."""
    kind = find_kind(config)
    for name in ("pad_q", "pad_k") if kind.pads_group_queries else ("pad_k",):
        if kind.has_field(name) and not getattr(config, name):
            return Rejection(f"sequences of a group may end in a tile, but {name} is False", name, True)
    return None


check_pad_step = one_of(
    "T212",
    "pad-step",
    "pad_hdim_q and pad_hdim_v must be 0, 1 or 8.",
    {"pad_hdim_q": (0, 1, 8), "pad_hdim_v": (0, 1, 8)},
    "{name} is {value}, must be one of {allowed}",
    nearest=8,
    enforced_by="tilewright",
    good={"pad_hdim_q": 8, "pad_hdim_v": 8},
    bad={"pad_hdim_q": 4},
    why="0 means no pads, 1 loads of single elements, 8 loads of vectors. CK Tile has no others.",
    fix="use one of these three.",
)


@examples(good={"bias": "elementwise", "bias_gradient": True}, bad={"bias": "alibi", "bias_gradient": True})
@_GRADIENTS.rule("T213", "gradient-without-bias", "tilewright", when={"bias_gradient": True, "bias": ("none", "alibi")})
def check_bias_gradient(config: Config, arch: Arch) -> Rejection | None:
    """Only an elementwise bias has a gradient.

    Why: only an elementwise bias is a tensor of variables; ALiBi's slopes are constants. CK Tile still compiles such
    kernels.
    Fix: use bias elementwise, or leave bias_gradient out."""
    return Rejection(f"bias_gradient is set with bias {config.bias}", "bias", "elementwise")


def _forbid_unused(
    code: str, slug: str, names: Sequence[str], what: str, why: str, good: Mapping[str, Any], bad: Mapping[str, Any]
) -> Rule:
    """Fields that a kind does not use must keep their defaults."""

    def check(config: Config, arch: Arch) -> Rejection | None:
        kind = find_kind(config)
        for name in names:
            value, default = getattr(config, name), _OPTIONAL[name]
            if value != default and not kind.has_field(name):
                return Rejection(f"{kind.name} does not use {name} = {value}", name, default, ("family", name))
        return None

    reads, texts = ("family", *names), (what, why, "leave the field out.")
    return make_rule(code, slug, check, reads=reads, enforced_by="tilewright", texts=texts, good=good, bad=bad)


_OPTIONAL = {name: field.default for name, field in list_fields(Config).items() if not field.required}
_PADS = ("pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v")
_FEATURES = ("mask_form", "sink", "bias", "lse", "soft_cap", "dropout", "store_randval", "static_quant", "v_layout")

check_unused_pads = _forbid_unused(
    "T214",
    "unused-pad",
    _PADS,
    "A pad that the family does not use must not be set.",
    "two configs that differ only in this field would be the same kernel under two names.",
    good={},
    bad={**COMBINED, "pad_k": True},
)
check_unused_features = _forbid_unused(
    "T215",
    "unused-feature",
    _FEATURES,
    "A feature of the scores or the result that the family does not use must keep its default.",
    "as for pads, each kernel must have one name.",
    good={"dropout": True},
    bad={"store_randval": True},
)
check_unused_options = _forbid_unused(
    "T216",
    "unused-option",
    tuple(name for name in _OPTIONAL if name not in (*_PADS, *_FEATURES, "waves", "mma")),
    "An option of caches, gradients or scheduling that the family does not use must keep its default.",
    "as for pads, each kernel must have one name.",
    good={"blocks_per_cu": 2},
    bad={"rotary": "half"},
)


@examples(good={"mask_form": "any", "sink": 4}, bad={"sink": 4})
@_ALL.rule("T217", "sink-without-mask", "tilewright", ("sink",), when={"mask_form": "none"})
def check_sink_mask(config: Config, arch: Arch) -> Rejection | None:
    """Sinks need a mask.

    Why: sinks are keys that a window does not hide. Without a mask no key is hidden, and no problem has both.
    Fix: set mask_form, or leave sink out."""
    return Rejection(f"sink is {config.sink}, but mask_form is none", "mask_form", "any") if config.sink else None


_HOST_WAVE = 64  # lanes of a wave in the compiler's host pass (get_warp_size in ck_tile/core/arch/arch.hpp)


@examples(good={"family": "dot_do_o", "block": (64, 64)}, bad={"family": "dot_do_o", "block": (32, 64)}, arch="gfx1201")
@_ALL.rule("T218", "threads-not-whole", "tilewright", ("family", "block"))
def check_thread_count(config: Config, arch: Arch) -> Rejection | None:
    """The threads in a block must be a multiple of 64 on every GPU.

    Why: CK Tile also asserts whole waves in the host pass, which does not know the GPU and assumes waves of 64 lanes.
    Fix: use a multiple of 64 threads."""
    threads = get_tile(config).get("threads", _HOST_WAVE)
    if threads % _HOST_WAVE == 0:
        return None
    return Rejection(f"{threads} threads are not a multiple of {_HOST_WAVE}", "block")


@examples(bad={"block": (128, 128, 128, 256, 128, 256), "mma": (32, 32, 16, 32, 32, 16)})
@_ALL.rule("R401", "lds-overflow", "compiler", ("dtype", "pipeline", *_TILES, "bias", "dropout", "log_max_splits"))
def check_lds_size(config: Config, arch: Arch) -> Rejection | None:
    """The tiles of a work-group must fit into LDS.

    Why: a work-group cannot use more LDS than the GPU has.
    Fix: reduce k0 and k1 first, then n0."""
    if any(other.check(config, arch) for other in (check_block_length, check_gemm_count, check_pipeline)):
        return None
    needed = find_kind(config).lds_bytes(config, arch)
    if needed <= arch.lds.bytes:
        return None
    return Rejection(f"the tiles need {needed:,} bytes of LDS, but {arch.name} has {arch.lds.bytes:,}", "block")
