"""An attention problem: the sizes and options of one attention, of its gradient, or of one of their stages."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import InvalidValueError
from tilewright.ops.cost_model.arithmetic import sqrt
from tilewright.ops.fields import ChoiceType, DtypeType, FlagType
from tilewright.ops.fmha.config import BIASES, KV_LAYOUTS, MODES, PAGE_LOOKUPS, ROTARIES, V_LAYOUTS
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_computation
from tilewright.ops.fmha.kinds import COMPUTATIONS
from tilewright.ops.problem_field import Derived, IntegerType, NumberType, ProblemBase, problem_field

MASKS = ("none", "top_left", "bottom_right")
# bshd: the row of a token holds all heads (BSHD in frameworks; THD for packed sequences). bhsd: heads are outermost.
LAYOUTS = ("bshd", "bhsd")
# Accepted where both corners mean the same.
CAUSAL = "causal"
_NO_LIMIT = -1
# Of a cache in vectors: block/block_attention_kvcache_layout_enum.hpp, kVectorSize.
VECTOR_BYTES = 16

_SIZE = IntegerType()
_COUNT = IntegerType(0)
_WINDOW = IntegerType(_NO_LIMIT)
_SEED = IntegerType(0, 2**64 - 1)
_FLAG = FlagType()
_NUMBER = NumberType()


def _find_corner(problem: Problem) -> str:
    """The mask that `causal` stands for. Libraries use it for both corners, which agree for equal lengths only."""
    if problem.mode == "batch" and problem.seqlen_k in (0, problem.seqlen_q):
        return "top_left"
    raise InvalidValueError(
        "mask='causal' has two meanings unless all sequences have as many keys as queries: pass 'top_left' "
        "(as torch's is_causal=True) or 'bottom_right' (as FlashAttention's causal=True)"
    )


class Problem(ProblemBase):
    """Queries (batch, seqlen_q, heads, hdim_q), keys and values (batch, seqlen_k, kv_heads, …).

    `family` is the computation: `forward` and `backward` are those of frameworks, and may take several kernels; each
    of the others is computed by one kernel. In group mode, sequences have different lengths and are packed: there are
    `total_q` and `total_k` tokens, and `seqlen_q`, `seqlen_k` are the longest lengths. The lengths themselves are in
    tensors. `num_splits` above 0 splits the keys of a forward problem into that many parts.
    """

    family: str = problem_field(
        ChoiceType(tuple(COMPUTATIONS)), "the computation: forward, backward, or one of their stages"
    )
    mode: str = problem_field(
        ChoiceType(MODES), "batch: sequences of equal lengths; group: packed sequences of any lengths", default="batch"
    )
    dtype: str = problem_field(DtypeType(tuple(DTYPES)), "element type")
    batch: int = problem_field(_SIZE, "number of sequences", default=1)
    heads: int = problem_field(_SIZE, "heads of the queries", default=1)
    kv_heads: int = problem_field(_COUNT, "heads of keys and values", default=0, stands_for="heads")
    seqlen_q: int = problem_field(_SIZE, "queries of a sequence; in group mode, of the longest")
    seqlen_k: int = problem_field(
        _COUNT, "keys of a sequence; in group mode, of the longest", default=0, stands_for="seqlen_q"
    )
    total_q: int = problem_field(_COUNT, "group mode: queries of all sequences", default=0)
    total_k: int = problem_field(_COUNT, "group mode: keys of all sequences", default=0)
    hdim_q: int = problem_field(_SIZE, "elements of a head of queries and keys")
    hdim_v: int = problem_field(_COUNT, "elements of a head of values", default=0, stands_for="hdim_q")
    layout: str = problem_field(
        ChoiceType(LAYOUTS), "order of dimensions: batch, sequence, heads, elements; or heads first", default="bshd"
    )
    v_layout: str = problem_field(ChoiceType(V_LAYOUTS), "memory order of the values", default="row")
    mask: str = problem_field(
        ChoiceType(MASKS),
        "causal mask: the corner of the scores where the diagonal starts",
        default="none",
        resolves={CAUSAL: _find_corner},
    )
    window_left: int = problem_field(_WINDOW, "visible keys before the diagonal; -1: all", default=_NO_LIMIT)
    window_right: int = problem_field(_WINDOW, "visible keys after the diagonal; -1: all", default=0)
    sink: int = problem_field(_COUNT, "first keys that are always visible", default=0)
    bias: str = problem_field(ChoiceType(BIASES), "added to the scores", default="none")
    lse: bool = problem_field(_FLAG, "also computes the logarithm of the sum of exponentials", default=False)
    scale: float = problem_field(
        _NUMBER,
        "factor of the scores",
        default=0.0,
        stands_for=Derived("1 / sqrt(hdim_q)", lambda problem: 1 / sqrt(problem.hdim_q)),
    )
    logits_cap: float = problem_field(
        _NUMBER, "scores become cap * tanh(score / cap); 0: they stay as they are", default=0.0
    )
    p_drop: float = problem_field(NumberType(0, 1), "probability of dropout", default=0.0)
    drop_seed: int = problem_field(_SEED, "seed of dropout's random numbers", default=0)
    drop_offset: int = problem_field(_SEED, "offset of dropout's random numbers", default=0)
    store_randval: bool = problem_field(_FLAG, "also stores dropout's random numbers", default=False)
    static_quant: bool = problem_field(_FLAG, "scales probabilities and the result with fixed factors", default=False)
    scale_p: float = problem_field(_NUMBER, "static_quant: factor of the probabilities", default=1.0)
    scale_o: float = problem_field(_NUMBER, "static_quant: factor of the result", default=1.0)
    num_splits: int = problem_field(_COUNT, "parts that the keys are split into; 0: not split", default=0)
    page_size: int = problem_field(_COUNT, "tokens per page; 0: keys and values are not in pages", default=0)
    pages: int = problem_field(_COUNT, "pages of the whole cache; 0: as many as the sequences need", default=0)
    seqlen_new: int = problem_field(_COUNT, "appendkv: tokens that are appended to each sequence", default=0)
    rotary: str = problem_field(ChoiceType(ROTARIES), "appendkv: rotary position embedding", default="none")
    rotary_dim: int = problem_field(_COUNT, "rotated elements of a head; 0: all", default=0)
    bias_gradient: bool = problem_field(_FLAG, "also computes the gradient of the bias", default=False)
    deterministic: bool = problem_field(_FLAG, "sums the gradient of the queries in a fixed order", default=False)
    dq_parts: int = problem_field(_SIZE, "stages of backward: separate partial sums of dq", default=1)
    min_seqlen_q: int = problem_field(_COUNT, "sequences with fewer queries are skipped", default=0)
    kv_layout: str = problem_field(
        ChoiceType(KV_LAYOUTS),
        "batch_prefill: order in a page, token by token or in vectors of 16 bytes",
        default="linear",
        newer=True,
    )
    page_lookup: str = problem_field(
        ChoiceType(PAGE_LOOKUPS),
        "batch_prefill: pages are in page_list (SGLang) or in page_table (vLLM)",
        default="list",
        newer=True,
    )
    listed_pages: int = problem_field(
        _COUNT, "batch_prefill: length of page_list; 0: as many pages as the sequences need", default=0, newer=True
    )
    sink_logits: bool = problem_field(
        _FLAG, "batch_prefill: softmax has one more score for each head, without a value", default=False, newer=True
    )

    def check_values(self) -> None:
        if self.heads % self.kv_heads:
            raise InvalidValueError(f"heads = {self.heads} must be a multiple of kv_heads = {self.kv_heads}")
        if self.mask == "none" and (self.window_left, self.window_right, self.sink) != (_NO_LIMIT, 0, 0):
            raise InvalidValueError("a window and sinks need a mask: pass mask=top_left or mask=bottom_right")
        if self.mode == "group":
            for total, longest in (("total_q", "seqlen_q"), ("total_k", "seqlen_k")):
                tokens, length = getattr(self, total), getattr(self, longest)
                if tokens < length:
                    raise InvalidValueError(f"{total} is {tokens}, but the longest sequence has {length} tokens")
                if tokens > length * self.batch:
                    raise InvalidValueError(
                        f"{total} = {tokens} tokens do not fit into {self.batch} sequences of at most {length}"
                    )
        elif self.total_q or self.total_k:
            raise InvalidValueError("total_q and total_k are only for group mode; in batch mode all lengths are equal")

        if self.sink_logits and "sink_logits" not in find_computation(self).inputs:
            raise InvalidValueError("sink_logits is only for batch_prefill")
        self._check_pages()

    def _check_pages(self) -> None:
        """Require forms of pages that there are. Kernels require heads of whole vectors (rule S603)."""
        for name, usual in (("kv_layout", KV_LAYOUTS[0]), ("page_lookup", PAGE_LOOKUPS[0])):
            value = getattr(self, name)
            if value != usual and not find_computation(self).lists_pages:
                raise InvalidValueError(f"{name} = {value} is only for batch_prefill")
        if self.kv_layout == "vectorised" and (self.page_size < 1 or self.page_size % self.vector_size):
            raise InvalidValueError(
                f"page_size is {self.page_size}, vectorised pages need a multiple of {self.vector_size}"
            )

    @property
    def vector_size(self) -> int:
        """Elements of keys and values in 16 bytes."""
        return VECTOR_BYTES // find_dtype(DTYPES[self.dtype].qkv).storage_bytes

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
