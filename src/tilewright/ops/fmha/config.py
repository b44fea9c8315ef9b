"""The config of an attention kernel: every field that changes the kernel, and none that does not."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ops.fields import Choice, ConfigBase, Count, Flag, Numbers, config_field
from tilewright.ops.fmha.families import FAMILIES, PIPELINES
from tilewright.ops.fmha.types import DTYPES

MODES = ("batch", "group")
BIASES = ("none", "elementwise", "alibi")
ROTARIES = ("none", "interleaved", "half")
V_LAYOUTS = ("row", "col")
# any: CK Tile's simplified mask, whose window is a run-time fact. causal, window: its generic masks, which know at
# compile time whether there is a window on the left.
MASK_FORMS = ("none", "any", "causal", "window")


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time facts of one kernel. What a family has no use for keeps its default."""

    family: str = config_field(Choice(tuple(FAMILIES)), "what the kernel computes")
    mode: str = config_field(
        Choice(MODES), "batch: sequences of one length; group: of any lengths, one behind the other"
    )
    dtype: str = config_field(Choice(tuple(DTYPES)), "types of operands and result")
    pipeline: str = config_field(Choice(PIPELINES), "CK Tile's pipeline")
    block: tuple[int, ...] = config_field(
        Numbers(2, 9), "tile of one work-group: six numbers, nine for dq_dk_dv, fewer without a GEMM", tag="b"
    )
    waves: tuple[int, ...] = config_field(Numbers(0, 9), "waves along m, n, k of each GEMM", tag="w", default=())
    mma: tuple[int, ...] = config_field(
        Numbers(0, 9), "matrix-instruction tile m, n, k of each GEMM", tag="mma", default=()
    )
    pad_q: bool = config_field(Flag(), "the queries' number need not be a multiple of m0", tag="padq", default=False)
    pad_k: bool = config_field(Flag(), "the keys' number need not be a multiple of n0", tag="padk", default=False)
    pad_hdim_q: int = config_field(
        Count(0, 8), "hdim_q of a problem may be less: 1 any, 8 a multiple of 8", tag="padhq", default=0
    )
    pad_hdim_v: int = config_field(
        Count(0, 8), "hdim_v of a problem may be less: 1 any, 8 a multiple of 8", tag="padhv", default=0
    )
    mask_form: str = config_field(
        Choice(MASK_FORMS), "which mask is compiled in; any takes its window at run time", tag="mask_", default="none"
    )
    sink: int = config_field(Count(0, 4096), "first keys that a window never masks", tag="sink", default=0)
    bias: str = config_field(Choice(BIASES), "what is added to the scores", tag="bias_", default="none")
    lse: bool = config_field(Flag(), "the log of the sum of exponentials is stored", tag="lse", default=False)
    soft_cap: bool = config_field(Flag(), "scores are capped by a tanh", tag="cap", default=False)
    dropout: bool = config_field(Flag(), "probabilities are dropped at random", tag="drop", default=False)
    store_randval: bool = config_field(
        Flag(),
        "backward: the random numbers are stored (forward kernels are told at run time)",
        tag="rand",
        default=False,
    )
    static_quant: bool = config_field(Flag(), "8-bit results with scales of the caller", tag="quant", default=False)
    v_layout: str = config_field(
        Choice(V_LAYOUTS), "row: values lie as keys do; col: transposed", tag="v", default="row"
    )
    paged: bool = config_field(Flag(), "keys and values are in pages that a table names", tag="paged", default=False)
    uneven_splits: bool = config_field(
        Flag(), "splitkv: parts need not be multiples of n0", tag="uneven", default=False
    )
    merge_heads: bool = config_field(
        Flag(), "splitkv: query heads that share keys are computed together", tag="merge", default=False
    )
    log_max_splits: int = config_field(
        Count(0, 10), "combine: at most two to the power of this many parts", tag="splits", default=0
    )
    rotary: str = config_field(
        Choice(ROTARIES), "appendkv: how queries and new keys are rotated", tag="rope_", default="none"
    )
    bias_gradient: bool = config_field(Flag(), "backward: the bias has a gradient", tag="dbias", default=False)
    deterministic: bool = config_field(
        Flag(),
        "backward: gradients of queries are summed in a fixed order, not by atomic adds",
        tag="det",
        default=False,
    )
    max_seqlen_q: int = config_field(
        Count(0, 4096), "backward: no more queries than this; 0 is no limit", tag="maxq", default=0
    )
    skip_min_seqlen_q: bool = config_field(
        Flag(), "sequences with no more queries than a run-time number are left out", tag="skip", default=False
    )
    blocks_per_cu: int = config_field(
        Count(0, 16),
        "work-groups per compute unit that the compiler plans for; 0: CK Tile's own choice",
        tag="o",
        default=0,
    )

    @property
    def tile(self) -> dict[str, int]:
        """The numbers of the block by name. Only for blocks of the family's length (rule T201)."""
        return dict(zip(FAMILIES[self.family].block, self.block, strict=True))

    @property
    def hdim_q(self) -> int:
        """Head size of queries and keys that the tiles hold; 0 for a family without them."""
        return self.tile.get("hdim_q", 0)

    @property
    def hdim_v(self) -> int:
        """Head size of values that the tiles hold; 0 for a family without them."""
        tile = self.tile
        return tile.get("hdim_v", tile.get("n1", 0))


__all__ = ["BIASES", "MASK_FORMS", "MODES", "ROTARIES", "V_LAYOUTS", "Config"]
