"""Builds on many machines, with Ray."""
