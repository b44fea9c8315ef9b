"""Compute sizes that a kernel does not support.

A kernel without padding needs whole blocks. The error lists the reasons; with `pad=True` a larger problem is computed
in copies with zeros, and the result is cut. Nothing is padded unless you ask for it.
"""

import numpy as np

import tilewright as tw

kernel = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
)  # fmt: skip
registry = tw.build([kernel], arch="gfx942")
problem = tw.gemm.Problem(m=60, n=100, k=50, dtype="fp16", layout="rcr")
rng = np.random.default_rng(0)
a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((60, 50), (50, 100)))

with tw.Device("emulated:gfx942"):
    try:
        registry.run(problem, a, b)
    except tw.errors.UnsupportedError as error:
        print("\n".join(str(error).splitlines()[0].split(". ")))
    print(registry.plan(problem, pad=True).stages[0].padding)
    c = registry.run(problem, a, b, pad=True)
assert (c == a @ b).all()
