"""Acceptance of a GPU: everything that the first run on a new GPU should show, in one folder."""
