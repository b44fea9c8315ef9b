"""How a plain GEMM splits its sum over work-groups."""

from __future__ import annotations


def part_sizes(k: int, k_batch: int, mma_k: int) -> tuple[int, int]:
    """Products in the first part of a sum of k, and in the last one; that has less than none where k is too short.

    Parts are whole mma tiles, the same number for all but the last (SplitKBatchOffset in
    gemm/kernel/universal_gemm_kernel.hpp).
    """
    whole = -(-k // (k_batch * mma_k)) * mma_k
    return whole, k - whole * (k_batch - 1)
