"""Products of torch on the CPU, as a reference."""

from __future__ import annotations

from typing import Any


def multiply_scaled(a: Any, b: Any, scale_a: Any, scale_b: Any, dtype: Any) -> Any:
    """Return torch's scaled product of 8-bit floats.

    Without oneDNN: on CPUs with AMX, torch 2.13 passes it products with one scale per tensor, and it rejects fnuz
    types.
    """
    import torch

    before = torch.backends.mkldnn.set_flags(_enabled=False)
    try:
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=dtype)
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before[0])
