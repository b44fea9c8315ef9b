"""Shared basics: errors, knobs, events, digests and document readers."""
