"""Checks of kernels while they run, beyond bounds and alignment, which are always checked."""
