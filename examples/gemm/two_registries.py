"""Merge two registries, and find kernels in the result.

Registries are values: `merge`, `find` and `with_priority` return new ones. If both have the same kernel with different
builds or priorities, you choose the side with `prefer`.
"""

import tilewright as tw

same = {"scheduler": "intrawave", "pipeline": "compv3", "waves": (2, 2, 1), "mma": (16, 16, 16), "variant": "standard"}
halves = tw.build(
    [tw.gemm.config(dtype="fp16", layout="rcr", block=(64, 64, 32), epilogue="cshuffle", **same)], "gfx942"
)
padded = {"epilogue": "default", "pad_m": True, "pad_n": True, "pad_k": True}
singles = tw.build(tw.gemm.space(dtype="fp32", layout=["rrr", "rcr"], block=(32, 32, 16), **padded, **same), "gfx942")

both = halves.merge(singles)
print(repr(both))
print(f"{len(both.find(dtype='fp32'))} in fp32, {len(both.find(layout='rcr'))} of layout rcr")
for dtype in ("fp16", "fp32"):
    problem = tw.gemm.Problem(m=64, n=64, k=64, dtype=dtype, layout="rcr")
    print(dtype, both.select(problem).best.kernel.config.block)

mine, theirs = (both.with_priority(both.kernels[0], number) for number in (1, 2))
try:
    mine.merge(theirs)
except tw.TilewrightError as error:
    print(str(error).splitlines()[0])
assert mine.merge(theirs, prefer="theirs").priorities[both.kernels[0]] == 2
