"""Toolchain, CK headers, kernel builds, code object inspection, the artifact store and packs."""
