"""The GEMM of one work-group, the core of CK Tile's GEMMs and convolutions: code that their ops share.

A config is any object with the attributes dtype_a, dtype_b, dtype_acc, dtype_c, layout, block, waves, mma, pipeline,
scheduler, epilogue, vector, wave_groups and split_k. An op whose config has other fields provides a view of it.
"""
