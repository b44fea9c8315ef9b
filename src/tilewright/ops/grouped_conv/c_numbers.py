"""The model inputs of a convolution for C programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.arch.dtypes import dtype
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, Config
from tilewright.ops.machine.c_numbers import CNumbers


def kind(config: Config) -> Mapping[str, float]:
    """Direction and types, which the arguments of a call do not contain."""
    flags = {name: float(config.direction == name) for name in (BACKWARD_DATA, BACKWARD_WEIGHT)}
    return {**flags, **{f"bits_{name}": float(dtype(getattr(config, f"dtype_{name}")).bits) for name in "abc"}}


_EXTENTS = ("input_size", "filter_size", "stride", "dilation", "left_pad", "right_pad")
_SAME = ("ndim", "n", "g", "k_batch", *_EXTENTS)
_MEMBERS = {**{name: name for name in _SAME}, "c": "channels_in", "k": "channels_out"}
C_NUMBERS = CNumbers(Path(__file__).with_name("numbers.h"), kind, _MEMBERS, length="ndim")
