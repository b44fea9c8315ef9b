"""What tools/mutations.py is made of: changes of instructions, kernels, larger problems, and what comes of a change."""
