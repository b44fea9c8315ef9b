"""Count the legal kernels of a space.

A space gives each field a value, a list, or "*": all values worth trying on the GPU. The report names the rules that
reject the others. Nothing is compiled.
"""

import tilewright as tw

space = tw.gemm.space(
    variant="standard",
    dtype="fp16",
    layout="rcr",
    block=[(128, 128, 32), (256, 128, 64), (256, 256, 64)],
    waves=[(2, 2, 1), (4, 1, 1)],
    mma="*",
    pipeline=["mem", "compv3", "compv4"],
    scheduler="intrawave",
    epilogue="cshuffle",
)
for gpu in ("gfx942", "gfx950"):
    print(space.report(gpu))

kernels = list(space.iter("gfx942"))
assert len(kernels) == space.count("gfx942")
print("one of them:", kernels[0].slug)
