"""Functions for arrays: the kernel for a call is selected, built and run by one call. Options, and building ahead."""
