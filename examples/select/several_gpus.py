"""Declare kernels for several GPUs at once, and see on which they are legal.

`"*"` stands for different values on each GPU: their matrix tiles differ. `report_by` counts by the values of a field.
"""

import tilewright as tw

space = tw.gemm.space(
    variant="standard",
    dtype="fp8",
    layout="rcr",
    block={"m": [64, 128], "n": [64, 128], "k": [64, 128]},
    waves="*",
    mma="*",
    pipeline="*",
    scheduler="intrawave",
    epilogue="cshuffle",
)
counts = {gpu: space.count(gpu) for gpu in ("gfx90a", "gfx942", "gfx950", "gfx1201")}
print("fp8 kernels:", counts)
for pipeline, report in space.report_by("pipeline", "gfx950").items():
    print(f"{pipeline:12} {report.legal:5} of {report.raw:5}")
assert counts["gfx90a"] == 0  # it has no matrix instructions for fp8
