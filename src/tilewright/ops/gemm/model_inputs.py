"""The model inputs of a GEMM for C programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.arch.dtypes import find_dtype
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.gemm.config import Config


def list_kind_inputs(config: Config) -> Mapping[str, float]:
    """Types and the number of D tensors, which the arguments of a call do not contain."""
    bits = {f"bits_{name}": float(find_dtype(getattr(config, f"dtype_{name}")).bits) for name in "abc"}
    return {**bits, "num_d": float(config.num_d)}


_SAME = ("m", "n", "k", "batch", "k_batch", "stride_a", "stride_b", "stride_c")
C_NUMBERS = CModelInputs(Path(__file__).with_name("numbers.h"), list_kind_inputs, {name: name for name in _SAME})
