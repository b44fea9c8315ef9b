"""The types of an attention kernel by one name: those of its operands, of its probabilities and of its result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Types:
    """Element types. Sums, the softmax and LSE are fp32 always."""

    qkv: str  # queries, keys, values and their gradients
    p: str  # probabilities as the second GEMM takes them
    o: str  # the result
    bias: str


DTYPES: dict[str, Types] = {
    "fp16": Types("fp16", "fp16", "fp16", "fp16"),
    "bf16": Types("bf16", "bf16", "bf16", "bf16"),
    "fp32": Types("fp32", "fp32", "fp32", "fp32"),
    "fp8": Types("fp8", "fp8", "fp8", "fp32"),
    "bf8": Types("bf8", "bf8", "bf8", "fp32"),
    "fp8fp16": Types("fp8", "fp8", "fp16", "fp32"),
    "fp8bf16": Types("fp8", "fp8", "bf16", "fp32"),
    "fp8fp32": Types("fp8", "fp8", "fp32", "fp32"),
}
