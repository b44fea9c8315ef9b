"""Read the registers, the LDS and the instructions of a compiled kernel.

`inspect_kernel` disassembles the code object. A source has several device kernels: one for each end of the loop. No
device is needed.
"""

import tilewright as tw

config = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
)  # fmt: skip
inspection = tw.inspect_kernel(tw.kernel_of(config, "gfx942"))
for number, kernel in enumerate(inspection.op_kernels, 1):
    uses, fits = kernel.resources, kernel.occupancy
    print(f"{number}. {uses.vgprs} VGPRs, {uses.sgprs} SGPRs, {uses.lds_bytes:,} bytes of LDS")
    print(f"   {fits.waves_per_simd} waves per SIMD, limited by {fits.limited_by}")
    print(f"   {kernel.code_bytes:,} bytes of code:", ", ".join(f"{n} {name}" for name, n in kernel.mix.items()))

instructions = {name for kernel in inspection.op_kernels for name in kernel.matrix}
print("matrix instructions:", ", ".join(instructions))
assert instructions == {tw.load("gfx942").mma_shapes("fp16", "fp16", "fp32")[config.mma]}
