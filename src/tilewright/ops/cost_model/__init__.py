"""The cost model: formulas for kernel times that work for one kernel, for a column of many kernels, and in C."""
