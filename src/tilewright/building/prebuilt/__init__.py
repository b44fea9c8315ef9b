"""Kernels that were built elsewhere and come as installed packages: wheels of kernels."""
