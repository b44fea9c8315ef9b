"""Render kernels to source text, and write sources, wrappers and build files to folders."""
