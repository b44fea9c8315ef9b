"""A sorting problem: its run-time values, its tensors, and the C struct with which a kernel is called."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import InvalidValueError
from tilewright.ops.call_struct import CallStruct, declare_numbers, declare_pointer
from tilewright.ops.execution import Tensor
from tilewright.ops.fields import FlagType
from tilewright.ops.problem_field import IntegerType, ProblemBase, problem_field
from tilewright.ops.strides import check_strides, packed_strides

MOST_TOKENS = 2**24 - 1  # the token of an entry has 24 bits, and one more number means that there is none
MOST_SIZE = 2**20  # experts, and entries of a block: far more than kernels support
MOST_RESULTS = 255  # the place among the experts of a token has 8 bits


class Problem(ProblemBase):
    """The pairs of tokens and experts, sorted by expert: the rows of each expert's matrix product.

    `topk_ids` has k experts of each token. Each expert's pairs, in the order of tokens, fill blocks of `unit` entries.
    An entry of `sorted_ids` is token + 2²⁴ · place, where place counts the experts of the token from 0; in entries that
    fill up a block, token is the number of tokens, place is k, and the weight is 0. `sorted_experts` has the expert of
    each block; `totals` the number of entries, and that of tokens. Behind these entries, results are not written. With
    `masked`, only experts whose `expert_mask` is 1 are sorted, and they are numbered without the others.

    Experts below 0, and from `experts` on, are left out. Of equal experts of a token, only the last is sorted; entries
    of the others fill up the expert's blocks.
    """

    tokens: int = problem_field(IntegerType(1, MOST_TOKENS), "number of tokens")
    experts: int = problem_field(IntegerType(1, MOST_SIZE), "number of experts")
    k: int = problem_field(IntegerType(1, MOST_RESULTS), "experts of each token")
    unit: int = problem_field(
        IntegerType(1, MOST_SIZE), "entries of a block: rows of a tile of the product that follows"
    )
    masked: bool = problem_field(FlagType(), "only experts with mask 1 are on this GPU", default=False)
    keep_empty: bool = problem_field(FlagType(), "an expert without tokens has one block, too", default=False)

    def check_values(self) -> None:
        if self.k > self.experts:
            raise InvalidValueError(f"k is {self.k}, but there are {self.experts} experts, all of a token different")

    @property
    def entries(self) -> int:
        """The most entries that blocks have: every expert may have unit - 1 that fill up its last block, or, if it is
        kept without tokens, unit of them. All tokens may have the same expert."""
        return self.tokens * self.k + self.experts * self.unit - (1 if self.keep_empty else self.k)

    @property
    def blocks(self) -> int:
        return (self.entries + self.unit - 1) // self.unit

    @property
    def flops(self) -> int:
        """None: pairs are counted and moved."""
        return 0

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: pairs are read once, and entries are written once, of 8 bytes each."""
        return 8 * self.tokens * self.k + 8 * self.entries + 4 * self.blocks


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct's pointers."""
    pairs, entries = (problem.tokens, problem.k), (problem.entries,)
    mask = (Tensor("expert_mask", "int32", (problem.experts,), (1,)),) if problem.masked else ()
    return (
        Tensor("topk_ids", "int32", pairs, packed_strides(pairs)),
        Tensor("topk_weights", "fp32", pairs, packed_strides(pairs)),
        *mask,
        Tensor("sorted_ids", "int32", entries, (1,), output=True),
        Tensor("sorted_weights", "fp32", entries, (1,), output=True),
        Tensor("sorted_experts", "int32", (problem.blocks,), (1,), output=True),
        Tensor("totals", "int32", (2,), (1,), output=True),
    )


def apply_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem itself: tensors must be packed."""
    check_strides(list_tensors(problem), strides, "a sorting kernel", "copy it")
    return problem


CALL = CallStruct(
    op="moe_sorting",
    title="sorting by expert",
    doc="""\
The pairs of tokens and experts, sorted by expert. topk_ids has k experts of each token. The pairs of each expert
fill blocks of `unit` entries; an entry is token + (place << 24), with the place of the expert among those of the
token, and tokens + (k << 24) with weight 0 fills up a block. sorted_experts has the expert of each block; totals
the number of entries, and that of tokens. Results behind the last entry are not written. Experts outside of 0 to
experts - 1 are left out; of equal experts of a token, the last is sorted, and entries of the others fill up blocks.
With `masked`, only experts whose mask is 1 are sorted, numbered without the others.""",
    problem_type=Problem,
    members=(
        declare_pointer("topk_ids", "int32, tokens * k"),
        declare_pointer("topk_weights", "float, tokens * k"),
        declare_pointer("expert_mask", "int32, experts; null unless masked"),
        declare_pointer("sorted_ids", "int32, at most tokens * k + experts * unit - 1", c_type="void"),
        declare_pointer("sorted_weights", "float, as many", c_type="void"),
        declare_pointer("sorted_experts", "int32, one for each `unit` of them", c_type="void"),
        declare_pointer("totals", "int32, 2", c_type="void"),
        *declare_numbers("tokens", "experts", "k", "unit"),
    ),
    places=lambda problem: tuple(tensor.name for tensor in list_tensors(problem)),
)
