"""An attention problem: the sizes and options of one attention, of its gradient, or of one of their stages."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.base.document_values import expect_number
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.fmha.config import BIASES, MODES, ROTARIES, V_LAYOUTS
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_computation
from tilewright.ops.fmha.kinds import COMPUTATIONS
from tilewright.ops.problem_values import check_count

MASKS = ("none", "top_left", "bottom_right")
# bshd: the row of a token holds all heads (BSHD in frameworks; THD for packed sequences). bhsd: heads are outermost.
LAYOUTS = ("bshd", "bhsd")
_NO_LIMIT = -1


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Queries (batch, seqlen_q, heads, hdim_q), keys and values (batch, seqlen_k, kv_heads, …).

    `family` is the computation: `forward` and `backward` are those of frameworks, and may take several kernels; each
    of the others is computed by one kernel. In group mode, sequences have different lengths and are packed: there are
    `total_q` and `total_k` tokens, and `seqlen_q`, `seqlen_k` are the longest lengths. The lengths themselves are in
    tensors. `num_splits` above 0 splits the keys of a forward problem into that many parts.
    """

    family: str
    mode: str = "batch"
    dtype: str
    batch: int = 1
    heads: int = 1
    kv_heads: int = 0  # 0: the same as heads
    seqlen_q: int
    seqlen_k: int = 0  # 0: the same as seqlen_q
    total_q: int = 0  # group mode
    total_k: int = 0
    hdim_q: int
    hdim_v: int = 0  # 0: the same as hdim_q
    layout: str = "bshd"
    v_layout: str = "row"
    mask: str = "none"
    window_left: int = _NO_LIMIT  # visible keys before the diagonal; -1: all
    window_right: int = 0  # visible keys after it; -1: all
    sink: int = 0  # first keys that are always visible
    bias: str = "none"
    lse: bool = False
    scale: float = 0.0  # of the scores; 0: 1 / sqrt(hdim_q)
    logits_cap: float = 0.0  # scores become cap * tanh(score / cap); 0: no cap
    p_drop: float = 0.0
    drop_seed: int = 0
    drop_offset: int = 0
    store_randval: bool = False
    static_quant: bool = False
    scale_p: float = 1.0
    scale_o: float = 1.0
    num_splits: int = 0
    page_size: int = 0  # tokens per page; 0: keys and values are not in pages
    pages: int = 0  # in the whole cache; 0: as many as the sequences need
    seqlen_new: int = 0  # appendkv: tokens that are appended to each sequence
    rotary: str = "none"
    rotary_dim: int = 0  # 0: hdim_q
    bias_gradient: bool = False
    deterministic: bool = False
    dq_parts: int = 1  # stages of backward: separate partial sums of dq
    min_seqlen_q: int = 0

    def __post_init__(self) -> None:
        choose("family", self.family, COMPUTATIONS)
        for name, known in _CHOICES.items():
            choose(name, getattr(self, name), known)
        self._fill_defaults()
        for name in ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "hdim_q", "hdim_v", "dq_parts"):
            check_count(name, getattr(self, name), 1)
        for name in ("num_splits", "page_size", "pages", "seqlen_new", "rotary_dim", "sink", "min_seqlen_q"):
            check_count(name, getattr(self, name), 0)
        for name in ("window_left", "window_right"):
            check_count(name, getattr(self, name), _NO_LIMIT)
        for name in ("drop_seed", "drop_offset"):
            check_count(name, getattr(self, name), 0, 2**64 - 1)
        self._check_values()

    def _fill_defaults(self) -> None:
        stand_ins = {
            "kv_heads": self.heads,
            "seqlen_k": self.seqlen_q,
            "hdim_v": self.hdim_q,
            "scale": 1 / math.sqrt(self.hdim_q) if type(self.hdim_q) is int and self.hdim_q > 0 else 0.0,
        }
        for name, value in stand_ins.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name in _FLOATS:
            object.__setattr__(self, name, expect_number(name, getattr(self, name)))

    def _check_values(self) -> None:
        if self.heads % self.kv_heads:
            raise InvalidValueError(f"heads = {self.heads} must be a multiple of kv_heads = {self.kv_heads}")
        if not 0 <= self.p_drop < 1:
            raise InvalidValueError(f"p_drop is {self.p_drop}, must be at least 0 and below 1")
        if self.mask == "none" and (self.window_left, self.window_right, self.sink) != (_NO_LIMIT, 0, 0):
            raise InvalidValueError("a window and sinks need a mask: pass mask=top_left or mask=bottom_right")
        if self.mode == "group":
            for total, longest in (("total_q", "seqlen_q"), ("total_k", "seqlen_k")):
                tokens, length = getattr(self, total), getattr(self, longest)
                check_count(total, tokens, length)
                if tokens > length * self.batch:
                    raise InvalidValueError(
                        f"{total} = {tokens} tokens do not fit into {self.batch} sequences of at most {length}"
                    )
        elif self.total_q or self.total_k:
            raise InvalidValueError("total_q and total_k are only for group mode; in batch mode all lengths are equal")

    @property
    def paged(self) -> bool:
        return self.page_size > 0

    @property
    def rotary_size(self) -> int:
        """The number of rotated elements of a head."""
        return 0 if self.rotary == "none" else self.rotary_dim or self.hdim_q

    @property
    def flops(self) -> int:
        """Multiplications and additions of the GEMMs, masked ones included."""
        pairs = self.batch * self.heads * self.seqlen_q * self.seqlen_k
        forward = 2 * pairs * (self.hdim_q + self.hdim_v)
        return 2 * pairs * (3 * self.hdim_q + 2 * self.hdim_v) if find_computation(self).is_gradient else forward


_CHOICES = {
    "mode": MODES,
    "dtype": tuple(DTYPES),
    "layout": LAYOUTS,
    "v_layout": V_LAYOUTS,
    "mask": MASKS,
    "bias": BIASES,
    "rotary": ROTARIES,
}
_FLOATS = ("scale", "logits_cap", "p_drop", "scale_p", "scale_o")
