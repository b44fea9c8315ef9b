"""Measurements, models trained on them, and how good their choices are."""
