"""What kernels cost on a machine: arithmetic that holds for one kernel, for a column of them, and in C."""
