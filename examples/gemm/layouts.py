"""Read matrices row by row or column by column.

A layout has a letter for A, B and C: r for rows, c for columns that are contiguous. Each has its own kernels, and you
need no copy of a transposed matrix.
"""

import numpy as np

import tilewright as tw

kernels = tw.gemm.space(
    variant="standard", dtype="fp32", layout=["rrr", "rcr", "crr", "ccr"],
    block=(32, 32, 16), waves=(2, 2, 1), mma=(16, 16, 16), pipeline="compv3",
    scheduler="intrawave", epilogue="default", pad_m=True, pad_n=True, pad_k=True,
)  # fmt: skip
registry = tw.build(kernels, arch="gfx942")
rng = np.random.default_rng(0)
a, b = rng.integers(-4, 5, (36, 20)).astype("float32"), rng.integers(-4, 5, (20, 40)).astype("float32")
order = {"r": np.ascontiguousarray, "c": np.asfortranarray}

for layout in ("rrr", "rcr", "crr", "ccr"):
    problem = tw.gemm.Problem(m=36, n=40, k=20, dtype="fp32", layout=layout)
    c = registry.run(problem, order[layout[0]](a), order[layout[1]](b), device="emulated:gfx942")
    assert (c == a @ b).all()
    print(layout, "strides of A, B and C:", problem.stride_a, problem.stride_b, problem.stride_c)
