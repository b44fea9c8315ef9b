"""Apertures: ranges of flat addresses that mean LDS or the private memory of a lane.

A flat address with the upper 32 bits of an aperture is not in memory: its lower 32 bits are an offset in the LDS of
the work-group, or in the private memory of the lane. The values are those of the Linux driver (amdkfd,
kfd_flat_memory.c: LDS at 1 << 48, private memory at 2 << 48).
"""

from __future__ import annotations

SHARED_BASE = 0x0001_0000_0000_0000  # src_shared_base
PRIVATE_BASE = 0x0002_0000_0000_0000  # src_private_base
# The last byte of a 4 GiB aperture.
SHARED_LIMIT = SHARED_BASE | 0xFFFF_FFFF
PRIVATE_LIMIT = PRIVATE_BASE | 0xFFFF_FFFF
