"""Compare GPUs: their memory on chip, and their instruction for a matrix tile.

A GPU is known by its name or its product name. All facts are in one file for each GPU.
"""

import tilewright as tw

for name in tw.arch_names():
    gpu = tw.load(name)
    tile = gpu.mma_shapes("fp16", "fp16", "fp32").get((16, 16, 16), "no such tile")
    print(f"{name:8} {gpu.product:24} {gpu.compute.units:4} units, {gpu.lds.bytes // 1024:4} KiB of LDS, {tile}")

assert tw.load("MI300X") == tw.load("gfx942")
