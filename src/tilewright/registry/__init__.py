"""Kernels and their build results: queries, JSON, selection and running."""

from tilewright.registry.registry import Registry, build

__all__ = ["Registry", "build"]
