"""The emulated GPUs, and apertures: ranges of flat addresses that mean LDS or the private memory of a lane.

A flat address with the upper 32 bits of an aperture is not in memory: its lower 32 bits are an offset in the LDS of
the work-group, or in the private memory of the lane. The values are those of the Linux driver (amdkfd,
kfd_flat_memory.c: LDS at 1 << 48, private memory at 2 << 48).
"""

from __future__ import annotations

# EF_AMDGPU_MACH, the lowest 8 bits of e_flags (LLVM, "User Guide for AMDGPU Backend", table "AMDGPU e_flags").
MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41, "gfx1201": 0x4E}
EMULATED = tuple(MACHINES)


def generation(arch: str) -> str:
    """Return gfx9, gfx11 or gfx12: the name without its last two characters, LLVM's minor version and stepping."""
    return arch[:-2]


# The most private memory of a wave, in bytes: the field WAVESIZE of COMPUTE_TMPRING_SIZE has 13 bits in units of 256
# words, or 15 or 18 bits in units of 64 words (LLVM, GCNSubtarget::getMaxWaveScratchSize).
WAVE_PRIVATE_BYTES = {"gfx9": 1024 * (2**13 - 1), "gfx11": 256 * (2**15 - 1), "gfx12": 256 * (2**18 - 1)}

SHARED_BASE = 0x0001_0000_0000_0000  # src_shared_base
PRIVATE_BASE = 0x0002_0000_0000_0000  # src_private_base
# The last byte of a 4 GiB aperture.
SHARED_LIMIT = SHARED_BASE | 0xFFFF_FFFF
PRIVATE_LIMIT = PRIVATE_BASE | 0xFFFF_FFFF
