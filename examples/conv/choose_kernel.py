"""Choose the kernel of a convolution yourself.

`select` ranks the kernels, and `run(…, kernel=…)` takes the one that you name. Both kernels give the same result; the
counters of the emulated device show their difference.
"""

import numpy as np

import tilewright as tw

same = {
    "direction": "forward", "ndim": 2, "dtype": "fp16", "block": (64, 64, 32),
    "waves": (2, 2, 1), "pipeline": "compv3", "scheduler": "intrawave",
    "epilogue": "cshuffle",
}  # fmt: skip
configs = [
    tw.grouped_conv.config(mma=(16, 16, 32), vector=(8, 8, 8), **same),
    tw.grouped_conv.config(mma=(16, 16, 32), vector=(1, 1, 8), **same),
]
registry = tw.build(configs, arch="gfx942")
problem = tw.grouped_conv.Problem(
    direction="forward", n=1, c=16, k=64, input_size=(8, 8), filter_size=3, pad=1, dtype="fp16"
)
rng = np.random.default_rng(0)
image = rng.integers(-2, 3, (1, 8, 8, 1, 16)).astype(np.float16)
weight = rng.integers(-2, 3, (1, 64, 3, 3, 16)).astype(np.float16)
results = []
device = tw.Device("emulated:gfx942")
for choice in registry.select(problem):
    with device, device.recording() as launches:
        results.append(registry.run(problem, image, weight, kernel=choice.kernel))
    loads = launches[-1].counters.instructions["global"]
    print(f"vector {choice.kernel.config.vector}: expected {choice.us:.2f} µs, {loads} accesses to memory")
assert (results[0] == results[1]).all()
