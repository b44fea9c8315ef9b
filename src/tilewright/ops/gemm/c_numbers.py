"""The model inputs of a GEMM for C programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.arch.dtypes import dtype
from tilewright.ops.gemm.config import Config
from tilewright.ops.machine.c_numbers import CNumbers


def kind(config: Config) -> Mapping[str, float]:
    """Types and the number of D tensors, which the arguments of a call do not contain."""
    bits = {f"bits_{name}": float(dtype(getattr(config, f"dtype_{name}")).bits) for name in "abc"}
    return {**bits, "num_d": float(config.num_d)}


_SAME = ("m", "n", "k", "batch", "k_batch", "stride_a", "stride_b", "stride_c")
C_NUMBERS = CNumbers(Path(__file__).with_name("numbers.h"), kind, {name: name for name in _SAME})
