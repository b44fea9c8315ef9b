"""Packs: many built kernels as one shared library per GPU, for programs without Python."""
