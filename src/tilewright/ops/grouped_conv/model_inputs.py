"""The model inputs of a convolution for C programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.arch.dtypes import find_dtype
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, Config


def list_kind_inputs(config: Config) -> Mapping[str, float]:
    """Direction and types, which the arguments of a call do not contain."""
    flags = {name: float(config.direction == name) for name in (BACKWARD_DATA, BACKWARD_WEIGHT)}
    return {**flags, **{f"bits_{name}": float(find_dtype(getattr(config, f"dtype_{name}")).bits) for name in "abc"}}


_EXTENTS = ("input_size", "filter_size", "stride", "dilation", "left_pad", "right_pad")
_SAME = ("ndim", "n", "g", "k_batch", *_EXTENTS)
_MEMBERS = {**{name: name for name in _SAME}, "c": "channels_in", "k": "channels_out"}
C_NUMBERS = CModelInputs(Path(__file__).with_name("numbers.h"), list_kind_inputs, _MEMBERS, length="ndim")
