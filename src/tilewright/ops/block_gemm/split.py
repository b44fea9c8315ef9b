"""How a plain GEMM splits its sum among work-groups."""

from __future__ import annotations


def part_sizes(k: int, k_batch: int, mma_k: int) -> tuple[int, int]:
    """The number of products in the first and the last part of a sum of k. The latter is negative if k is too short.

    Parts consist of whole mma tiles, the same number for all but the last (SplitKBatchOffset in
    gemm/kernel/universal_gemm_kernel.hpp).
    """
    whole = -(-k // (k_batch * mma_k)) * mma_k
    return whole, k - whole * (k_batch - 1)
