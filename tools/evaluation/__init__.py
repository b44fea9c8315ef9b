"""Public measurements and how well kernels are chosen on them: one module for each set."""
