"""The LDS of attention kernels and the distribution of their tiles, before they are compiled."""
