"""Parts of tests/proof/mutations.py: mutations, kernels to mutate, larger problems, verdicts and the report."""
