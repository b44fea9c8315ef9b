"""Toolchain, CK headers, device compilation and what a code object holds."""
