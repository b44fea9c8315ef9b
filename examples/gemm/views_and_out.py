"""Pass parts of arrays, and an array for the result.

Kernels read rows with any distance between them: a slice of columns is not copied. Every second column is copied first.
`out` may be any array of the result's shape.
"""

import numpy as np

import tilewright as tw

rng = np.random.default_rng(0)
wide = rng.integers(-3, 4, (40, 200)).astype(np.float16)
b = rng.integers(-3, 4, (64, 48)).astype(np.float16)
first, second = np.zeros((2, 40, 48), np.float16)

with tw.options(device="emulated:gfx942"):
    slice_of_columns = wide[:, 8:72]
    every_second = wide[:, :128:2]
    tw.matmul(slice_of_columns, b, out=first)
    tw.matmul(every_second, b, out=second)

assert (first == slice_of_columns @ b).all() and (second == every_second @ b).all()
print("strides", slice_of_columns.strides, "and", every_second.strides, "give the same as NumPy")
