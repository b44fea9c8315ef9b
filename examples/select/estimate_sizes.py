"""Watch the best block change with the number of rows.

The expected time of each kernel follows from the problem, the config and the GPU, so you can compare kernels before you
build any.
"""

import tilewright as tw

registry = tw.Registry.of(["fp16_rcr_essential", "fp16_rcr_latency"], "gfx942")
blocks = []
for m in (1, 16, 128, 512, 2048, 8192):
    problem = tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr")
    best = registry.select(problem, built=False).best
    tflops = problem.flops / best.us / 1e6
    limit = max(best.terms, key=best.terms.get)
    print(f"m = {m:5}: block {best.kernel.config.block!s:12} {best.us:7.1f} µs, {tflops:5.1f} TFLOPS, most in {limit}")
    blocks.append(best.kernel.config.block)
assert blocks[0].m < blocks[-1].m
