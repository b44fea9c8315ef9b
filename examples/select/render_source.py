"""Look at the C++ source of a kernel.

Rendering is pure text: the same kernel gives the same file on every machine. An illegal kernel is not rendered.
"""

from dataclasses import replace

import tilewright as tw

kernel = next(tw.sets()["fp16_rcr_compute"].kernels("gfx942"))
source = tw.render(kernel)
lines = source.text.splitlines()
print(kernel.slug)
print(f"{len(lines)} lines, with", ", ".join(name for name in sorted(source.files) if "gemm" in name))
assert source.text == tw.render(kernel).text
start = next(number for number, line in enumerate(lines) if "Shape = " in line)
print("\n".join(line.strip() for line in lines[start : start + 4]))

try:
    tw.render(tw.kernel_of(replace(kernel.config, block=(96, 128, 32)), "gfx942"))
except tw.errors.IllegalConfigError as error:
    print("not rendered:", str(error).splitlines()[-1].strip())
else:
    raise AssertionError("an illegal kernel was rendered")
