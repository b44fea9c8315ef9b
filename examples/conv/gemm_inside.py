"""See the GEMM inside a convolution.

CK Tile computes a convolution as a GEMM whose matrices are never stored. Its sizes tell you which blocks suit a layer:
gradients of weights have a long sum and a small result.
"""

from dataclasses import replace

import tilewright as tw

layers = {
    "first layer of a ResNet": {"c": 3, "k": 64, "input_size": (224, 224), "filter_size": 7, "stride": 2, "pad": 3},
    "3 × 3 in the middle": {"c": 128, "k": 128, "input_size": (28, 28), "filter_size": 3, "pad": 1},
    "1 × 1 at the end": {"c": 512, "k": 2048, "input_size": (7, 7), "filter_size": 1},
}
for name, sizes in layers.items():
    forward = tw.grouped_conv.Problem(direction="forward", n=32, dtype="fp16", **sizes)
    print(f"{name}, {forward.flops / 1e9:.1f} GFLOP")
    for direction in ("forward", "backward_data", "backward_weight"):
        m, n, k = tw.grouped_conv.compute_gemm_sizes(replace(forward, direction=direction))
        print(f"  {direction:15} {m:7} × {n:5} × {k:6}")
        assert direction != "forward" or 2 * m * n * k == forward.flops
