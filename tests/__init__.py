"""Tests of Tilewright, and the programs in `tests.proof` that check its claims."""
