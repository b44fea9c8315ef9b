"""Measuring kernels: one problem, or sweeps of many on many devices, that lose nothing."""
