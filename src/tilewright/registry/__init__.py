"""Kernels and what was built of them: queries, JSON in and out."""

from tilewright.registry.registry import Registry, build

__all__ = ["Registry", "build"]
