"""The config of an attention kernel: all fields that change the kernel, and no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import choose
from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, DtypeType, FlagType, IntegerListType, config_field
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_kind
from tilewright.ops.fmha.kinds import KINDS, PIPELINES

MODES = ("batch", "group")
BIASES = ("none", "elementwise", "alibi")
ROTARIES = ("none", "interleaved", "half")
V_LAYOUTS = ("row", "col")
# any: CK Tile's simplified mask, whose window is a run-time argument. causal, window: its generic masks, which fix at
# compile time whether there is a window on the left.
MASK_FORMS = ("none", "any", "causal", "window")
# How batch_prefill finds the pages of a sequence: in one list for all of them, as SGLang has it, or in a table with a
# row for each, as vLLM has it.
PAGE_LOOKUPS = ("list", "table")
# The order of the elements of a page: token by token, or in vectors of 16 bytes (see `tensors`).
KV_LAYOUTS = ("linear", "vectorised")

PAD_FIELDS = ("pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v")
PAD_PRESETS: dict[str, tuple[Any, ...]] = {
    "none": (False, False, 0, 0),  # whole tiles of queries, keys and heads
    "queries": (True, False, 0, 0),  # any number of queries, whole tiles of keys
    "lengths": (True, True, 0, 0),  # any lengths of sequences, heads as large as the tiles
    "vectors": (True, True, 8, 8),  # and smaller heads that are multiples of 8
    "any": (True, True, 1, 1),  # and any smaller heads
    "heads": (False, False, 8, 8),  # smaller heads, for families that always pad lengths
}


def get_padding_preset(name: str) -> tuple[Any, ...]:
    """Return the values of the four fields."""
    return PAD_PRESETS[choose("pads of fmha", name, PAD_PRESETS)]


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """The compile-time fields of one kernel. Fields that a family does not use keep their default."""

    family: str = config_field(ChoiceType(tuple(kind.name for kind in KINDS)), "the computation of the kernel")
    mode: str = config_field(
        ChoiceType(MODES), "batch: sequences of one length; group: sequences of any lengths, packed"
    )
    dtype: str = config_field(DtypeType(tuple(DTYPES)), "types of the operands and the result")
    pipeline: str = config_field(ChoiceType(PIPELINES), "CK Tile's pipeline")
    block: tuple[int, ...] = config_field(
        IntegerListType(2, 9), "tile of one work-group: six integers, nine for dq_dk_dv, fewer without a GEMM", tag="b"
    )
    waves: tuple[int, ...] = config_field(
        IntegerListType(0, 9), "waves along m, n, k of each GEMM", tag="w", default=()
    )
    mma: tuple[int, ...] = config_field(
        IntegerListType(0, 9), "matrix-instruction tile m, n, k of each GEMM", tag="mma", default=()
    )
    pad_q: bool = config_field(FlagType(), "queries need not be a multiple of m0", tag="padq", default=False)
    pad_k: bool = config_field(FlagType(), "keys need not be a multiple of n0", tag="padk", default=False)
    pad_hdim_q: int = config_field(
        CountType(0, 8), "a problem's hdim_q may be smaller: 1 any size, 8 a multiple of 8", tag="padhq", default=0
    )
    pad_hdim_v: int = config_field(
        CountType(0, 8), "a problem's hdim_v may be smaller: 1 any size, 8 a multiple of 8", tag="padhv", default=0
    )
    mask_form: str = config_field(
        ChoiceType(MASK_FORMS), "the compiled-in mask; any takes its window at run time", tag="mask_", default="none"
    )
    sink: int = config_field(CountType(0, 4096), "first keys that a window never masks", tag="sink", default=0)
    bias: str = config_field(ChoiceType(BIASES), "the bias that is added to the scores", tag="bias_", default="none")
    lse: bool = config_field(FlagType(), "store the log of the sum of exponentials", tag="lse", default=False)
    soft_cap: bool = config_field(FlagType(), "cap scores with a tanh", tag="cap", default=False)
    dropout: bool = config_field(FlagType(), "drop probabilities at random", tag="drop", default=False)
    store_randval: bool = config_field(
        FlagType(),
        "backward: store the random numbers (a run-time argument of forward kernels)",
        tag="rand",
        default=False,
    )
    static_quant: bool = config_field(
        FlagType(), "8-bit results with scales from the caller", tag="quant", default=False
    )
    v_layout: str = config_field(
        ChoiceType(V_LAYOUTS), "row: values are laid out like keys; col: transposed", tag="v", default="row"
    )
    paged: bool = config_field(
        FlagType(), "keys and values are in pages, with a page table", tag="paged", default=False
    )
    uneven_splits: bool = config_field(
        FlagType(), "splitkv: parts need not be multiples of n0", tag="uneven", default=False
    )
    merge_heads: bool = config_field(
        FlagType(), "splitkv: query heads that share keys are computed together", tag="merge", default=False
    )
    log_max_splits: int = config_field(
        CountType(0, 10), "combine: log2 of the largest number of parts", tag="splits", default=0
    )
    rotary: str = config_field(
        ChoiceType(ROTARIES), "appendkv: the rotary embedding of queries and new keys", tag="rope_", default="none"
    )
    bias_gradient: bool = config_field(
        FlagType(), "backward: compute the gradient of the bias", tag="dbias", default=False
    )
    deterministic: bool = config_field(
        FlagType(),
        "backward: sum query gradients in a fixed order, not with atomic adds",
        tag="det",
        default=False,
    )
    max_seqlen_q: int = config_field(
        CountType(0, 4096), "backward: the largest number of queries; 0: no limit", tag="maxq", default=0
    )
    skip_min_seqlen_q: bool = config_field(
        FlagType(), "skip sequences that have at most a run-time number of queries", tag="skip", default=False
    )
    blocks_per_cu: int = config_field(
        CountType(0, 16),
        "target work-groups per compute unit (a launch bound, which limits registers); 0: CK Tile's own choice",
        tag="o",
        default=0,
    )
    page_size: int = config_field(
        CountType(1, 65536), "batch_prefill: tokens per page", tag="page", default=1, newer=True
    )
    kv_layout: str = config_field(
        ChoiceType(KV_LAYOUTS),
        "batch_prefill: order in a page, token by token or in vectors of 16 bytes",
        tag="kv_",
        default="linear",
        newer=True,
    )
    page_lookup: str = config_field(
        ChoiceType(PAGE_LOOKUPS),
        "batch_prefill: pages of a sequence are in one list for all (SGLang) or in a row of a table (vLLM)",
        tag="by_",
        default="list",
        newer=True,
    )

    @property
    def tile(self) -> dict[str, int]:
        """The numbers of the block by name. Only for blocks of the family's length (rule T207)."""
        return dict(zip(find_kind(self).block, self.block, strict=True))

    @property
    def hdim_q(self) -> int:
        """The tiles' head size of queries and keys; 0 for a family without them."""
        return self.tile.get("hdim_q", 0)

    @property
    def hdim_v(self) -> int:
        """The tiles' head size of values; 0 for a family without them."""
        tile = self.tile
        return tile.get("hdim_v", tile.get("n1", 0))
