"""Measurements, models trained on them, and evaluation of their choices."""
