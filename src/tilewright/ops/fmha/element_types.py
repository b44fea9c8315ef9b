"""The element types of attention, by the name of a combination."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.dtypes import find_dtype


@dataclass(frozen=True, slots=True)
class ElementTypes:
    """Element types. Sums, the softmax and LSE are always fp32."""

    qkv: str  # queries, keys, values and their gradients
    p: str  # probabilities, as the operand of the second GEMM
    o: str  # the result
    bias: str

    @property
    def qkv_bytes(self) -> float:
        return find_dtype(self.qkv).bits / 8

    @property
    def o_bytes(self) -> float:
        return find_dtype(self.o).bits / 8

    @property
    def bias_bytes(self) -> float:
        return find_dtype(self.bias).bits / 8


DTYPES: dict[str, ElementTypes] = {
    "fp16": ElementTypes("fp16", "fp16", "fp16", "fp16"),
    "bf16": ElementTypes("bf16", "bf16", "bf16", "bf16"),
    "fp32": ElementTypes("fp32", "fp32", "fp32", "fp32"),
    "fp8": ElementTypes("fp8", "fp8", "fp8", "fp32"),
    "bf8": ElementTypes("bf8", "bf8", "bf8", "fp32"),
    "fp8fp16": ElementTypes("fp8", "fp8", "fp16", "fp32"),
    "fp8bf16": ElementTypes("fp8", "fp8", "bf16", "fp32"),
    "fp8fp32": ElementTypes("fp8", "fp8", "fp32", "fp32"),
}
FP32_BYTES = 4  # of a sum, of LSE and of d
