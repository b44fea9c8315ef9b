"""The bytes that attention kernels read from and write to memory, each counted once: parts of the model inputs.

Written in the arithmetic of `cost_model.arithmetic`, since they are also translated to C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ops.cost_model.arithmetic import Number
from tilewright.ops.fmha.element_types import DTYPES, FP32_BYTES, ElementTypes

if TYPE_CHECKING:
    from tilewright.ops.fmha.problem import Problem

Traffic = tuple[Number, Number]  # read, written


@dataclass(frozen=True, slots=True)
class TensorSizes:
    """Sizes of a problem's tensors: elements of q and o, and bytes of the others.

    `queries` and `keys` are those of one sequence; of the keys, those that a query sees.
    """

    problem: Problem
    queries: Number
    keys: Number

    @property
    def types(self) -> ElementTypes:
        return DTYPES[self.problem.dtype]

    @property
    def rows(self) -> Number:
        return 1.0 * (self.problem.batch * self.queries * self.problem.heads)

    @property
    def q(self) -> Number:
        return self.rows * self.problem.hdim_q

    @property
    def o(self) -> Number:
        return self.rows * self.problem.hdim_v

    @property
    def per_row(self) -> Number:
        """Bytes of one number for each query, such as LSE."""
        return self.rows * FP32_BYTES

    @property
    def parts(self) -> Number:
        """Bytes of the partial results of split keys, with their LSE."""
        return self.problem.num_splits * (self.o * FP32_BYTES + self.per_row)

    @property
    def bias(self) -> Number:
        scores = self.rows * self.keys
        return scores * self.types.bias_bytes * (self.problem.bias == "elementwise")

    @property
    def random_numbers(self) -> Number:
        return self.rows * self.keys * self.problem.store_randval

    def count_kv(self, tokens: Number) -> Number:
        """Bytes of the keys and values of so many tokens in each sequence."""
        p = self.problem
        return p.batch * tokens * p.kv_heads * (p.hdim_q + p.hdim_v) * self.types.qkv_bytes

    @property
    def operands(self) -> Number:
        """Bytes of queries, keys, values and bias."""
        return self.q * self.types.qkv_bytes + self.count_kv(self.keys) + self.bias

    @property
    def results(self) -> Number:
        """Bytes of o and, if it is stored, LSE."""
        return self.o * self.types.o_bytes + self.per_row * self.problem.lse


def count_attention_bytes(sizes: TensorSizes) -> Traffic:
    """Attention in one kernel."""
    return sizes.operands, sizes.results + sizes.random_numbers
