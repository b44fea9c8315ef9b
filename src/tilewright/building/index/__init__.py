"""A signed index of built kernels on any static host: made from a store, read by machines that pinned its key."""
