"""Filter the kernels of the preselected sets by their fields.

A set is a short list of kernels for a purpose. `tw.kernels` has those of all sets of an op; nothing is built.
"""

import tilewright as tw

latency = tw.sets("gemm", gpu="gfx942")["fp16_rcr_latency"]
print(latency.doc)
for kernel in latency.kernels("gfx942"):
    print(" ", kernel.config.block, kernel.config.pipeline, "split K" if kernel.config.split_k else "")

found = tw.kernels("gemm", "gfx942", dtype="bf16", layout="rcr", pipeline="compv4")
print("compv4 in bf16:", ", ".join(str(kernel.config.block) for kernel in found))
assert {(kernel.config.dtype_a, kernel.config.pipeline) for kernel in found} == {("bf16", "compv4")}
