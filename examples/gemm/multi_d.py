"""Add another matrix to a product, in the same kernel.

Kernels of the variant `multi_d` read further matrices D and combine them with the product: `MultiDAdd` adds them, and
others apply an activation. Here D is the input of a residual connection.
"""

import numpy as np

import tilewright as tw

kernel = tw.gemm.config(
    variant="multi_d", dtype="fp32", layout="rcr", block=(32, 32, 16), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave", epilogue="default",
    pad_m=True, pad_n=True, pad_k=True, num_d=1, elementwise="MultiDAdd",
)  # fmt: skip
registry = tw.build([kernel], arch="gfx942")
problem = tw.gemm.Problem(m=40, n=48, k=64, dtype="fp32", layout="rcr", num_d=1, elementwise="MultiDAdd")
for tensor in tw.gemm.OP.execution.tensors(problem):
    print(tensor.name, tensor.shape, "out" if tensor.output else "in")

rng = np.random.default_rng(0)
a, b, d = (rng.integers(-4, 5, shape).astype("float32") for shape in ((40, 64), (64, 48), (40, 48)))
c = registry.run(problem, a, b, d, device="emulated:gfx942")
assert (c == a @ b + d).all()
print("C = A · B + D in one launch")
