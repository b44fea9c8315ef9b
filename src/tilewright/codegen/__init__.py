"""From kernels to source text, and from source text to folders."""
