"""Tilewright's kernels compared with those of CK's own generators, instruction by instruction.

`python -m tests.proof.parity` generates each kernel twice: with Tilewright, and with CK's generator or example for the
same config. The same compiler compiles the device code of both with the same flags.
"""
