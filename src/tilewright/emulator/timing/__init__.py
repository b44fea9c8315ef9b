"""Estimate the time of a kernel from its code object: a model, not a measurement."""
