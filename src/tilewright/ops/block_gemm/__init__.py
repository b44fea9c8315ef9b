"""The GEMM of one work-group, which CK Tile builds GEMMs and convolutions around: what their ops share.

A config is anything with the attributes dtype_a, dtype_b, dtype_acc, dtype_c, layout, block, waves, mma, pipeline,
scheduler, epilogue, vector, wave_groups and split_k. An op whose config has other fields gives a view of it.
"""
