"""Kernel selection, with reasons: tuned tables, rules, estimates, learned models."""
