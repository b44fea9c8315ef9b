"""Split a long sum over several work-groups.

A small result with a long sum needs few work-groups, and most of a GPU stays idle. With `k_batch=4`, four times as many
work-groups each add a quarter of the sum to C, atomically.
"""

import numpy as np

import tilewright as tw

kernel = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(16, 64, 128),
    waves=(1, 4, 1), mma=(16, 16, 32), pipeline="mem", scheduler="intrawave",
    epilogue="cshuffle", pad_m=True, pad_n=True, pad_k=True, split_k=True,
)  # fmt: skip
registry = tw.build([kernel], arch="gfx942")
rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, shape).astype(np.float16) for shape in ((16, 2048), (2048, 64)))
expected = a.astype(float) @ b.astype(float)

device = tw.Device("emulated:gfx942")
for parts in (1, 4):
    problem = tw.gemm.Problem(m=16, n=64, k=2048, dtype="fp16", layout="rcr", k_batch=parts)
    with device, device.recording() as launches:
        c = registry.run(problem, a, b)
    grid, atomics = launches[-1].grid, launches[-1].counters.atomics
    error = np.abs(c - expected).max()
    print(f"k_batch {parts}: work-groups {grid.x * grid.y * grid.z}, atomics {atomics}, largest error {error:.3f}")
    assert error < 0.1
