"""Studies on public measurements of other kernels: see research/README.md."""
