"""The artifact store: what was built, kept under the digest of everything that went into it."""
