"""Which kernel to take for a problem, and why: tables, rules, estimates, learned models."""
