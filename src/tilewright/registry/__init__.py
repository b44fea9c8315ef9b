"""Kernels and their build results: queries, JSON, selection and running."""
