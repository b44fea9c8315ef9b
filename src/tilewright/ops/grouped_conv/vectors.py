"""The channels along the vectors of a kernel."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD

# For the vectors of a, b and c: the channels of the input or those of the output, of one group.
VECTOR_CHANNELS = {
    FORWARD: ("c", "c", "k"),
    BACKWARD_DATA: ("k", "c", "c"),
    BACKWARD_WEIGHT: ("k", "c", "c"),
}


def channel_units(config: Any) -> tuple[int, int]:
    """The numbers that must divide the input and output channels of one group: the vectors along them."""
    along = list(zip(VECTOR_CHANNELS[config.direction], config.vector, strict=True))
    c, k = (math.lcm(*(vector for letter, vector in along if letter == wanted)) for wanted in ("c", "k"))
    return c, k
