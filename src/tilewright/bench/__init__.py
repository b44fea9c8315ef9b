"""Measure kernels: one problem, or sweeps over many problems and devices that keep every result."""
