"""The kinds of convolution kernels: the directions, one file for each."""

from __future__ import annotations

from tilewright.ops.grouped_conv.kinds.backward_data import BACKWARD_DATA
from tilewright.ops.grouped_conv.kinds.backward_weight import BACKWARD_WEIGHT
from tilewright.ops.grouped_conv.kinds.forward import FORWARD

KINDS = (FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT)
