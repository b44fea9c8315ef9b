"""Recreate a kernel from its name.

A name has every field that differs from its default, and a digest of all fields. One line of a log or a profile is
enough to build the kernel again.
"""

from dataclasses import replace

import tilewright as tw

name = "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-mem-intrawave-cshuffle-05c83eb053da"
kernel = tw.parse_kernel(name)
config = kernel.config
print(kernel.op, kernel.arch, config.dtype_a, config.layout, config.block, config.pipeline)
print("symbol", kernel.symbol)

padded = tw.kernel_of(replace(config, pad_m=True), "gfx942")
print("with one more field:", padded.slug.removeprefix(name[:-12]))
assert tw.parse_kernel(padded.slug) == padded

try:
    tw.parse_kernel(name.replace("b64x64", "b64x128"))
except tw.TilewrightError as error:
    print("changed by hand:", str(error).partition(":")[0])
else:
    raise AssertionError("the digest does not belong to these fields")
