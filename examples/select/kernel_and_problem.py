"""Ask which problems a kernel supports.

A legal kernel does not support every problem. `fits` lists all reasons; an empty list means that it does.
"""

import tilewright as tw

config = tw.gemm.config(
    variant="standard",
    dtype="fp16",
    layout="rcr",
    block=(128, 128, 32),
    waves=(2, 2, 1),
    mma=(32, 32, 16),
    pipeline="compv3",
    scheduler="intrawave",
    epilogue="cshuffle",
)
supported = []
for m, n, k in ((4096, 4096, 512), (4096, 4000, 512), (4096, 4096, 500)):
    problem = tw.gemm.Problem(m=m, n=n, k=k, dtype="fp16", layout="rcr")
    reasons = tw.fits(config, problem, "gfx942")
    print(f"{m} × {n} × {k}:", "; ".join(map(str, reasons)) or "supported")
    supported.append(not reasons)
assert supported == [True, False, False]
