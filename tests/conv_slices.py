"""A model of what CK Tile's gradient of the input writes along one dimension.

As in transform_conv_bwd_data_to_gemm.hpp: one GEMM for each tap below the stride (divided by its common divisor with
the dilation), over the steps of a slice that is the same for all of them.
"""

from __future__ import annotations

import math


def written(size: int, output: int, filter_: int, stride: int, dilation: int, left_pad: int) -> list[int]:
    """The inputs that are written, each as often as it is."""
    tilde = stride // math.gcd(stride, dilation)
    steps = output + -(-dilation * (filter_ - 1) // stride)
    begin = max(0, left_pad - dilation * (tilde - 1)) // stride
    end = min(steps, -(-(left_pad + size - 1) // stride) + 1)
    places = (h * stride + tap * dilation - left_pad for tap in range(min(filter_, tilde)) for h in range(begin, end))
    return [place for place in places if 0 <= place < size]
