"""Sweeps on many machines, with Ray."""
