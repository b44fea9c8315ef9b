"""The GEMM of one work-group, the core of CK Tile's GEMMs and convolutions: code that their ops share.

A config is any object with the attributes of `config_fields.BlockGemmConfig`. An op whose config has other fields
provides a view of it.
"""
