"""One name for the element types of an attention kernel: of its operands, probabilities and result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElementTypes:
    """Element types. Sums, the softmax and LSE are always fp32."""

    qkv: str  # queries, keys, values and their gradients
    p: str  # probabilities, as the operand of the second GEMM
    o: str  # the result
    bias: str


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
